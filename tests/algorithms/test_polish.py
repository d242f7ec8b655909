"""Runs whose answers are what the tables say, as the papers have it."""

import pytest
from support.problem_strategies import random_problem

import dmcmc
from dmcmc.inference.runtime.errors import ConfigError

PLAIN = {"polish": "none", "method": "metropolis-hastings", "runs": 1, "samples": 2, "temperature": 1, "device": "cpu"}


def test_plain_answers_are_what_the_tables_say():
    """Two samples a row are worse than a local search; exact tables need none."""
    problem = dmcmc.generate("meeting-scheduling", agents=3, variables_per_agent=4, domain_size=6, seed=1)
    plain = dmcmc.solve(problem, **PLAIN)
    assert plain.objective < dmcmc.solve(problem, **PLAIN | {"polish": "auto"}).objective
    exact = dmcmc.solve(problem, method="exact", device="cpu")
    assert dmcmc.solve(problem, method="exact", polish="none", device="cpu").objective == exact.objective
    assert plain.objective <= exact.objective <= plain.bound


def test_plain_answers_have_no_time_budget():
    with pytest.raises(ConfigError, match="polish: with a time budget the whole assignment is searched"):
        dmcmc.solve(random_problem(5), polish="none", timeout=1)
