"""A batch of descents makes the same steps on the GPU; runs under Numba's simulator, without CuPy."""

import numpy as np
import pytest
from support import naive
from support.lifts.dense_agents import dense_agent
from support.lifts.naive_batch import NaiveArrays, descents

from dmcmc.inference.bounds.dual.state import DualState
from dmcmc.inference.bounds.semidefinite import progress
from dmcmc.inference.bounds.semidefinite.batch import Batch
from dmcmc.inference.bounds.semidefinite.cuda import together
from dmcmc.inference.bounds.semidefinite.cuda.arrays import DeviceArrays
from dmcmc.inference.bounds.semidefinite.cuda.step_kernels import WORDS
from dmcmc.inference.bounds.semidefinite.cuda.together import lift_on_gpu, load_lifts
from dmcmc.inference.bounds.semidefinite.lift import Lift, LiftRequest
from dmcmc.inference.bounds.semidefinite.own import turn as own_turn
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import gpu_problem

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


@pytest.mark.parametrize("sizes", [((4, 3, 2, 5), (1, 5, 0, 0)), ((9, 9, 2),)])
def test_smooth_maxima_of_all_pairs_are_those_of_the_naive_twin(sizes):
    rng, (agents, h), d = np.random.default_rng(0), np.shape(sizes), max(map(max, sizes))
    n, like = h * d, {"dtype": np.float32}
    given = [rng.standard_normal(s, **like) for s in ((agents, n, n), (agents, n, n), (agents, h, n))]
    given[0][rng.random(given[0].shape) < 0.1] = -1e9
    words = rng.random((2, agents, WORDS), **like) + 2
    given += [np.array(sizes, dtype=np.int32), words]
    twins = []
    for arrays in (NaiveArrays(), DeviceArrays()):
        there = tuple(map(arrays.put, given))
        found = [arrays.put(np.zeros(s, dtype=np.float32)) for s in ((agents, n, n), (agents, h, n), (agents, h, h))]
        arrays.smooth(there, tuple(found), (agents, h, d))(1)
        twins.append(list(map(arrays.get, found)))
    assert all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*twins, strict=True))
    assert (twins[1][0] > 0).any()


@pytest.mark.parametrize("sizes", [((4, 3, 2, 5), (1, 5, 0, 0)), ((9, 9, 2),)])
def test_what_values_reach_in_their_pairs_is_that_of_the_naive_twin(sizes):
    rng, (agents, h), d = np.random.default_rng(0), np.shape(sizes), max(map(max, sizes))
    n, like = h * d, {"dtype": np.float32}
    given = [rng.standard_normal(s, **like) for s in ((agents, n, n), (agents, n, n), (agents, h, n))]
    given[0][rng.random(given[0].shape) < 0.1] = -1e9
    given += [np.array(sizes, dtype=np.int32), rng.random((2, agents, WORDS), **like) + 2]
    twins = []
    for arrays in (NaiveArrays(), DeviceArrays()):
        there, found = tuple(map(arrays.put, given)), arrays.put(np.full((agents, h, n), -7, dtype=np.float32))
        arrays.reach(there, found, (agents, h, d))(1)
        twins.append(arrays.get(found))
    assert np.allclose(*twins, rtol=1e-4, atol=1e-5)
    assert (twins[1] != -7).any() and (twins[1] == -7).any()


def test_steps_are_those_of_the_naive_twin():
    rng, agents = np.random.default_rng(0), 3
    given = [rng.standard_normal((agents, 5, 4), dtype=np.float32) for _ in range(3)]
    given.append(rng.random((agents, 5, 4), dtype=np.float32))
    words = rng.random((2, agents, WORDS), dtype=np.float32) + 1
    twins = []
    for arrays in (NaiveArrays(), DeviceArrays()):
        there = tuple(map(arrays.put, given))
        arrays.adam(there, arrays.put(words), agents)(1)
        twins.append(list(map(arrays.get, there)))
    assert all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*twins, strict=True))
    assert not np.allclose(twins[1][0], given[0])


def test_a_batch_makes_the_step_of_its_naive_twin():
    (one, targets), (other, _) = descents(), descents()
    for own, arrays in ((one, NaiveArrays()), (other, DeviceArrays())):
        Batch(own, targets, arrays).run(lambda made: 1 - made)
    for a, b in zip(one, other, strict=True):
        for x, y in zip(a.means, b.means, strict=True):
            assert np.allclose(x, y, atol=0.01 * np.abs(x).max())  # tensor cores round to 11 bits
    (exact, _) = descents()
    Batch(exact, targets, DeviceArrays(), rough=0).run(lambda made: 1 - made)
    for a, b in zip(one, exact, strict=True):
        assert all(np.allclose(x, y, atol=1e-4 * np.abs(x).max()) for x, y in zip(a.means, b.means, strict=True))


def lifts():
    """Lifts of two agents, and what their rows are worth."""
    locals_ = [dense_agent(7, hidden=4, most=4), dense_agent(8, hidden=3, most=5, interface=2)]
    return [Lift(DualState(local, triangles=False)) for local in locals_], [
        naive.row_values(x).ravel() for x in locals_
    ]


def decoded(lift):
    return [lift.state.layout.scale.decode(int(bound)) for bound in lift.state.bounds]


