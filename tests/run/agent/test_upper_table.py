"""Rows are searched in where that can close them in the time that is left."""

import numpy as np
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU
from dmcmc.run.agent.upper_table import UpperTable


def test_a_search_that_would_be_too_slow_is_given_up_for_good(monkeypatch):
    rng, domains = np.random.default_rng(0), np.full(4, 5)
    factors = [Factor.of(pair, random_table(rng, (5, 5), 99, 0.0)) for pair in ((0, 1), (1, 2), (0, 2), (2, 3))]
    local = LocalProblem(0, (3,), (0, 1, 2), tuple(factors), domains)
    above = UpperTable()
    above.start("triangles", local, CPU)
    monkeypatch.setattr(above.dual, "_pace", 0.01)
    assert above.searchable(5) and above.quick_enough(5, seconds=10.0)
    assert above.searchable(5) and not above.quick_enough(5, seconds=1.0)
    assert not above.searchable(5) and not above.quick_enough(5, seconds=10.0)
