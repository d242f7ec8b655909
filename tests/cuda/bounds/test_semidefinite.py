"""Semidefinite relaxations on the GPU equal the NumPy reference; runs under Numba's simulator, without CuPy."""

import sys

import numpy as np
import pytest
from support import naive
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.naive_certificates import certified_node_bound, node_of
from support.semidefinite.naive_nodes import NaiveNodes
from support.semidefinite.row_searches import agents as dense_agents
from support.semidefinite.row_searches import tasks_of

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite import bounder as bounder_module
from dmcmc.inference.bounds.semidefinite.agent_buffers import AgentBuffers, entry_bytes
from dmcmc.inference.bounds.semidefinite.bounder import NodeSchedules, SemidefiniteRunner, max_nodes_per_batch
from dmcmc.inference.bounds.semidefinite.cuda import batched_relaxation
from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import (
    bound_on_gpu,
    largest_domains,
    load_large_array_kernels,
    load_relaxation_kernels,
)
from dmcmc.inference.bounds.semidefinite.cuda.node_arrays import DeviceNodeArrays
from dmcmc.inference.bounds.semidefinite.cuda.node_kernels import tables_per_block
from dmcmc.inference.bounds.semidefinite.node_batch import NodeStarts, RowNodeBatch
from dmcmc.inference.bounds.semidefinite.node_certificates import certificates
from dmcmc.inference.bounds.semidefinite.node_steps import BRANCH_SCHEDULE, ROOT_SCHEDULE, NodeShape, NodeWorkspace
from dmcmc.inference.bounds.semidefinite.relaxation import RelaxationRequest, SemidefiniteRelaxation, bound_single_rows
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import gpu_problem

SHARED = ROOT_SCHEDULE._replace(steps=4)
BATCHES = 2  # per call: the simulator is slow
SHORTER = NodeSchedules(ROOT_SCHEDULE._replace(steps=3), BRANCH_SCHEDULE._replace(steps=2))
pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


def make_relaxations():
    """Return the relaxations of two agents, and their exact row values."""
    locals_ = [dense_agent(7, hidden=4, max_domain=4), dense_agent(8, hidden=3, max_domain=5, interface=2)]
    return [SemidefiniteRelaxation(DualState(local, triangles=False)) for local in locals_], [
        naive.row_values(x).ravel() for x in locals_
    ]


def decoded(relaxation):
    return [relaxation.state.layout.scale.decode(int(bound)) for bound in relaxation.state.bounds]


def test_relaxations_on_the_gpu_bound_as_on_the_cpu(short_shared):
    (on_cpu, exact), (on_gpu, _) = make_relaxations(), make_relaxations()
    before = [decoded(relaxation) for relaxation in on_gpu]
    for relaxation in on_cpu:
        relaxation.improve(steps=SHARED.steps)
    assert bound_on_gpu([RelaxationRequest(relaxation, None, None) for relaxation in on_gpu], Backend("cuda", 2))
    for one, other, values, above in zip(on_cpu, on_gpu, exact, before, strict=True):
        assert other.steps == one.steps == SHARED.steps
        assert (np.array(decoded(other)) <= above).all() and (np.array(decoded(other)) >= values).all()
        assert np.allclose(decoded(one), decoded(other), rtol=0.02)
    assert any(decoded(relaxation) != above for relaxation, above in zip(on_gpu, before, strict=True))


def batch_of(arrays):
    """Return a batch of nodes of two agents of different sizes, with up to two variables fixed."""
    tasks = tasks_of(SemidefiniteRelaxation(DualState(local, triangles=False)) for local in dense_agents()[:2])
    buffers = AgentBuffers([task.term for task in tasks], arrays, 2)
    agents = np.array([0, 1, 0, 0])
    allowed = (np.arange(buffers.shape.d) < buffers.sizes[:, :, None])[agents]
    allowed[2:, 0, 1:] = False
    allowed[2:, 1] = np.arange(buffers.shape.d) == 1
    allowed[2, 1, 2] = buffers.sizes[0, 1] > 2  # two values, if there are as many
    return RowNodeBatch(buffers, NodeStarts(agents, np.array([0, 1, 1, 0]), allowed, agents))


@pytest.mark.parametrize("passes", range(1, 7))
def test_each_pass_of_a_step_equals_the_numpy_reference(passes):
    parameters = np.array([BRANCH_SCHEDULE.at(step) for step in range(3)], dtype=np.float32)
    works = []
    for arrays in (NaiveNodes(), DeviceNodeArrays()):
        steps = batch_of(arrays).steps
        for one in steps.passes(parameters)[:passes]:
            one(1)
        works.append([arrays.get(part) for part in steps.workspace])
    after: NodeWorkspace = steps.workspace
    for name, one, other in zip(after._fields, *works, strict=True):
        assert np.allclose(one, other, rtol=2e-3, atol=2e-3), name
    expected = {
        1: [after.products],
        2: [after.value_maxima],
        3: [after.best],
        4: [after.maxima],
        5: [after.gradients],
        6: [after.first_moment, after.second_moment],
    }
    assert all(arrays.get(part).any() for number in range(1, passes + 1) for part in expected[number])


