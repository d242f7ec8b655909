"""A backend gives the same tables however plans are grouped, and uses a GPU only if that is estimated to be faster."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.encoded_problems import batches

from dmcmc.inference import tuning
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.elimination.semirings import MAX_PLUS, MIN_PLUS
from dmcmc.inference.execution import backend as backends
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.choose_processor import passes_on, row_passes_on, rows_on_gpu
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime

SECONDS = st.floats(0, 100)


@settings(max_examples=60)
@given(batches(), st.sampled_from([0, 1 << 19]), st.sampled_from([MAX_PLUS, MIN_PLUS]), st.integers(1, 3))
def test_plans_that_run_together_make_the_tables_of_single_plans(batch, small, semiring, threads):
    plans, flat, arithmetic = batch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "MIN_PARALLEL_CELLS", small)
        groups = list(Backend(threads=threads).eliminate_all(flat, plans, arithmetic, semiring))
    assert len(groups) == (1 if small else len(plans))
    found, start = [done for group in groups for done in group], 0
    for plan, done in zip(plans, found, strict=True):
        given_tables = plan.tables - plan.buckets
        alone = eliminate(flat.table_range(start, start + given_tables), plan, arithmetic, semiring=semiring)
        start += given_tables
        assert done.plan is plan and len(done.remaining()) == len(alone.remaining())
        for one, other in zip(done.remaining(), alone.remaining(), strict=True):
            assert one.scope == other.scope and np.array_equal(one.values, other.values)


@settings(max_examples=20)
@given(batches())
def test_an_expired_deadline_stops_all_plans(batch):
    plans, flat, arithmetic = batch
    with pytest.raises(OutOfTime):
        list(Backend(stop=Deadline(0.0)).eliminate_all(flat, plans, arithmetic))


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that there is a GPU, which no elimination has opened."""
    monkeypatch.setattr(backends, "gpu_problem", lambda: None)
    monkeypatch.setattr(backends, "is_gpu_in_use", lambda: False)
    return monkeypatch


def decisions(backend, seconds):
    """Return whether a backend would use the GPU for work of different kinds that takes one core some seconds."""
    draws = int(seconds / COSTS.seconds_per_draw)
    return backend.worth_gpu(seconds), backend.bounds_on_gpu(seconds), backend.samples_on_gpu(draws)


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("threads", [1, 16])
def test_work_moves_to_the_gpu_once_and_later_the_more_it_costs_to_start(gpu, opened, threads):
    gpu.setattr(backends, "is_gpu_in_use", lambda: opened)
    times = np.geomspace(1e-6, 1e4, 60)
    previous = None
    for device in ("cuda", "auto", "cpu"):
        backend = Backend(device, threads)
        used = np.array([decisions(backend, seconds) for seconds in times])
        assert (np.diff(used.astype(int), axis=0) >= 0).all()  # more work never goes back to the CPU
        assert used[-1].all() == (device != "cpu") and not used[0].any()
        if previous is not None:
            assert (used <= previous).all()
        previous = used
    if opened:
        auto, cuda = ([decisions(Backend(device, threads), s) for s in times] for device in ("auto", "cuda"))
        assert auto == cuda  # an open GPU costs nothing to start


def test_without_a_gpu_all_work_stays_on_the_cpu(gpu):
    gpu.setattr(backends, "gpu_problem", lambda: "there is no GPU")
    assert not any(any(decisions(Backend("auto"), seconds)) for seconds in (0.0, 1.0, 1e6))


@given(st.lists(st.integers(2, 64), min_size=3, max_size=8))
def test_buckets_go_to_the_gpu_only_if_that_saves_more_than_its_cost(sizes):
    scopes, domains = [(i, i + 1, i + 2) for i in range(len(sizes) - 2)], np.array(sizes)
    plan = plan_elimination(scopes, domains, range(len(sizes)))
    thresholds = [Backend(device)._gpu_threshold(plan) for device in ("cpu", "cuda")]
    assert thresholds[0] is None
    if thresholds[1] is not None:
        assert thresholds[1] in tuning.GPU_THRESHOLDS
        on_gpu = plan.program.cells[plan.program.cells >= thresholds[1]].sum()
        assert float(plan.cells) * COSTS.seconds_per_cell > COSTS.gpu_round_trip and on_gpu > 0
    else:
        assert Backend("cuda").eliminates_on_gpu_together([plan, plan]) is False


def test_candidate_thresholds_fall_to_the_whole_plan():
    assert all(a > b for a, b in pairwise(tuning.GPU_THRESHOLDS.tolist())) and tuning.GPU_THRESHOLDS[-1] == 0


def test_on_the_cpu_the_passes_are_those_of_the_host_and_no_device_builds_rows():
    class Host:
        rows = 10**12

        class layout:
            cells = np.array([10**12])

    assert passes_on(Backend(), Host, None) is Host and row_passes_on(Backend(), Host) is Host
    assert rows_on_gpu(Backend()) is None
    device = rows_on_gpu(Backend("cuda"))
    assert not device.worth(0.0) and device.worth(1e6)
