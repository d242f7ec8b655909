"""Eliminations that use a GPU give the tables of the CPU bit by bit; runs under Numba's simulator."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda
from support.encoded_problems import chosen_values, problems, same_tables

from dmcmc.inference.elimination.cuda import descriptor_kernels, waves
from dmcmc.inference.elimination.cuda.eliminate import divide_work, eliminate_hybrid
from dmcmc.inference.elimination.cuda.join_kernels import (
    ANY,
    BOTH_TABLES,
    HEADER,
    HIGH_AXES,
    HIGH_TABLES,
    LOW_AXES,
    STRIDES,
    X_STRIDE,
)
from dmcmc.inference.elimination.cuda.streaming import (
    Streaming,
    divide_into_chunks,
    eliminate_streamed,
    stream_bucket,
)
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.elimination.semirings import LOG_SUM_EXP, MAX_PLUS
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import CostModel
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.runtime.device import Device, gpu_problem, is_out_of_memory

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

FEW = settings(max_examples=8, derandomize=True)


@given(problems(), st.integers(1, 60))
@FEW
def test_dividing_an_elimination_does_not_change_its_tables(problem, threshold):
    flat, plan, arithmetic = problem
    alone = eliminate(flat, plan, arithmetic)
    shared = eliminate_hybrid(flat, divide_work(plan, threshold), arithmetic)
    assert same_tables(alone, shared)
    assert chosen_values(alone) == chosen_values(shared)


@given(problems(scale=2**40), st.integers(1, 20))
@FEW
def test_64_bit_tables_are_the_same_too(problem, threshold):
    flat, plan, arithmetic = problem
    shared = eliminate_hybrid(flat, divide_work(plan, threshold), arithmetic)
    assert same_tables(eliminate(flat, plan, arithmetic), shared)


@given(problems(whole=False), st.integers(1, 20), st.sampled_from([MAX_PLUS, LOG_SUM_EXP]))
@FEW
def test_floats_agree_to_rounding_in_both_semirings(problem, threshold, semiring):
    flat, plan, arithmetic = problem
    alone = eliminate(flat, plan, arithmetic, semiring=semiring)
    shared = eliminate_hybrid(flat, divide_work(plan, threshold), arithmetic, semiring=semiring)
    assert same_tables(alone, shared, 1e-9)


@given(problems(), st.integers(1, 60))
@FEW
def test_dividing_the_work_preserves_the_plan(problem, threshold):
    _, plan, _ = problem
    hybrid = divide_work(plan, threshold)
    shared = hybrid.plan.program
    made = set(range(plan.tables - plan.buckets))
    for b in range(plan.buckets):  # the inputs of every bucket are made before it
        assert set(hybrid.plan.inputs(b)) <= made
        made.add(hybrid.plan.output(b))
    assert sorted(shared.variable.tolist()) == sorted(plan.program.variable.tolist())
    assert sorted(shared.cells.tolist()) == sorted(plan.program.cells.tolist())
    ends = sorted(zip(shared.at.tolist(), hybrid.plan.sizes.tolist(), strict=True))
    assert all(a + size <= b for (a, size), (b, _) in pairwise(ends))  # no two tables overlap
    large = [b for b in range(plan.buckets) if shared.cells[b] >= threshold]
    assert all(hybrid.first <= b < hybrid.last for b in large)


def test_many_tables_that_vary_with_both_sides():
    domains = np.array([3, 4, 5, 40])
    rng = np.random.default_rng(0)
    scopes = [(0, 1, 3), (0, 2, 3), (0, 1, 2, 3), (1, 3), (2, 3), (0, 3), (0, 1), (0,)]
    tables = [rng.integers(-9, 9, domains[list(s)], dtype=np.int32) for s in scopes]
    arithmetic = Arithmetic(np.dtype(np.int32), -(2**29), 1000)
    flat = flatten(scopes, tables, arithmetic.dtype)
    plan = plan_elimination(scopes, domains, [0], [1, 2, 3])
    shared = eliminate_hybrid(flat, divide_work(plan, 1), arithmetic)
    assert same_tables(eliminate(flat, plan, arithmetic), shared)


@pytest.mark.parametrize("scale", [1, 2**20])
def test_tables_with_distant_entries_use_64_bit_offsets(monkeypatch, scale):
    """The kernel for any number of tables joins them; the test forces its use, since no test table is that large."""

    def last_axis(program, first, last):
        program.row_axes[first:last] = 1

    def as_if_far(*arguments):
        tables, launches, *rest = descriptor_kernels.wave_tables(*arguments)
        taken.update(launches[:, 0].tolist())
        launches[np.isin(launches[:, 0], (1, 2)), 0] = ANY
        return tables, launches, *rest

    monkeypatch.setattr(waves, "choose_lows", last_axis)
    monkeypatch.setattr(waves, "wave_tables", as_if_far)
    rng, domains, taken = np.random.default_rng(0), np.array([3, 2, 7, 40]), set[int]()
    dtype = np.dtype(np.int32 if scale == 1 else np.int64)
    arithmetic = Arithmetic(dtype, -(2**29) * scale, 1000 * scale)
    for many in (1, 2):
        scopes = [(0, 1, 2, 3), (0, 1, 3), (0, 3), (0, 1), (0,)][2 - many :]
        tables = [rng.integers(-9 * scale, 9 * scale, domains[list(s)], dtype=dtype) for s in scopes]
        flat, plan = flatten(scopes, tables, dtype), plan_elimination(scopes, domains, [0], [1, 2, 3])
        shared = eliminate_hybrid(flat, divide_work(plan, 1), arithmetic)
        assert same_tables(eliminate(flat, plan, arithmetic), shared)
    assert {1, 2} <= taken


@pytest.mark.parametrize(
    ("both", "stride", "number"), [(1, 2**30, 1), (1, 2**31, ANY), (2, 2**30, 2), (2, 2**31, ANY), (3, 2**30, ANY)]
)
def test_strides_decide_whether_32_bit_distances_suffice(both, stride, number):
    """Two axes of three and two values; ``stride`` separates the last table's entries along the first axis."""
    axes, record = [3, 2], STRIDES + 2
    meta = np.zeros(HEADER + 2 + (1 + both) * record, dtype=np.int64)
    meta[[HIGH_AXES, LOW_AXES, HIGH_TABLES, BOTH_TABLES]] = 1, 1, 1, both
    meta[HEADER : HEADER + 2] = axes
    for table in range(1 + both):
        at = HEADER + 2 + table * record
        meta[at + STRIDES : at + record] = (2**40, 0) if table == 0 else (stride if table == both else 2, 1)
        meta[at + X_STRIDE] = 2**50  # a value of x moves the offset
    assert descriptor_kernels._kernel_number(meta, 0, True) == number


