"""Test that agents too large for dense tables are proven optimal by function filtering."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.config.make_settings import settings_from
from dmcmc.mpi.world import World
from dmcmc.report.explain import plan_of
from dmcmc.report.summary import result_summary as summary
from dmcmc.solving.planning.plan import prepare

N, CELLS = 8, 100  # no exact elimination has so few cells


def alone(seed, hard=False):
    """Return one agent with a factor between every two variables."""
    rng = np.random.default_rng(seed)
    tables = {(a, b): rng.integers(0, 20, (3, 3)).astype(float) for b in range(N) for a in range(b)}
    if hard:
        tables[0, 1][:] = np.inf
    return Problem(
        variables=tuple(f"x{v}" for v in range(N)),
        domains=np.full(N, 3),
        agents=("a",),
        owner=np.zeros(N, dtype=np.int64),
        factors=tuple(Factor.of(scope, table, "min") for scope, table in tables.items()),
        sense="min",
    )


def optimum(problem):
    """Return the optimal utility by brute force."""
    total = np.zeros([3] * N)
    for factor in problem.factors:
        total = total - factor.table.reshape([3 if v in factor.scope else 1 for v in range(N)])
    return total.min()


def shown(result):
    """Return the summary of a result as text."""
    console = Console(width=200)
    with console.capture() as text:
        console.print(summary(result))
    return text.get()


@pytest.mark.parametrize("seed", [1, 2])
def test_function_filtering_proves_the_optimum_without_dense_tables(seed):
    result = dmcmc.solve(alone(seed), cells=CELLS)
    assert (result.status, result.agents[0].method) == ("optimal", "filtering")
    retained = result.agents[0].retained
    assert (
        retained.messages <= N and retained.retained_entries <= retained.dense_entries
    )  # no rows if no tuple can beat the incumbent
    assert result.trace[-1].retained == retained
    assert "messages are sparse" in shown(result)
    assert result.objective == result.bound == optimum(alone(seed))


def test_without_a_bound_there_is_no_function_filtering():
    assert dmcmc.solve(alone(1), cells=CELLS, bound="none").agents[0].method != "filtering"


def test_infeasibility_is_proven():
    assert dmcmc.solve(alone(1, hard=True), cells=CELLS, presolve="none").status == "infeasible"


def test_function_filtering_is_an_improver_of_runs_with_a_time_budget():
    setup = prepare(alone(3), settings_from(None, {"cells": CELLS, "timeout": 600}), World())
    assert any("function filtering" in line for line in plan_of(setup).later)
    too_large = replace(setup, surveys=(setup.surveys[0]._replace(cells=1e30),))
    assert "8 messages dense, 0 dense or sparse" in plan_of(setup).sparse_tables[0]
    assert setup.may_filter(0) and not too_large.may_filter(0)
    result = dmcmc.solve(alone(3), cells=CELLS, timeout=600, search="none")
    assert (result.status, result.objective) == ("optimal", optimum(alone(3)))
    assert result.trace[0].retained is None and result.trace[-1].retained == result.agents[0].retained
