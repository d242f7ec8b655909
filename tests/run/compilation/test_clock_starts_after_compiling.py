"""Nothing is compiled, nor read from the disk, while the clock of a run with a time budget runs."""

import time
from dataclasses import replace
from itertools import combinations

import numba
import numpy as np
import pytest
from support.clock import MovableClock
from support.runs import clocked, dense_problem, hard_problem

import dmcmc
import dmcmc.run.solve as solving
from dmcmc import Factor, Problem
from dmcmc.config.document import Document
from dmcmc.config.settings import settings_of
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.run.monitoring.interrupt import Ending

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


def belief():
    """One agent, every two variables in a table of real numbers, some of which are impossible."""
    rng, n = np.random.default_rng(2), 9
    factors = []
    for a, b in combinations(range(n), 2):
        table = rng.uniform(-9, 0, (3, 3))
        table[(rng.random((3, 3)) < 0.25) & (np.add.outer(range(3), range(3)) > 0)] = -np.inf
        factors.append(Factor.of((a, b), table))
    return Problem(tuple(f"x{v}" for v in range(n)), np.full(n, 3), ("a",), np.zeros(n, dtype=np.int64), tuple(factors))


def forbidding():
    """Whole numbers, some of which are forbidden."""
    problem, rng = hard_problem(variables=6, domain=4), np.random.default_rng(3)
    tables = [np.where(rng.random(f.shape) < 0.1, -np.inf, f.table) for f in problem.factors]
    return replace(problem, factors=tuple(Factor.of(f.scope, t) for f, t in zip(problem.factors, tables, strict=True)))


def listed():
    """Whole numbers, one factor of which is a list of tuples."""
    problem = dense_problem(1)
    tuples = np.array([[0, 1, 2], [1, 1, 1], [3, 0, 0]], dtype=np.int32)
    return replace(
        problem, factors=(*problem.factors, SparseFactor((1, 5, 9), (4, 4, 4), tuples, np.array([9, 5, 7, 1])))
    )


def alone():
    """Agents of one variable each: their tables are nothing, combining them takes an order of 10^8 cells and more."""
    return dmcmc.generate("random", agents=20, variables_per_agent=1, domain_size=5, global_density=0.5, seed=1)


KINDS = {
    "hidden variables, whole numbers": (hard_problem, {}),
    "hard constraints, samples asked for": (forbidding, {"local": {"method": "annealing"}}),
    "belief, one agent, filtered": (belief, {"local": {"cells": 100}}),
    "agents of one variable": (alone, {}),
    "a list, samples asked for": (listed, {"local": {"method": "annealing", "bound": "dual+mini-bucket"}}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_compiled_or_read_while_the_clock_runs(kind, monkeypatch):
    make, options = KINDS[kind]
    problem = make()
    with clocked(monkeypatch) as late:
        result = dmcmc.solve(problem, timeout=1.0, device="cpu", search="none", **options)
    assert result.assignment is not None
    assert late == []


def test_what_ends_a_run_while_kernels_are_compiled_is_told_the_time_before(monkeypatch):
    clock, told, ending = MovableClock(), [], Ending()

    def compiled(*_):
        clock.skip(1000)
        told.append(ending.best())
        return 1000.0

    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(solving, "warm_up_solving", compiled)
    options = {"budget": {"time": 1.0}, "device": "cpu", "search": "none"}
    result = solving.solve(hard_problem(), settings_of(Document("", options)), ending=ending)
    assert told[0].assignment is not None
    assert told[0].time < 100
    assert result.time < 100