def test_leases_leave_memory_for_named_buffers(monkeypatch):
    device, free = Device(), [10_000]
    context = SimpleNamespace(get_memory_info=lambda: (free[0], 16_000))
    monkeypatch.setattr(cuda, "current_context", lambda: context)
    number, owner = np.dtype(np.int64), np.zeros(1)
    first = device.lease(1_000, number, owner)
    first.copy_to_device(np.full(1_000, 7))
    free[0] -= 8_000
    with pytest.raises(MemoryError) as refused:
        device.lease(200, number, owner)  # 1,600 of 2,000 bytes; 1,000 are reserved
    assert is_out_of_memory(refused.value)
    del owner, refused  # the array of the first lease is free now
    again = device.lease(200, number, np.zeros(1))
    assert again.size == 200 and (again.copy_to_host() == 7).all()


@given(problems(), st.integers(40, 600), st.sampled_from([1, 2]))
@FEW
def test_chunks_give_the_same_tables(problem, limit, threads):
    flat, plan, arithmetic = problem
    device = Device(limit * 4)
    alone = eliminate(flat, plan, arithmetic)
    try:
        for b in range(plan.buckets):
            if plan.program.cells[b] >= 20:
                divide_into_chunks(plan, b, limit)
    except Exception as error:
        assert "device memory" in str(error)
        return
    streamed = eliminate_streamed(flat, plan, arithmetic, threads, Streaming(limit * 4, 20), device=device)
    assert np.array_equal(streamed.arena[: plan.entries], alone.arena[: plan.entries])


@given(problems(), st.integers(40, 400))
@FEW
def test_chunks_cover_a_message_once_and_fit(problem, limit):
    _, plan, _ = problem
    for b in range(plan.buckets):
        separator = plan.scope(plan.output(b))
        if not separator:
            continue
        try:
            chunking = divide_into_chunks(plan, b, limit)
        except Exception as error:
            assert "device memory" in str(error)
            continue
        assert chunking.resident + 2 * chunking.entries <= limit
        sizes = plan.shape(plan.output(b))
        covered = [(*head, i) for head, first, end in chunking.chunks for i in range(first, end)]
        assert covered == list(np.ndindex(*sizes[: chunking.fixed + 1]))


