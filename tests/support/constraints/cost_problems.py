"""Small problems for search engines that minimise costs, and all their assignments."""

from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import strategies as st

from dmcmc import Factor, Problem
from dmcmc.samplers.toulbar2.costs import costs_of
from dmcmc.samplers.toulbar2.linear_constraints import at_most_one_of

HARD = -np.inf


@st.composite
def problems(draw):
    """Draw cost functions over up to three variables, with forbidden tuples and an at-most-one constraint."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, 6))
    domains = rng.integers(1, 4, n)
    scopes = [tuple(rng.permutation(n)[: rng.integers(1, 4)].tolist()) for _ in range(draw(st.integers(0, 12)))]
    hard, most = draw(st.sampled_from([0.0, 0.2, 0.5])), draw(st.sampled_from([1, 4, 1000]))
    shapes = [tuple(domains[list(scope)]) for scope in scopes]
    tables = [np.where(rng.random(s) < hard, HARD, rng.integers(-most, most + 1, s)) for s in shapes]
    whole = [table.astype(np.int64) if hard == 0 else table for table in tables]
    group = [(v, int(rng.integers(domains[v]))) for v in range(n) if rng.random() < 0.5]
    return replace(costs_of(scopes, whole, domains), linear=[at_most_one_of(group)] if len(group) > 1 else [])


def costs_of_all(costs):
    """Return the cost of every feasible assignment."""
    found = {}
    for values in product(*map(range, costs.domains.tolist())):
        cost = costs.of(np.array(values))
        if cost < costs.top:
            found[values] = cost
    return found


def frequencies(n=9, seed=2):
    """Return a frequency assignment problem with soft distance constraints."""
    rng = np.random.default_rng(seed)
    gap, weight = rng.integers(1, 5, (n, n)), rng.integers(1, 100, (n, n))
    away = abs(np.arange(8)[:, None] - np.arange(8))
    factors = [Factor.of((i, j), -weight[i, j] * (away < gap[i, j])) for j in range(n) for i in range(j)]
    return Problem(tuple(f"x{v}" for v in range(n)), np.full(n, 8), ("a",), np.zeros(n, dtype=np.int64), tuple(factors))
