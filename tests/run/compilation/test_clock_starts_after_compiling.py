"""No kernel is compiled, or read from disk, while the clock of a run with a time budget runs."""

import time
from dataclasses import replace
from itertools import combinations

import numba
import numpy as np
import pytest
from support.clock import MovableClock
from support.runs import dense_problem, hard_problem, record_late_compilation

import dmcmc
import dmcmc.run.solve as solving
from dmcmc import Factor, Problem
from dmcmc.config.document import Document
from dmcmc.config.settings import settings_of
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.run.monitoring.interrupt import RunHandle

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
def test_nothing_is_compiled_or_read_while_the_clock_runs(name, monkeypatch):
    make, options = PROBLEMS[name]
    problem = make()
    with record_late_compilation(monkeypatch) as late:
        result = dmcmc.solve(problem, timeout=1.0, device="cpu", search="none", **options)
    assert result.assignment is not None
    assert late == []


def test_a_result_read_during_compilation_does_not_count_its_time(monkeypatch):
    clock, results, handle = MovableClock(), [], RunHandle()

    def compiled(*_):
        clock.skip(1000)
        results.append(handle.best())
        return 1000.0

    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(solving, "compile_agent_work", compiled)
    options = {"budget": {"time": 1.0}, "device": "cpu", "search": "none"}
    result = solving.solve(hard_problem(), settings_of(Document("", options)), ending=handle)
    assert results[0].assignment is not None
    assert results[0].time < 100
    assert result.time < 100
