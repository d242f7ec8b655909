"""The kernel sets that a run with a time budget declares contain all kernels that it calls."""

from dataclasses import replace
from itertools import combinations

import numba
import numpy as np
import pytest
from support.runs import dense_problem, hard_problem, record_late_compilation

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


def belief_network():
    """Return one agent with a float table for every pair of variables, some entries of which are forbidden."""
    rng, n = np.random.default_rng(2), 9
    factors = []
    for a, b in combinations(range(n), 2):
        table = rng.uniform(-9, 0, (3, 3))
        table[(rng.random((3, 3)) < 0.25) & (np.add.outer(range(3), range(3)) > 0)] = -np.inf
        factors.append(Factor.of((a, b), table))
    return Problem(tuple(f"x{v}" for v in range(n)), np.full(n, 3), ("a",), np.zeros(n, dtype=np.int64), tuple(factors))


def hard_constraints():
    """Return a problem with integer tables, some entries of which are forbidden."""
    problem, rng = hard_problem(variables=6, domain=4), np.random.default_rng(3)
    tables = [np.where(rng.random(f.shape) < 0.1, -np.inf, f.table) for f in problem.factors]
    return replace(problem, factors=tuple(Factor.of(f.scope, t) for f, t in zip(problem.factors, tables, strict=True)))


def sparse_factor():
    """Return a problem with integer tables and one sparse factor."""
    problem = dense_problem(1)
    tuples = np.array([[0, 1, 2], [1, 1, 1], [3, 0, 0]], dtype=np.int32)
    return replace(
        problem, factors=(*problem.factors, SparseFactor((1, 5, 9), (4, 4, 4), tuples, np.array([9, 5, 7, 1])))
    )


def single_variable_agents():
    """Return single-variable agents: no local tables, but a combination of more than 10^8 cells."""
    return dmcmc.generate("random", agents=20, variables_per_agent=1, domain_size=5, global_density=0.5, seed=1)


PROBLEMS = {
    "hidden variables, integers": (hard_problem, {}),
    "hard constraints, sampled": (hard_constraints, {"local": {"method": "annealing"}}),
    "belief network, one agent, function filtering": (belief_network, {"local": {"cells": 100}}),
    "single-variable agents": (single_variable_agents, {}),
    "a sparse factor, sampled": (sparse_factor, {"local": {"method": "annealing", "bound": "dual+mini-bucket"}}),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_kernel_is_called_that_was_not_declared(name, monkeypatch):
    make, options = PROBLEMS[name]
    problem = make()
    with record_late_compilation(monkeypatch) as late:
        result = dmcmc.solve(problem, timeout=1.0, device="cpu", search="none", **options)
    assert result.assignment is not None
    assert late == []
