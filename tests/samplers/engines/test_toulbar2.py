"""toulbar2 as a search engine: its proofs hold for the utilities, and its process ends on time."""

import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmcmc
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.factor import Factor, choose_arithmetic
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.methods import exact
from dmcmc.samplers.toulbar2 import solver
from dmcmc.samplers.toulbar2.background_search import Toulbar2Process, available
from dmcmc.samplers.toulbar2.costs import costs_of

HARD = -np.inf

installed = pytest.mark.skipif(not available(), reason="needs pytoulbar2")


@given(st.data())
@settings(deadline=None)
def test_costs_give_upper_bounds_on_utilities(data):
    numbers = data.draw(
        st.sampled_from([st.integers(-(2**40), 2**40), st.integers(-(2**62), 2**62), st.floats(-1e9, 1e9)])
    )
    tables = [np.array(data.draw(st.lists(numbers, min_size=6, max_size=6))).reshape(2, 3) for _ in range(3)]
    factors = [Factor.of((0, 1), table) for table in tables] + [Factor.of((), data.draw(numbers))]
    costs = costs_of([f.scope for f in factors], [f.table for f in factors], np.array([2, 3]))
    for values in product(range(2), range(3)):
        utility = sum(
            (dmcmc.inference.model.arithmetic.exact_sum([f.entry(values[: len(f.scope)])]) for f in factors), 0
        )
        assert costs.bound(costs.of(np.array(values))) >= utility
        if costs.exact:
            assert costs.bound(costs.of(np.array(values))) == utility
        assert costs.of(np.array(values)) <= costs.cost_to_beat(utility)


def agent(seed, whole, hidden=4, interface=1):
    rng = np.random.default_rng(seed)
    n, factors = hidden + interface, []
    for pair in product(range(n), repeat=2):
        if pair[0] < pair[1]:
            table = rng.integers(-20, 20, (3, 3)) if whole else rng.normal(size=(3, 3))
            factors.append(Factor.of(pair, np.where(rng.random((3, 3)) < 0.2, HARD, table)))
    interface_variables = tuple(range(hidden, n))
    return LocalProblem(0, interface_variables, tuple(range(hidden)), tuple(factors), np.full(n, 3))


def table(method, local, stop=NO_DEADLINE):
    sampling = Sampling(choose_arithmetic(local.factors), backend=Backend(threads=2, stop=stop))
    return method.solve([local], sampling)[0]


@installed
@pytest.mark.parametrize(("seed", "whole"), [(1, True), (2, False), (3, True)])
def test_rows_equal_those_of_elimination(seed, whole):
    local = agent(seed, whole)
    expected, found = table(exact.SOLVER, local), table(solver.SOLVER, local)
    assert found.exact == whole
    best = expected.lower[0].values
    for side in (found.lower, found.upper):
        np.testing.assert_allclose(side[0].values, best, rtol=1e-12)
    assert (found.upper[0].values >= best).all()
    for row in range(3):
        values = {4: row} | found.witness({4: row})
        entries = [f.entry([values[v] for v in f.scope]) for f in local.factors]
        utility = HARD if None in entries else sum(entries)
        assert utility == pytest.approx(best[row]) or (utility == HARD and best[row] == found.lower[0].values[row])


@installed
def test_without_time_rows_are_bounded():
    local = agent(1, True)
    late, exact_table = table(solver.SOLVER, local, Deadline(until=-np.inf)), table(exact.SOLVER, local)
    assert not late.exact
    assert (late.lower[0].values <= exact_table.lower[0].values).all()
    assert (late.upper[0].values >= exact_table.lower[0].values).all()


@installed
def test_a_search_can_be_observed_and_ended():
    rng = np.random.default_rng(0)
    pairs = [(i, j) for i in range(60) for j in range(i)]
    tables = [rng.integers(0, 1000, (10, 10)) for _ in pairs]
    costs = costs_of(pairs, tables, np.full(60, 10))
    with Toulbar2Process() as engine:
        progress = engine.start(costs, None, 1000)
        deadline = time.monotonic() + 300
        while progress.values is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not progress.ended
        assert costs.of(progress.values) >= progress.lower
    deadline = time.monotonic() + 60
    while not progress.ended and time.monotonic() < deadline:
        time.sleep(0.01)
    assert progress.ended
    assert not progress.complete


@installed
def test_only_better_assignments_than_the_known_one_are_found():
    tables = [np.array([[5, 1], [0, 3]])]
    costs = costs_of([(0, 1)], tables, np.array([2, 2]))
    with Toulbar2Process() as engine:
        better, none = (engine.search(costs, beat, 10) for beat in (3, 5))
    assert better.complete
    assert better.values.tolist() == [0, 0]
    assert none.complete
    assert none.values is None


def test_without_toulbar2_the_error_tells_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="pip install"):
        solver.SOLVER.check(agent(1, True), 1 << 30, choose_arithmetic([]))


@installed
def test_as_a_local_method():
    problem = dmcmc.generate("meeting-scheduling", agents=3, variables_per_agent=3, domain_size=4, seed=1)
    assert dmcmc.solve(problem, method="toulbar2").objective == dmcmc.solve(problem, method="exact").objective