def test_nodes_end_where_the_reference_ends_and_certificates_equal_the_cpus():
    ends = []
    for arrays in (NaiveNodes(), DeviceNodeArrays()):
        batch = batch_of(arrays)
        assert batch.run(BRANCH_SCHEDULE._replace(steps=4)) == 4
        bounds = certificates(batch).bounds
        for b, agent in enumerate(batch.starts.agents.tolist()):
            assert bounds[b] == certified_node_bound(batch.buffers.terms[agent], node_of(batch, b), batch.point(b))
        ends.append(bounds / batch.buffers.units[batch.starts.agents])
    assert np.allclose(*ends, rtol=1e-2)


@pytest.fixture
def short_shared(monkeypatch):
    """Make the shared term's descent short."""
    monkeypatch.setattr(batched_relaxation, "TRIAL_STEPS", SHARED.steps)
    monkeypatch.setattr(batched_relaxation, "ROOT_SCHEDULE", SHARED)


def test_agents_are_set_up_in_several_calls_if_the_threads_are_few(short_shared, monkeypatch):
    overhead = property(lambda relaxation: 0.1 if relaxation.steps else 1.0)
    monkeypatch.setattr(SemidefiniteRelaxation, "overhead_seconds", overhead)
    (first, second), _ = make_relaxations()
    requests = [RelaxationRequest(relaxation, None, None) for relaxation in (first, second)]
    steps = []
    for seconds in (0.9, 1.5, 1.5):
        assert bound_on_gpu(requests, Backend("cuda", 1), seconds)
        steps.append((first.steps, second.steps))
    assert steps == [(0, 0), (SHARED.steps, 0), (SHARED.steps, SHARED.steps)]


@pytest.fixture
def per_row(short_shared, monkeypatch):
    """Shorten all schedules, and allow a few batches of per-row bounds in each call."""
    monkeypatch.setattr(SemidefiniteRelaxation, "overhead_seconds", 0.0)
    monkeypatch.setattr(bounder_module, "MAX_NODES_PER_BATCH", 24)
    monkeypatch.setattr(
        batched_relaxation, "SemidefiniteRunner", lambda *given: SemidefiniteRunner(*given, schedules=SHORTER)
    )
    monkeypatch.setattr(
        batched_relaxation, "bound_single_rows", lambda tasks, seconds: bound_single_rows(tasks, batches=BATCHES)
    )


def test_per_row_bounds_follow_the_shared_term_and_resume(per_row):
    on_gpu, exact = make_relaxations()
    for relaxation in on_gpu:
        relaxation.per_row.expected = True
    requests = [RelaxationRequest(relaxation, None, None) for relaxation in on_gpu]
    assert bound_on_gpu(requests, Backend("cuda", 2))
    before = [decoded(relaxation) for relaxation in on_gpu]
    assert bound_on_gpu(requests, Backend("cuda", 2), seconds=1e6)
    middle, searches = [decoded(relaxation) for relaxation in on_gpu], [one.per_row.search for one in on_gpu]
    runner = searches[0].bounder.runner
    assert searches[1].bounder.runner is runner and [one.bounder.agent for one in searches] == [0, 1]
    assert bound_on_gpu(requests, Backend("cuda", 2), seconds=1e6)
    assert runner.exact
    for relaxation, values, above, between in zip(on_gpu, exact, before, middle, strict=True):
        assert relaxation.steps == SHARED.steps and relaxation.per_row.nodes and not relaxation.per_row.failed
        assert (np.array(decoded(relaxation)) <= between).all() and (np.array(between) <= above).all()
        assert (np.array(decoded(relaxation)) >= values).all()
    assert any(decoded(relaxation) != above for relaxation, above in zip(on_gpu, before, strict=True))


def test_per_row_bounds_start_in_the_call_that_completes_the_shared_steps(per_row, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "BATCHES", 1)
    on_gpu, _ = make_relaxations()
    assert bound_on_gpu([RelaxationRequest(on_gpu[1], None, None)], Backend("cuda"), seconds=1e6)
    assert on_gpu[1].steps == SHARED.steps and on_gpu[1].per_row.nodes and on_gpu[1].work_done > SHARED.steps


