"""All GPU code that a run with a time budget calls is loaded first; the simulator records launches."""

from dataclasses import replace
from threading import Event
from threading import enumerate as enumerate_threads

import pytest
from support.runs import HurriedProgress, record_late_compilation

import dmcmc
from dmcmc.compilation import gpu_components
from dmcmc.compilation.kernel_supply import KernelSupply
from dmcmc.inference.execution import cost_model
from dmcmc.inference.runtime.device import gpu_problem

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

FREE = replace(
    cost_model.COSTS, gpu_round_trip=0.0, seconds_per_wave=0.0, seconds_per_matched_bucket=0.0
)  # everything runs on the GPU


# Agents that are too large for exact elimination are bounded by mini-buckets of reparametrised tables; others are
# exact.
@pytest.mark.parametrize("local", [{"cells": 4, "runs": 1, "samples": 2}, {"method": "exact"}])
def test_nothing_is_launched_that_was_not_loaded(local, launches, clock, monkeypatch):
    loaded, launched = launches

    def before_the_clock(*given):
        try:
            return load(*given)
        finally:
            loaded.update(launched)  # loading the samplers runs them for almost no work
            launched.clear()

    load = gpu_components.prepare_gpu
    monkeypatch.setattr(gpu_components, "prepare_gpu", before_the_clock)
    monkeypatch.setattr(cost_model, "COSTS", FREE)
    problem = dmcmc.generate("random", agents=1, variables_per_agent=7, domain_size=2, seed=1)
    with record_late_compilation(monkeypatch) as late:
        progress = HurriedProgress(clock, "improving", times=3)
        result = dmcmc.solve(problem, timeout=600, device="cuda", search="none", local=local, progress=progress)
    assert result.assignment is not None
    assert late == []
    assert launched and launched <= loaded


def test_a_gpu_that_opens_slowly_does_not_hold_up_the_run(monkeypatch):
    may_open, load = Event(), gpu_components.load_sets
    monkeypatch.setattr(gpu_components, "allows_concurrent_use", lambda: True)  # the CPU does the rest of this run
    monkeypatch.setattr(gpu_components, "load_sets", lambda sets: load(sets) if may_open.wait(120) else None)
    problem = dmcmc.generate("random", agents=2, variables_per_agent=5, domain_size=3, seed=1)
    try:
        result = dmcmc.solve(problem, timeout=2, device="cuda", search="none", method="gibbs")
    finally:
        may_open.set()
        for thread in (one for one in enumerate_threads() if one.name == "dmcmc GPU loading"):
            thread.join()
    assert result.assignment is not None and result.time < 10


def test_a_run_works_on_the_cpu_until_the_kernels_of_the_gpu_are_compiled(launches, monkeypatch):
    _, launched = launches
    waits, all_ready = [], KernelSupply.all_ready

    def ready_later(self, *sets):
        of_gpu = any("GPU" in kernels.name for kernels in sets)
        if of_gpu and len(waits) < 3:
            if not waits:
                launched.clear()  # of compiling
            waits.append(bool(launched))
            return False
        return all_ready(self, *sets)

    monkeypatch.setattr(KernelSupply, "all_ready", ready_later)
    monkeypatch.setattr(cost_model, "COSTS", FREE)
    problem = dmcmc.generate("random", agents=2, variables_per_agent=5, domain_size=2, seed=1)
    local = {"method": "gibbs", "runs": 1, "samples": 1, "bound": "none"}
    result = dmcmc.solve(problem, timeout=20, device="cuda", search="none", local=local)
    assert waits == [False] * 3 and launched
    assert result.objective <= dmcmc.solve(problem).objective
