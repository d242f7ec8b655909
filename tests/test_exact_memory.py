"""Exact agents whose tables are too many to keep: VALUE asks for one row, which is eliminated anew."""

import pytest
from problem_strategies import random_problem

from dmcmc.config import parse
from dmcmc.samplers import exact
from dmcmc.solve import solve


@pytest.mark.parametrize("kept_bytes", [-1, 40, 400])  # none, some, most agents' tables are kept
@pytest.mark.parametrize("seed", range(12))
def test_a_row_eliminated_anew_gives_the_same_answer(monkeypatch, seed, kept_bytes):
    problem = random_problem(seed, agents=3)
    config = parse({"problem": {"file": "-"}, "local": {"method": "exact"}})
    kept = solve(problem, config)
    monkeypatch.setattr(exact, "_KEPT", kept_bytes)
    anew = solve(problem, config)
    assert (anew.objective, anew.bound, anew.status) == (kept.objective, kept.bound, kept.status)
