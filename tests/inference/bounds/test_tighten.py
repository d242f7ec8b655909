"""Several bounds are tightened one after the other, each in its own time, and stop early where that is enough."""

from types import SimpleNamespace

import numpy as np
import pytest
from support import naive
from support.semidefinite.dense_agents import dense_agent

from dmcmc.inference.bounds import registry
from dmcmc.inference.bounds import search_rows as tighten
from dmcmc.inference.bounds.contract.protocol import BoundRequest
from dmcmc.inference.bounds.contract.tuning import STEP_FRACTION
from dmcmc.inference.execution.backend import CPU


class FakeState:
    """A bound that records the time that it is given."""

    def __init__(self):
        self.seconds, self.backend = [], CPU

    def improve(self, seconds=None, sweeps=None, rows=None):
        self.seconds.append(seconds)


def test_each_bound_gets_its_own_seconds():
    states = [FakeState(), FakeState(), FakeState()]
    budget = tighten.TighteningBudget(effort=0.0, seconds=[1.0, 2.0, 3.0])
    spent = tighten.tighten([BoundRequest(state) for state in states], CPU, budget)
    assert [state.seconds for state in states] == [[1.0], [2.0], [3.0]]
    assert len(spent) == 3 and min(spent) >= 0


def test_unused_seconds_are_passed_on():
    states = [FakeState(), FakeState()]
    budget = tighten.TighteningBudget(effort=0.0, seconds=[5.0, 1.0], pass_on=True)
    tighten.tighten([BoundRequest(state) for state in states], CPU, budget)
    assert states[0].seconds[0] <= 5.0 and states[1].seconds[0] > 4.0  # the first one took no time


@pytest.mark.parametrize("enough", [True, False])
def test_a_bound_that_suffices_after_its_first_part_gets_no_more_time(enough):
    state, asked = FakeState(), []

    def is_enough(number):
        asked.append(number)
        return enough

    budget = tighten.TighteningBudget(effort=0.0, seconds=[10.0])
    tighten.tighten([BoundRequest(state)], CPU, budget, is_enough)
    first = STEP_FRACTION * 10.0
    assert asked == [0] and state.seconds == ([first] if enough else [first, 10.0 - first])


def test_a_fixed_number_of_sweeps_gives_the_bounds_of_single_calls():
    locals_ = [dense_agent(seed, hidden=4) for seed in (1, 2)]
    together, alone = ([registry.get("triangles").start(local) for local in locals_] for _ in range(2))
    budget = tighten.TighteningBudget(effort=0.0, sweeps=3)
    tighten.tighten([BoundRequest(state) for state in together], CPU, budget)
    for one, other, local in zip(together, alone, locals_, strict=True):
        other.improve(sweeps=3)
        assert (one.bounds == other.bounds).all()
        decoded = [one.layout.scale.decode(int(bound)) for bound in one.bounds]
        assert (np.array(decoded) >= naive.row_values(local).ravel()).all()


def test_a_bound_that_can_prune_gets_the_thresholds():
    local = dense_agent(2, hidden=4)
    values = naive.row_values(local).ravel()
    state = registry.get("triangles").start(local)
    budget = tighten.TighteningBudget(effort=0.0, sweeps=3)
    (spent,) = tighten.tighten([BoundRequest(state, None, values.astype(float))], CPU, budget)
    alone = registry.get("triangles").start(local)
    alone.prune(values.astype(float), sweeps=3)
    assert spent > 0 and (state.bounds == alone.bounds).all()


def test_without_requests_nothing_is_done():
    assert tighten.tighten([], SimpleNamespace(), tighten.TighteningBudget(effort=1.0, sweeps=1)) == []