def test_agents_that_come_later_have_a_separate_runner(per_row, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "BATCHES", 1)  # so that no search ends
    on_gpu, _ = make_relaxations()
    assert bound_on_gpu([RelaxationRequest(on_gpu[1], None, None)], Backend("cuda"), seconds=1e6)
    requests = [RelaxationRequest(relaxation, None, None) for relaxation in on_gpu]
    assert bound_on_gpu(requests, Backend("cuda"), seconds=1e6)
    first, second = (relaxation.per_row.search for relaxation in on_gpu)
    assert first.bounder.runner is not second.bounder.runner and first.nodes and second.nodes


@pytest.mark.parametrize("error", [RuntimeError("broken"), MemoryError("out of memory")])
def test_a_failure_of_per_row_bounds_ends_the_relaxation_and_keeps_its_bounds(per_row, monkeypatch, error):
    on_gpu, exact = make_relaxations()
    before = decoded(on_gpu[1])

    def fail(*_):
        raise error

    monkeypatch.setattr(batched_relaxation, "bound_single_rows", fail)
    assert bound_on_gpu([RelaxationRequest(on_gpu[1], None, None)], Backend("cuda"), seconds=1e6)
    assert on_gpu[1].per_row.failed and on_gpu[1].exhausted and on_gpu[1].steps == SHARED.steps
    assert (np.array(decoded(on_gpu[1])) <= before).all() and (np.array(decoded(on_gpu[1])) >= exact[1]).all()


def test_tables_too_large_for_a_block_leave_the_work_to_the_cpu(monkeypatch):
    assert [tables_per_block(values) for values in (2, 24, 48, 100, 101)] == [128, 10, 4, 1, 0]
    monkeypatch.setattr(batched_relaxation, "tables_per_block", lambda domain: 0)
    on_gpu, _ = make_relaxations()
    assert not bound_on_gpu([RelaxationRequest(on_gpu[1], None, None)], Backend("cuda"), seconds=1e6)
    assert on_gpu[1].steps == 0


def test_a_past_deadline_and_no_relevant_rows_leave_relaxations_unchanged():
    on_gpu, _ = make_relaxations()
    on_gpu[0].state.backend = Backend(stop=Deadline(until=0.0))
    rows = np.zeros(0, dtype=np.int64)
    requests = [RelaxationRequest(on_gpu[0], None, None), RelaxationRequest(on_gpu[1], rows, None)]
    assert bound_on_gpu(requests, Backend("cuda"))
    assert bound_on_gpu([RelaxationRequest(on_gpu[1], None, None)], Backend("cuda"), seconds=1e-9)
    assert [relaxation.steps for relaxation in on_gpu] == [0, 0]


def test_insufficient_device_memory_leaves_the_work_to_the_cpu(monkeypatch):
    on_gpu, _ = make_relaxations()
    monkeypatch.setattr(Backend, "limit", lambda self: 1000)
    assert not bound_on_gpu([RelaxationRequest(relaxation, None, None) for relaxation in on_gpu], Backend("cuda"))
    assert [relaxation.steps for relaxation in on_gpu] == [0, 0]


def test_all_launched_kernels_are_loaded_in_advance(short_shared, launches):
    _, launched = launches
    on_gpu, _ = make_relaxations()
    for size in largest_domains([on_gpu[0].state.local]):
        load_relaxation_kernels(size, Backend("cuda"))
    loaded = set(launched)
    assert bound_on_gpu([RelaxationRequest(on_gpu[0], None, None)], Backend("cuda"))
    assert {one[0] for one in launched} == {one[0] for one in loaded}


def test_large_arrays_are_loaded_with_the_sizes_of_a_run(launches, monkeypatch):
    _, launched = launches
    monkeypatch.setattr(batched_relaxation, "_LARGE_VARIABLES", 3)
    monkeypatch.setattr(batched_relaxation, "_LARGE_DOMAIN", 4)
    load_large_array_kernels(Backend("cuda"))
    assert not launched  # no array is large
    monkeypatch.setattr(batched_relaxation, "_WIDE_ARRAY_BYTES", 0)
    monkeypatch.setattr(bounder_module, "MAX_NODES_PER_BATCH", 3)
    monkeypatch.setattr(batched_relaxation, "MAX_STORED_FACTORS", 5)
    load_large_array_kernels(Backend("cuda"))
    assert launched


def test_kernels_are_loaded_for_the_array_sizes_of_a_run():
    small, large, free_bytes = NodeShape(1, 6, 4, 12), NodeShape(1, 45, 24, 540), 60 << 30
    assert batched_relaxation._load_sizes(small, free_bytes) == (2, 0)
    cases, points = batched_relaxation._load_sizes(large, free_bytes)
    assert (cases, points) == batched_relaxation._batch_sizes(large, free_bytes)
    assert cases == max_nodes_per_batch(large, free_bytes - points * entry_bytes(large)) > 2
    assert points == int(batched_relaxation.STORED_SHARE * free_bytes) // entry_bytes(large)
