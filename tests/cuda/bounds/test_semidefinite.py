"""A batch of descents makes the same steps on the GPU; runs under Numba's simulator, without CuPy."""

import numpy as np
import pytest
from support import naive
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.naive_batch import NaiveArrays, descents
from support.semidefinite.naive_nodes import NaiveCases

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite.cuda import batched_relaxation
from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import lift_on_gpu, load_lifts
from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import DeviceArrays
from dmcmc.inference.bounds.semidefinite.cuda.node_arrays import DeviceCases
from dmcmc.inference.bounds.semidefinite.cuda.node_kernels import pairs_together
from dmcmc.inference.bounds.semidefinite.cuda.step_kernels import WORDS
from dmcmc.inference.bounds.semidefinite.descent_batch import Batch
from dmcmc.inference.bounds.semidefinite.per_row import bound_rows as own_turn
from dmcmc.inference.bounds.semidefinite.per_row import node_queue
from dmcmc.inference.bounds.semidefinite.per_row.bound_rows import OwnTurn
from dmcmc.inference.bounds.semidefinite.per_row.certificates import certificates
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import Ground, slot_bytes
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import CaseBatch, Start
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import CaseShape
from dmcmc.inference.bounds.semidefinite.per_row.nodes import NODE, Case, busiest_first, certified_alone
from dmcmc.inference.bounds.semidefinite.relaxation import Lift, LiftRequest
from dmcmc.inference.bounds.semidefinite.row_tree import Part
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import gpu_problem

BATCHES = 2  # of a turn: the simulator is slow
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


def batch_of(arrays):
    """Cases of two agents of unlike sizes, with no, one and two variables fixed."""
    found, _ = descents()
    ground, (u, v) = Ground(found[:2], arrays, 2), busiest_first(found[0].network)[:2]
    cases = [(0, Case(0)), (1, Case(1)), (0, Case(1, ((u, 0),), Part(v, (1,)))), (0, Case(0, ((v, 1), (u, 0))))]
    return CaseBatch(ground, [Start(agent, case, agent) for agent, case in cases])


@pytest.mark.parametrize("passes", range(1, 7))
def test_each_pass_of_cases_steps_is_that_of_the_naive_twin(passes):
    words = np.array([NODE.at(step) for step in range(3)], dtype=np.float32)
    works = []
    for arrays in (NaiveCases(), DeviceCases()):
        steps = batch_of(arrays).steps
        for one in steps.passes(words)[:passes]:
            one(1)
        works.append([arrays.get(part) for part in steps.work])
    names = ("points", "halves", "products", "reached", "shifts", "weights", "maxima", "best", "slopes")
    for name, one, other in zip(steps.work._fields, *works, strict=True):
        assert np.allclose(one, other, rtol=2e-3, atol=2e-3), name
    changed = {name for name, part in zip(steps.work._fields, works[1], strict=True) if part.any()}
    expected = {1: {"products"}, 2: {"reached"}, 3: {"best"}, 4: {"maxima"}, 5: {"slopes"}, 6: {"means", "spreads"}}
    assert changed >= set().union(*(expected[number] for number in range(1, passes + 1))) and set(names) & changed


def test_cases_end_where_their_naive_twins_do_and_certificates_are_those_of_the_cpu():
    ends = []
    for arrays in (NaiveCases(), DeviceCases()):
        batch = batch_of(arrays)
        assert batch.run(NODE._replace(steps=4), lambda made: 2) == 4
        bounds = certificates(batch)
        for b, (agent, case, *_) in enumerate(batch.starts):
            assert bounds[b] == certified_alone(batch.ground.descents[agent], case, batch.point(b))
        ends.append(np.array(bounds) / [batch.ground.units[start.agent] for start in batch.starts])
    assert np.allclose(*ends, rtol=1e-2)


@pytest.fixture
def soon_alone(monkeypatch):
    """Rows have squares of their own after two steps, and those few steps; there is time for some of them."""
    monkeypatch.setattr(batched_relaxation, "SHARED", 2)
    monkeypatch.setattr(node_queue, "ROW", node_queue.ROW._replace(steps=3))
    monkeypatch.setattr(node_queue, "NODE", node_queue.NODE._replace(steps=2))
    monkeypatch.setattr(node_queue, "_FIRST", 1)
    monkeypatch.setattr(Lift, "least_seconds", 0.0)
    monkeypatch.setattr(Lift, "ending", lambda self, opened, ascends: 0.0)
    made, carry_out = [], OwnTurn._carry_out

    def counted(self, items):
        made.append(self)
        self._left = self.agenda._left = lambda: 0.0 if made.count(self) >= BATCHES else 1e6
        carry_out(self, items)

    monkeypatch.setattr(OwnTurn, "_carry_out", counted)


