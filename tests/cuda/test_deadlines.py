"""Work on a GPU respects its deadline: launches are split, and the deadline is checked between them.

Runs under Numba's simulator.
"""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from support.clock import ExpiresAfterChecks

import dmcmc.inference.elimination.cuda.waves as gpu_waves
from dmcmc import Factor
from dmcmc.compilation import gpu_components
from dmcmc.config.settings import Settings
from dmcmc.inference import tuning
from dmcmc.inference.bounds.contract.protocol import BoundRequest
from dmcmc.inference.bounds.dual.cuda.batched_ascent import improve_on_gpu
from dmcmc.inference.bounds.dual.cuda.device_ascent import place_on_device
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.cuda.eliminate import divide_work, eliminate_hybrid
from dmcmc.inference.elimination.cuda.streaming import Streaming, eliminate_streamed
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.minibuckets.cuda.moment_matching import eliminate_matched_hybrid
from dmcmc.inference.minibuckets.moment_matching import eliminate_matched
from dmcmc.inference.minibuckets.plan import plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import Device, gpu_problem
from dmcmc.inference.runtime.errors import OutOfTime

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

NUMBERS = Arithmetic(np.dtype(np.int32), -(2**29), 1000)
FAR = 1e6


def wide(scopes=((0, 1), (0, 2), (0, 1, 2))):
    """Return tables over one variable of three values whose message has several tiles."""
    domains, rng = np.array([3, 70, 6]), np.random.default_rng(1)
    tables = [rng.integers(-9, 9, domains[list(s)], dtype=np.int32) for s in scopes]
    return flatten(scopes, tables, NUMBERS.dtype), domains, list(scopes)


def test_a_large_launch_is_split_and_the_tables_are_the_same(monkeypatch):
    flat, domains, scopes = wide()
    plan = plan_elimination(scopes, domains, [0], [1, 2])
    whole = eliminate(flat, plan, NUMBERS)
    counts = []
    for cells in (1 << 36, 500):
        monkeypatch.setattr(tuning, "LAUNCH_CELLS", cells)
        plan = plan_elimination(scopes, domains, [0], [1, 2])  # how its launches are split is cached with a plan
        hybrid = divide_work(plan, 1)
        h = hybrid.plan.program
        waves = gpu_waves.describe_waves(h, hybrid.first, hybrid.last, hybrid.device_begin, NUMBERS.dtype, 0)
        joins = waves.launches[waves.launches[:, 0] >= 0]
        counts.append((len(joins), int(joins[:, 2].sum())))
        done = eliminate_hybrid(flat, hybrid, NUMBERS, stop=ExpiresAfterChecks(FAR))
        np.testing.assert_array_equal(done.table(hybrid.plan.output(0)).values, whole.table(plan.output(0)).values)
    assert counts[0][0] == 1 < counts[1][0] and counts[0][1] == counts[1][1]
    for few in (0, 1, 2):
        with pytest.raises(OutOfTime):
            eliminate_hybrid(flat, divide_work(plan, 1), NUMBERS, stop=ExpiresAfterChecks(few))


def test_launches_of_max_marginals_are_split_too(monkeypatch):
    flat, domains, scopes = wide([(0, 1), (0, 2), (0, 1, 2), (0,)])
    plan = plan_mini_buckets(scopes, domains, [0], [1, 2], 2, True)
    split = plan_mini_buckets([(0, 1), (0, 2)], domains, [0], [1, 2], 1, True)
    pair = flat.table_range(0, 2)
    for tables, program in ((flat, plan), (pair, split)):
        on_cpu = eliminate_matched(tables, program, NUMBERS)
        for cells in (1 << 36, 100):
            monkeypatch.setattr(tuning, "LAUNCH_CELLS", cells)
            hybrid = divide_work(program, 1)
            on_gpu = eliminate_matched_hybrid(tables, program, hybrid, NUMBERS, stop=ExpiresAfterChecks(FAR))
            assert (on_cpu.peak_magnitude, on_cpu.shifts) == (on_gpu.peak_magnitude, on_gpu.shifts)
            total = sum(t.values.sum() for t in on_cpu.elimination.remaining())
            assert total == sum(t.values.sum() for t in on_gpu.elimination.remaining())
        with pytest.raises(OutOfTime):
            eliminate_matched_hybrid(tables, program, divide_work(program, 1), NUMBERS, stop=ExpiresAfterChecks(1))


