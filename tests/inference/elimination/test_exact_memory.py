"""Exact agents whose tables exceed the memory: rows are looked up beforehand, or a table is eliminated again."""

import pytest
from support.problem_strategies import random_problem
from support.runs import sizes

import dmcmc
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.methods import exact


@pytest.mark.parametrize("kept_bytes", [-1, 40, 400])  # none, some, or most agents' tables are cached
@pytest.mark.parametrize("looked_up", [0, 1 << 22])
@pytest.mark.parametrize("seed", range(12))
def test_the_answer_does_not_depend_on_which_tables_are_cached(monkeypatch, seed, looked_up, kept_bytes):
    problem = random_problem(seed, agents=3)
    cached = dmcmc.solve(problem, method="exact")
    monkeypatch.setattr(tuning, "MAX_RETAINED_BYTES", kept_bytes)
    monkeypatch.setattr(exact, "tuning", sizes(LARGE_ENTRIES=looked_up))
    anew = dmcmc.solve(problem, method="exact")
    assert (anew.objective, anew.bound, anew.status) == (cached.objective, cached.bound, cached.status)
