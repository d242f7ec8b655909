"""What a glance promises is what goes where each variable is looked at by itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.presolve.dominance import remove_of
from dmcmc.inference.presolve.estimate_gain import promise
from dmcmc.inference.presolve.limits import Limit
from dmcmc.inference.presolve.small_buckets import pays
from dmcmc.inference.presolve.working_problem import Network


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
    """Each variable by itself, all others as they were; of factors those alone that one of them is in."""
    own = np.flatnonzero(Network.of(problem, Limit()).private)
    near = replace(problem, factors=tuple(f for f in problem.factors if {*f.scope} & {*own.tolist()}))
    gone = 0.0
    for v in own.tolist():
        network = Network.of(near, Limit())
        size = len(network.left[v])
        gone += 1.0 if pays(network, v) or not network.touching[v] else remove_of(network, v) / size
    return gone / problem.n_variables


@given(problems())
@settings(max_examples=60, deadline=None)
def test_a_glance_sees_what_goes_of_each_variable(problem):
    assert promise(problem) == pytest.approx(one_by_one(problem))
