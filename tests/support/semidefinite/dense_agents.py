"""Agents whose variables nearly all share factors, for semidefinite relaxations."""

from itertools import combinations

import numpy as np

from dmcmc import Factor
from dmcmc.inference.dpop.division import LocalProblem
from support.problem_strategies import random_table


def dense_agent(seed, hidden=4, interface=1, hard=0.0, magnitude=99, floats=False, max_domain=5, density=0.9):
    """Return a dense agent with randomly numbered variables."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(hidden + interface)
    domains = rng.integers(1 if max_domain < 9 else 3, max_domain, hidden + interface)
    scopes = [tuple(names[list(p)]) for p in combinations(range(hidden + interface), 2) if rng.random() < density]
    scopes += [(v,) for v in names]
    shapes = [tuple(domains[list(s)]) for s in scopes]
    factors = [
        Factor.of(tuple(map(int, s)), random_table(rng, shape, magnitude, hard, floats=floats))
        for s, shape in zip(scopes, shapes, strict=True)
    ]
    inner, outer = sorted(map(int, names[:hidden])), sorted(map(int, names[hidden:]))
    return LocalProblem(0, tuple(outer), tuple(inner), tuple(factors), domains.astype(np.int64))
