"""A failure of the GPU at any kind of call ends no run, and its answer is proven on the CPU; simulator only."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numba import config
from support import soundness
from support.problem_strategies import random_table

import dmcmc
from dmcmc import Factor, Problem, Settings
from dmcmc.anytime import rank_run
from dmcmc.anytime.rank_run import RankRun
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import CostModel
from dmcmc.inference.runtime import device as device_module
from dmcmc.inference.runtime.device import Device, gpu_fault, gpu_has_failed, gpu_problem, shared_device
from dmcmc.inference.runtime.errors import GpuFault
from dmcmc.mpi.world import World

pytestmark = pytest.mark.skipif(not config.ENABLE_CUDASIM, reason="a failure would close the GPU for other tests")
ALL_ON_GPU = CostModel(gpu_round_trip=-1.0, seconds_per_wave=0.0, seconds_per_matched_bucket=0.0, seconds_per_cell=1.0)


class CudaAPIError(RuntimeError):
    """An error of the driver, named like Numba's."""


def failing(function, calls_before):
    """Return a function that fails from its call number ``calls_before`` on, as a GPU does after its first failure."""
    calls = 0

    def fail_later(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls > calls_before:
            raise CudaAPIError("[700] Call to cuLaunchKernel results in CUDA_ERROR_ILLEGAL_ADDRESS")
        return function(*arguments, **options)

    return fail_later


@pytest.fixture
def gpu(monkeypatch):
    """Let all work go to the GPU, and forget a failure after the test."""
    monkeypatch.setattr("dmcmc.inference.execution.cost_model.COSTS", ALL_ON_GPU)
    yield monkeypatch
    device_module._FAILURES.clear()
    shared_device.cache_clear()


def break_calls(monkeypatch, kind, calls_before):
    """Let one kind of call of the driver fail from its call number ``calls_before`` on."""
    from numba.cuda.simulator import kernel
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

    if kind == "launch":
        launch = kernel.FakeCUDAKernel.__call__
        fail = failing(lambda *_: None, calls_before)

        def launch_or_fail(self, *arguments):
            if not self._device:
                fail()
            return launch(self, *arguments)

        monkeypatch.setattr(kernel.FakeCUDAKernel, "__call__", launch_or_fail)
        return
    where, name = {
        "copy to the host": (FakeCUDAArray, "copy_to_host"),
        "copy to the device": (FakeCUDAArray, "copy_to_device"),
        "allocation": (Device, "buffer"),
        "lease": (Device, "lease"),
        "wait": (Device, "synchronize"),
        "query": (Device, "free_bytes"),
        "free": (Device, "release"),
    }[kind]
    monkeypatch.setattr(where, name, failing(getattr(where, name), calls_before))


KINDS = ("launch", "copy to the host", "copy to the device", "allocation", "lease", "wait", "query", "free")


@pytest.mark.parametrize("kind", KINDS)
def test_every_run_ends_with_a_sound_answer_after_a_failure(gpu, kind, caplog):
    caplog.set_level(logging.WARNING, logger="dmcmc")
    failed = 0
    for seed in range(6):
        with gpu.context() as patch:
            break_calls(patch, kind, calls_before=seed)
            _, wrong = soundness.check(seed, tiny=True, device="cuda", most_seconds=0.05)
        assert wrong == []
        failed += gpu_has_failed()
        device_module._FAILURES.clear()
        shared_device.cache_clear()
    assert failed or kind in ("wait", "free", "query")  # these calls are rare in tiny runs


def two_agents():
    """Return a problem of two agents whose optimum needs all factors."""
    rng = np.random.default_rng(3)
    scopes = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)]
    factors = tuple(Factor.of(s, random_table(rng, (3, 3), 50, 0.0)) for s in scopes)
    names = tuple(f"x{v}" for v in range(6))
    return Problem(names, np.full(6, 3), ("a", "b"), np.repeat([0, 1], 3), factors, sense="max")


@pytest.mark.parametrize("timeout", [None, 20.0])
def test_a_failure_is_said_in_one_line_and_the_optimum_is_proven(gpu, timeout, caplog):
    caplog.set_level(logging.WARNING, logger="dmcmc")
    expected = dmcmc.solve(two_agents()).objective
    break_calls(gpu, "launch", 1)
    result = dmcmc.solve(two_agents(), device="cuda", timeout=timeout)
    assert (result.status, result.objective, result.bound) == ("optimal", expected, expected)
    assert len([record for record in caplog.records if "GPU" in record.getMessage()]) == 1
    assert "ILLEGAL_ADDRESS" in (gpu_problem() or "")


def test_a_session_continues_after_a_failure(gpu):
    session = dmcmc.Session(two_agents(), device="cuda")
    before = session.solve().objective
    break_calls(gpu, "launch", 0)
    session.set_table(0, np.full((3, 3), 100))
    after = session.solve()
    changed = two_agents()
    factors = (Factor.of((0, 1), np.full((3, 3), 100)), *changed.factors[1:])
    expected = dmcmc.solve(replace(changed, factors=factors)).objective
    assert before is not None and (after.status, after.objective) == ("optimal", expected)


def test_a_wrong_bound_is_reported_and_dropped(gpu, caplog):
    def wrong(*_):
        raise GpuFault("error of the program: the GPU's potentials are wrong")

    caplog.set_level(logging.WARNING, logger="dmcmc")
    gpu.setattr(rank_run, "check_dual_bounds", wrong)
    dropped, on_gpu = [], SimpleNamespace(dual=SimpleNamespace(remote=object()), boundary_search=None)
    run = SimpleNamespace(
        tables=SimpleNamespace(agents={0: SimpleNamespace(upper=on_gpu)}),
        whole_problem=SimpleNamespace(agent=None),
        setup=SimpleNamespace(divided=SimpleNamespace(config=Settings()), backend=Backend()),
        world=World(),
        incumbent=SimpleNamespace(forget_bound=lambda: dropped.append(True)),
    )
    with pytest.raises(GpuFault):
        RankRun.check_gpu_bounds(run)
    assert dropped and any("error of the program" in record.getMessage() for record in caplog.records)


def test_other_errors_are_no_failures_of_the_gpu(gpu):
    assert gpu_fault(ValueError("no")) is None and gpu_fault(MemoryError("out of memory")) is None
    assert not gpu_has_failed()
    assert isinstance(gpu_fault(CudaAPIError("[719] unspecified launch failure")), GpuFault) and gpu_has_failed()
