"""Runs of problems that take long: agents that share much, and agents whose bounds stay loose."""

import json

import numpy as np

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.formats import native


def answer(problem, **sections):
    return dmcmc.solve(problem, **sections)


def written(tmp_path, problem, **sections):
    """A configuration file for a problem."""
    native.save(problem, tmp_path / "problem.npz")
    lines = ["problem: {file: problem.npz}"]
    lines += [f"{name}: {json.dumps(section)}" for name, section in sections.items()]
    (tmp_path / "run.yaml").write_text("\n".join(lines))
    return str(tmp_path / "run.yaml")


def dense_problem(seed, agents=4, shared=3, domain=4):
    """Agents that all share all but one of their variables with each other, and care most for their own."""
    rng = np.random.default_rng(seed)
    n = agents * (shared + 1)
    owner, factors = np.repeat(np.arange(agents), shared + 1), []
    for a in range(agents):
        own = np.flatnonzero(owner == a).tolist()
        factors.append(Factor.of(own[:shared], rng.integers(0, 100, (domain,) * shared)))
        factors += [Factor.of((v, own[-1]), rng.integers(0, 10, (domain, domain))) for v in own[:-1]]
        for b in range(a):
            other = np.flatnonzero(owner == b).tolist()
            pairs = [(own[i], other[j]) for i in range(shared) for j in range(shared) if (i + j) % 2 == 0]
            factors += [Factor.of(pair, rng.integers(0, 4, (domain, domain))) for pair in pairs]
    names = tuple(f"x{v}" for v in range(n)), tuple(f"a{a}" for a in range(agents))
    return Problem(names[0], np.full(n, domain), names[1], owner, tuple(factors))


def hard_problem(variables=14, agents=2, domain=8, seed=0):
    """Agents whose own graphs are complete: sampling finds the optimum, bounds take long to show it."""
    rng = np.random.default_rng(seed)
    n = variables * agents
    owner = np.repeat(np.arange(agents), variables)
    pairs = [
        (i, j) for j in range(n) for i in range(j) if owner[i] == owner[j] or (i % variables, j % variables) == (0, 0)
    ]
    factors = tuple(Factor.of(pair, rng.integers(0, 1000, (domain, domain))) for pair in pairs)
    names = tuple(f"x{v}" for v in range(n)), tuple(f"a{a}" for a in range(agents))
    return Problem(names[0], np.full(n, domain), names[1], owner, factors)
