"""Exact agents whose tables are too many to keep: rows are looked up before they go, or one is eliminated anew."""

import pytest
from support.problem_strategies import random_problem

import dmcmc
from dmcmc.samplers.methods import exact


@pytest.mark.parametrize("kept_bytes", [-1, 40, 400])  # none, some, most agents' tables are kept
@pytest.mark.parametrize("looked_up", [0, 1 << 22])
@pytest.mark.parametrize("seed", range(12))
def test_the_answer_does_not_depend_on_what_is_kept(monkeypatch, seed, looked_up, kept_bytes):
    problem = random_problem(seed, agents=3)
    kept = dmcmc.solve(problem, method="exact")
    monkeypatch.setattr(exact, "_KEPT", kept_bytes)
    monkeypatch.setattr(exact, "_LOOKED_UP", looked_up)
    anew = dmcmc.solve(problem, method="exact")
    assert (anew.objective, anew.bound, anew.status) == (kept.objective, kept.bound, kept.status)