def test_lifts_on_the_gpu_lower_bounds_as_on_the_cpu_and_go_on_where_they_were():
    (here, worth), (there, _) = lifts(), lifts()
    before = [decoded(lift) for lift in there]
    for steps in (2, 2):
        for lift in here:
            lift._ascends = False
            lift.improve(steps=steps)
        assert lift_on_gpu([LiftRequest(lift, None, None) for lift in there], Backend("cuda", 2), steps=steps)
    for one, other, values, above in zip(here, there, worth, before, strict=True):
        assert other.steps == one.steps == 4
        assert (np.array(decoded(other)) <= above).all() and (np.array(decoded(other)) >= values).all()
        assert np.allclose(decoded(one), decoded(other), rtol=0.02)
    assert any(decoded(lift) != above for lift, above in zip(there, before, strict=True))


@pytest.fixture
def soon_alone(monkeypatch):
    """Rows have squares of their own after two steps, for a few; there is time for all."""
    monkeypatch.setattr(progress, "IN_RUNS", True)
    monkeypatch.setattr(together, "SHARED", 2)
    monkeypatch.setattr(own_turn, "ROW", own_turn.ROW._replace(steps=3))
    monkeypatch.setattr(own_turn, "NODE", own_turn.NODE._replace(steps=2))
    monkeypatch.setattr(own_turn, "LONG", own_turn.LONG._replace(steps=1))
    monkeypatch.setattr(Lift, "least_seconds", 0.0)
    monkeypatch.setattr(Lift, "ending", lambda self, opened, ascends: 0.0)


def test_rows_have_squares_of_their_own_after_the_one_they_share(soon_alone):
    there, worth = lifts()
    assert lift_on_gpu([LiftRequest(lift, None, None) for lift in there], Backend("cuda", 2), steps=2)
    before = [decoded(lift) for lift in there]
    assert lift_on_gpu([LiftRequest(lift, None, None) for lift in there], Backend("cuda", 2), seconds=1e6)
    for lift, values, above in zip(there, worth, before, strict=True):
        assert lift.steps == 2 and lift.own.exact and not lift.own.failed and lift.exhausted
        assert lift.own.done == lift.own.split == set(range(len(values)))
        assert (np.array(decoded(lift)) <= above).all() and (np.array(decoded(lift)) >= values).all()
    assert any(decoded(lift) != above for lift, above in zip(there, before, strict=True))


def test_a_turn_goes_on_alone_after_its_common_steps(soon_alone):
    there, _ = lifts()
    assert lift_on_gpu([LiftRequest(there[1], None, None)], Backend("cuda"), seconds=1e6)
    assert there[1].steps == 2 and there[1].own.done


@pytest.mark.parametrize("error", [RuntimeError("broken"), MemoryError("out of memory")])
def test_where_squares_of_rows_own_fail_they_are_shared_as_before(soon_alone, monkeypatch, error):
    there, _ = lifts()

    def fail(*_):
        raise error

    monkeypatch.setattr(together.OwnTurn, "run", fail)
    request = LiftRequest(there[1], None, None)
    assert lift_on_gpu([request], Backend("cuda"), seconds=1e6)
    assert there[1].own.failed and not there[1].exhausted and there[1].steps == 2
    monkeypatch.setattr(together, "_until", lambda end, stop: lambda made: min(3, 5 - made))
    assert lift_on_gpu([request], Backend("cuda"), seconds=1e6)
    assert there[1].steps == 7


def test_time_that_is_over_and_rows_that_do_not_matter_leave_lifts_as_they_are():
    there, _ = lifts()
    there[0].state.backend = Backend(stop=Stop(until=0.0))
    rows = np.zeros(0, dtype=np.int64)
    requests = [LiftRequest(there[0], None, None), LiftRequest(there[1], rows, None)]
    assert lift_on_gpu(requests, Backend("cuda"), steps=3)
    assert lift_on_gpu([LiftRequest(there[1], None, None)], Backend("cuda"), seconds=1e-9)
    assert [lift.steps for lift in there] == [0, 0]


def test_what_a_device_has_no_room_for_is_left_to_the_cpu(monkeypatch):
    there, _ = lifts()
    monkeypatch.setattr(Backend, "limit", lambda self: 1000)
    assert not lift_on_gpu([LiftRequest(lift, None, None) for lift in there], Backend("cuda"), steps=3)
    assert [lift.steps for lift in there] == [0, 0]


def test_seconds_end_steps(monkeypatch):
    there, _ = lifts()
    monkeypatch.setattr(Lift, "least_seconds", 0.0)
    monkeypatch.setattr(Lift, "ending", lambda self, opened, ascends: 0.0)
    assert lift_on_gpu([LiftRequest(there[1], None, None)], Backend("cuda"), seconds=1.0)
    assert there[1].steps >= 1


def test_what_lifts_launch_is_loaded_before(launches):
    _, launched = launches
    load_lifts([dense_agent(7, hidden=3, most=4)])
    ready = set(launched)
    there, _ = lifts()
    assert lift_on_gpu([LiftRequest(there[0], None, None)], Backend("cuda"), steps=1)
    assert {one[0] for one in launched} == {one[0] for one in ready}
