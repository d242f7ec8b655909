"""Agents that no dense table fits are proven by an elimination that filters by the incumbent."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.config.keywords import settings_from
from dmcmc.mpi.world import World
from dmcmc.report.plan import plan_of
from dmcmc.report.summary import summary
from dmcmc.run.planning.plan import prepare

N, CELLS = 8, 100  # no exact elimination has so few cells


def alone(seed, hard=False):
    """One agent, every two variables in a factor."""
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
    total = np.zeros([3] * N)
    for factor in problem.factors:
        total = total - factor.table.reshape([3 if v in factor.scope else 1 for v in range(N)])
    return total.min()


def shown(result):
    console = Console(width=200)
    with console.capture() as text:
        console.print(summary(result))
    return text.get()


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_optimal_where_dense_tables_are_not_allowed(seed):
    result = dmcmc.solve(alone(seed), cells=CELLS)
    assert (result.status, result.agents[0].method) == ("optimal", "filtering")
    kept = result.agents[0].kept
    assert kept.messages <= N and kept.rows <= kept.entries  # none where the first has nothing that can win
    assert result.trace[-1].kept == kept
    assert "messages incomplete" in shown(result)
    assert result.objective == result.bound == optimum(alone(seed))


def test_without_a_bound_nothing_is_filtered():
    assert dmcmc.solve(alone(1), cells=CELLS, bound="none").agents[0].method != "filtering"


def test_what_has_no_solution_is_proven_to_have_none():
    assert dmcmc.solve(alone(1, hard=True), cells=CELLS, reduce="none").status == "infeasible"


def test_a_run_with_a_time_budget_takes_it_as_one_kind_of_work():
    setup = prepare(alone(3), settings_from(None, {"cells": CELLS, "timeout": 600}), World())
    assert any("filter" in offer for offer in plan_of(setup).later)
    hopeless = replace(setup, surveys=(setup.surveys[0]._replace(cells=1e30),))
    assert "messages: 8 dense, 0 dense or incomplete" in plan_of(setup).incomplete[0]
    assert setup.filters(0) and not hopeless.filters(0)
    result = dmcmc.solve(alone(3), cells=CELLS, timeout=600, search="none")
    assert (result.status, result.objective) == ("optimal", optimum(alone(3)))
    assert result.trace[0].kept is None and result.trace[-1].kept == result.agents[0].kept