@pytest.mark.parametrize("threads", [1, 2])
def test_streams_check_the_deadline_between_chunks(threads, monkeypatch):
    flat, domains, scopes = wide()
    plan = plan_elimination(scopes, domains, [0], [1, 2])
    monkeypatch.setattr(tuning, "MAX_CHUNK_ENTRIES", 200)
    limits, whole = Streaming(1 << 13, 10), eliminate(flat, plan, NUMBERS)
    stop = ExpiresAfterChecks(FAR)
    done = eliminate_streamed(flat, plan, NUMBERS, threads, limits, device=Device(1 << 13), stop=stop)
    assert np.array_equal(done.arena[: plan.entries], whole.arena[: plan.entries])
    for few in (1, 2, 4):
        stop = ExpiresAfterChecks(few)
        with pytest.raises(OutOfTime):
            eliminate_streamed(flat, plan, NUMBERS, threads, limits, device=Device(1 << 13), stop=stop)
    late = Deadline(time.perf_counter() - 1)  # too little time even to page-lock the memory
    with pytest.raises(OutOfTime):
        eliminate_streamed(flat, plan, NUMBERS, threads, limits, device=Device(1 << 13), stop=late)


def test_rows_that_an_interrupted_bound_did_not_reach_keep_their_bounds():
    rng = np.random.default_rng(2)
    scopes = [(0, 1), (1, 2), (2, 0), (2, 3)]
    factors = tuple(Factor.of(s, rng.integers(0, 99, (4, 4))) for s in scopes)
    local = LocalProblem(0, (3,), (0, 1, 2), factors, np.full(4, 4))
    limits = np.zeros(4)
    for checks, reached in ((0, 1), (FAR, 4)):
        state = DualState(local, triangles=False)
        before = state.bounds.copy()
        place_on_device([state])[0].group.blocks = 1  # one row per launch
        backend = Backend(device="cuda", stop=ExpiresAfterChecks(checks))
        assert improve_on_gpu([BoundRequest(state, None, limits)], backend, None, 3)
        assert (state.bounds <= before).all() and (state.bounds < before).sum() <= reached


@pytest.mark.parametrize(
    ("device", "price", "times"), [("cuda", 1.0, 1), ("cuda", None, 0), ("auto", 1.0, 0), ("auto there", 1.0, 1)]
)
def test_joins_are_loaded_where_an_agent_may_be_eliminated_later(device, price, times, monkeypatch):
    """An agent that is sampled at first may be eliminated exactly later in the run."""
    choice = SimpleNamespace(method="gibbs", device="cpu", bound="none", listed=1)
    monkeypatch.setattr(gpu_components, "may_split_buckets", lambda setup: False)
    monkeypatch.setattr(gpu_components, "largest_join", lambda setup: 1.0)
    monkeypatch.setattr(gpu_components, "is_gpu_in_use", lambda: False)
    setup = SimpleNamespace(
        timed=False, possible_choices=lambda agents: [(agent, choice) for agent in agents],
        may_filter=lambda agent: False,
        exact_seconds=lambda agent: price,
        divided=SimpleNamespace(
            division=SimpleNamespace(locals=[None]), config=Settings(),
            arithmetic=SimpleNamespace(dtype=np.dtype(np.int32)),
        ),
        limits=SimpleNamespace(gpu="there" in device),
        backend=SimpleNamespace(device=device[:4], threads=1, worth_gpu=lambda seconds: False),
    )  # fmt: skip
    assert len(gpu_components.elimination_needs(setup, [0]).joins) == times


@pytest.mark.parametrize("there", [False, True])
def test_a_gpu_that_is_not_open_when_the_clock_starts_stays_closed(there, monkeypatch):
    monkeypatch.setattr(gpu_components, "is_gpu_in_use", lambda: there)
    monkeypatch.setattr(gpu_components, "replace", lambda one, **changes: SimpleNamespace(**(vars(one) | changes)))
    for device in ("auto", "cpu", "cuda"):
        setup = SimpleNamespace(backend=SimpleNamespace(device=device))
        expected = "cpu" if device == "auto" and not there else device
        assert gpu_components.without_closed_gpu(setup).backend.device == expected