def test_the_backend_uses_the_gpu_for_large_work_only(monkeypatch):

    domains = np.array([3, 4, 5])
    arithmetic = Arithmetic(np.dtype(np.int32), -(2**29), 1000)
    scopes = [(0, 1), (0, 2)]
    tables = [np.arange(domains[a] * domains[b], dtype=np.int32).reshape(domains[a], domains[b]) for a, b in scopes]
    flat = flatten(scopes, tables, arithmetic.dtype)
    plan = plan_elimination(scopes, domains, [0, 1, 2])
    backend = Backend.of("cuda", 1)
    assert type(backend.eliminate(flat, plan, arithmetic)).__name__ == "Elimination"
    monkeypatch.setattr("dmcmc.inference.tuning.GPU_THRESHOLDS", np.array([10]))
    monkeypatch.setattr("dmcmc.inference.execution.cost_model.COSTS", CostModel(seconds_per_cell=1.0))
    done = backend.eliminate(flat, plan, arithmetic)
    assert type(done).__name__ == "GpuElimination"
    assert done.total() == eliminate(flat, plan, arithmetic).total()


def test_streamed_eliminations_do_not_share_their_tables():
    domains = np.array([3, 4, 5])
    arithmetic = Arithmetic(np.dtype(np.int32), -(2**29), 1000)
    rng = np.random.default_rng(1)
    scopes = [(0, 1), (1, 2), (0, 2)]
    plan = plan_elimination(scopes, domains, [0, 1, 2])
    done, alone = [], []
    for _ in range(2):
        tables = [rng.integers(-99, 99, domains[list(s)], dtype=np.int32) for s in scopes]
        flat = flatten(scopes, tables, arithmetic.dtype)
        done.append(eliminate_streamed(flat, plan, arithmetic, 1, Streaming(4000, 10), device=Device(4000)))
        alone.append(eliminate(flat, plan, arithmetic))
    assert [chosen_values(d) for d in done] == [chosen_values(a) for a in alone]
    assert not np.shares_memory(done[0].arena, done[1].arena)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_bucket_in_chunks_is_the_same_with_and_without_overlap(threads):
    rng, domains = np.random.default_rng(3), np.array([3, 7, 6])
    arithmetic = Arithmetic(np.dtype(np.int32), -(2**29), 1000)
    scopes = [(0, 1, 2), (0, 2)]
    tables = [rng.integers(-99, 99, domains[list(s)], dtype=np.int32) for s in scopes]
    flat, plan = flatten(scopes, tables, arithmetic.dtype), plan_elimination(scopes, domains, [0], [1, 2])
    for overlaps in (True, False):
        limits = Streaming(400, 10, shares=threads > 1, overlaps=overlaps)
        done = eliminate_streamed(flat, plan, arithmetic, threads, limits, device=Device(400))
        assert same_tables(eliminate(flat, plan, arithmetic), done)
        work = stream_bucket(done, 0, MAX_PLUS, threads, Device(400), limits)
        assert work.gpu_chunks + work.cpu_chunks == len(divide_into_chunks(plan, 0, 100).chunks) > 1
        assert set(work.seconds) == (set() if overlaps or not work.gpu_chunks else {"upload", "join", "download"})


@pytest.mark.parametrize("moment", ["a copy", "a launch"])
def test_a_failed_stream_stops_all_its_work(monkeypatch, moment):
    import time

    import dmcmc.inference.elimination.cuda.streaming as stream

    domains = np.array([3, 40, 5])
    arithmetic = Arithmetic(np.dtype(np.int32), -(2**29), 1000)
    scopes = [(0, 1), (0, 2)]
    tables = [np.ones(domains[list(s)], dtype=np.int32) for s in scopes]
    flat, plan = flatten(scopes, tables, arithmetic.dtype), plan_elimination(scopes, domains, [0], [1, 2])
    device, rows, real, chunks = Device(1000), [], stream.run_rows, []

    def slow(*work):
        rows.append(len(rows))
        time.sleep(0.05)
        real(*work)

    def broken(*launch):
        chunks.append(launch)
        if moment == "a launch":
            while not rows:
                time.sleep(0.01)
        raise RuntimeError("broken")

    monkeypatch.setattr(stream, "run_rows", slow)
    with monkeypatch.context() as patch:
        patch.setattr(stream, "run_waves", broken)
        with pytest.raises(RuntimeError, match="broken"):
            eliminate_streamed(flat, plan, arithmetic, 2, Streaming(160, 10), device=device)
    after = len(rows)
    time.sleep(0.2)
    assert len(rows) == after and len(chunks) == 1
    done = eliminate_streamed(flat, plan, arithmetic, 2, Streaming(160, 10), device=device)
    assert same_tables(eliminate(flat, plan, arithmetic), done)
