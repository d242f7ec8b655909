"""Test that the estimated gain of presolve equals the gain of presolving each variable by itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.presolve.dominance import remove_dominated_values
from dmcmc.inference.presolve.small_buckets import estimate_presolve_gain, may_eliminate
from dmcmc.inference.presolve.working_problem import PresolveLimit, WorkingProblem


@st.composite
def problems(draw):
    n = draw(st.integers(1, 6))
    domains = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    owner = sorted(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    scopes = draw(st.lists(st.lists(st.integers(0, n - 1), min_size=1, max_size=3, unique=True), max_size=8))
    distinct = {frozenset(scope): scope for scope in scopes}.values()
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    factors = tuple(Factor.of(scope, rng.integers(-2, 3, [domains[v] for v in scope])) for scope in distinct)
    return Problem(tuple(f"x{v}" for v in range(n)), domains, ("a", "b"), owner, factors)


def one_by_one(problem):
    """Return the gain of presolving each variable by itself, with only the factors that contain a private variable."""
    private = np.flatnonzero(WorkingProblem.of(problem, PresolveLimit()).private)
    nearby = replace(problem, factors=tuple(f for f in problem.factors if {*f.scope} & {*private.tolist()}))
    removed = 0.0
    for v in private.tolist():
        working = WorkingProblem.of(nearby, PresolveLimit())
        size = len(working.remaining[v])
        removed += (
            1.0 if may_eliminate(working, v) or not working.touching[v] else remove_dominated_values(working, v) / size
        )
    return removed / problem.n_variables


@given(problems())
@settings(max_examples=60, deadline=None)
def test_the_estimate_equals_the_gain_per_variable(problem):
    assert estimate_presolve_gain(problem) == pytest.approx(one_by_one(problem))
