"""Runs with ``local_search: none``: the answer is decoded from the tables, without local search."""

import pytest
from support.problem_strategies import random_problem

import dmcmc
from dmcmc.inference.runtime.errors import ConfigError

WITHOUT_LOCAL_SEARCH = {
    "local_search": "none",
    "method": "metropolis-hastings",
    "runs": 1,
    "samples": 2,
    "temperature": 1,
    "device": "cpu",
}


def test_without_local_search_the_answer_is_decoded_from_the_tables():
    """Two samples per row give a worse answer than local search; exact tables need no local search."""
    problem = dmcmc.generate("meeting-scheduling", agents=3, variables_per_agent=4, domain_size=6, seed=1)
    plain = dmcmc.solve(problem, **WITHOUT_LOCAL_SEARCH)
    assert plain.objective < dmcmc.solve(problem, **WITHOUT_LOCAL_SEARCH | {"local_search": "auto"}).objective
    exact = dmcmc.solve(problem, method="exact", device="cpu")
    assert dmcmc.solve(problem, method="exact", local_search="none", device="cpu").objective == exact.objective
    assert plain.objective <= exact.objective <= plain.bound


def test_local_search_none_rejects_a_time_budget():
    with pytest.raises(ConfigError, match="local_search: none needs a run without a time budget"):
        dmcmc.solve(random_problem(5), local_search="none", timeout=1)