def test_rows_have_squares_of_their_own_after_the_one_they_share_and_go_on_where_they_were(soon_alone):
    there, worth = lifts()
    for lift in there:
        lift.own.expected = True
    requests = [LiftRequest(lift, None, None) for lift in there]
    assert lift_on_gpu(requests, Backend("cuda", 2), steps=2)
    before = [decoded(lift) for lift in there]
    assert lift_on_gpu(requests, Backend("cuda", 2), seconds=1e6)
    ground, middle = there[0].own.ground, [decoded(lift) for lift in there]
    assert ground is not None and there[1].own.ground is ground and [lift.own.agent for lift in there] == [0, 1]
    assert lift_on_gpu(requests, Backend("cuda", 2), seconds=1e6)
    for lift, values, above, between in zip(there, worth, before, middle, strict=True):
        assert lift.steps == 2 and lift.own.exact and not lift.own.failed
        assert (np.array(decoded(lift)) <= between).all() and (np.array(between) <= above).all()
        assert (np.array(decoded(lift)) >= values).all()
    assert there[0].own.ground in (ground, None) and any(
        decoded(lift) != above for lift, above in zip(there, before, strict=True)
    )


def test_a_turn_goes_on_alone_after_its_common_steps(soon_alone):
    there, _ = lifts()
    assert lift_on_gpu([LiftRequest(there[1], None, None)], Backend("cuda"), seconds=1e6)
    assert there[1].steps == 2 and there[1].own.trees and there[1].made > 2


def test_agents_that_come_later_have_a_ground_of_their_own(soon_alone):
    there, _ = lifts()
    assert lift_on_gpu([LiftRequest(there[1], None, None)], Backend("cuda"), seconds=1e6)
    assert lift_on_gpu([LiftRequest(lift, None, None) for lift in there], Backend("cuda"), seconds=1e6)
    assert there[0].own.ground is not there[1].own.ground and there[0].own.trees


@pytest.mark.parametrize("error", [RuntimeError("broken"), MemoryError("out of memory")])
def test_where_squares_of_rows_own_fail_they_are_shared_as_before(soon_alone, monkeypatch, error):
    there, _ = lifts()

    def fail(*_):
        raise error

    monkeypatch.setattr(batched_relaxation.OwnTurn, "run", fail)
    request = LiftRequest(there[1], None, None)
    assert lift_on_gpu([request], Backend("cuda"), seconds=1e6)
    assert there[1].own.failed and not there[1].exhausted and there[1].steps == 2
    monkeypatch.setattr(batched_relaxation, "_until", lambda end, stop: lambda made: min(3, 5 - made))
    assert lift_on_gpu([request], Backend("cuda"), seconds=1e6)
    assert there[1].steps == 7


def test_where_tables_are_too_large_for_a_block_squares_are_shared_as_before(soon_alone, monkeypatch):
    assert [pairs_together(values) for values in (2, 24, 48, 100, 101)] == [128, 10, 4, 1, 0]
    monkeypatch.setattr(batched_relaxation, "pairs_together", lambda domain: 0)
    there, worth = lifts()
    request = LiftRequest(there[1], None, None)
    assert lift_on_gpu([request], Backend("cuda"), seconds=1e6)
    assert there[1].own.failed and not there[1].own.trees and not there[1].exhausted and there[1].steps == 2
    monkeypatch.setattr(batched_relaxation, "_until", lambda end, stop: lambda made: min(3, 5 - made))
    assert lift_on_gpu([request], Backend("cuda"), seconds=1e6)
    assert there[1].steps == 7 and (np.array(decoded(there[1])) >= worth[1]).all()


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
    monkeypatch.setattr(node_queue, "_FIRST", 1)
    monkeypatch.setattr(Lift, "least_seconds", 0.0)
    monkeypatch.setattr(Lift, "ending", lambda self, opened, ascends: 0.0)
    assert lift_on_gpu([LiftRequest(there[1], None, None)], Backend("cuda"), seconds=1.0)
    assert there[1].steps >= 1


@pytest.mark.parametrize("wide", [1 << 31, 0])
def test_what_lifts_launch_is_loaded_before(launches, monkeypatch, wide):
    _, launched = launches
    monkeypatch.setattr(batched_relaxation, "_WIDE", wide)
    monkeypatch.setattr(own_turn, "_MOST", 3)
    monkeypatch.setattr(batched_relaxation, "_MOST_POINTS", 5)
    load_lifts([dense_agent(7, hidden=3, most=4)], Backend("cuda"))
    ready = set(launched)
    there, _ = lifts()
    assert lift_on_gpu([LiftRequest(there[0], None, None)], Backend("cuda"), steps=1)
    assert {one[0] for one in launched} == {one[0] for one in ready}


def test_squares_are_loaded_as_large_as_a_run_has_them():
    small, large, room = CaseShape(1, 6, 4, 12), CaseShape(1, 45, 24, 540), 60 << 30
    assert batched_relaxation._loaded_with(small, room) == (2, 0)
    cases, points = batched_relaxation._loaded_with(large, room)
    assert cases == own_turn.cases_at_once(large, room) > 2
    assert points == int(batched_relaxation._POINTS * room) // slot_bytes(large)
