"""All GPU code that a run with a time budget calls is loaded first; the simulator records launches."""

from dataclasses import replace
from threading import Event
from threading import enumerate as enumerate_threads

import pytest
from support.runs import HurriedProgress, record_late_compilation

import dmcmc
from dmcmc.anytime import solve_in_time
from dmcmc.anytime.rank_run import RankImprovers, improve_until_stop
from dmcmc.cli import warm_up_child
from dmcmc.compilation import gpu_components
from dmcmc.compilation.kernel_supply import KernelSupply
from dmcmc.config.make_settings import settings_from
from dmcmc.inference.execution import cost_model
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.mpi.world import World
from dmcmc.results.result import BRANCH, SEMIDEFINITE
from dmcmc.solving.planning.plan import prepare

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

FREE = replace(
    cost_model.COSTS, gpu_round_trip=0.0, seconds_per_wave=0.0, seconds_per_matched_bucket=0.0
)  # everything runs on the GPU
DEVICES = ("cpu", "cuda")
LARGE = {"timeout": 3, "search": "none", "local": {"cells": 4}}  # agents are too large for exact elimination


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


def let_kernels_of_the_gpu_be_ready(monkeypatch, when, others=KernelSupply.is_ready):
    """Let a condition say whether kernels of the GPU are compiled, in a run that does not compile before its clock."""
    monkeypatch.delenv("DMCMC_COMPILE", raising=False)

    def is_ready(self, *sets):
        return (when() or not any("GPU" in kernels.name for kernels in sets)) and others(self, *sets)

    monkeypatch.setattr(KernelSupply, "is_ready", is_ready)


def test_a_run_works_on_the_cpu_until_the_kernels_of_the_gpu_are_compiled(launches, monkeypatch):
    _, launched = launches
    compiled, before, improve = Event(), [], RankImprovers.improve

    def improve_while_they_are_compiled(self, directive):
        if not compiled.is_set():
            before.append(set(launched))
            compiled.set()
        improve(self, directive)

    let_kernels_of_the_gpu_be_ready(monkeypatch, compiled.is_set)
    monkeypatch.setattr(RankImprovers, "improve", improve_while_they_are_compiled)
    monkeypatch.setattr(cost_model, "COSTS", FREE)
    problem = dmcmc.generate("random", agents=2, variables_per_agent=5, domain_size=2, seed=1)
    local = {"method": "gibbs", "runs": 1, "samples": 1, "bound": "none"}
    result = dmcmc.solve(problem, timeout=30, device="cuda", search="none", local=local)
    assert before == [set()] and launched
    assert result.objective <= dmcmc.solve(problem).objective


def test_without_its_kernels_a_gpu_changes_neither_methods_nor_what_is_compiled_first(monkeypatch):
    """So a run on an empty cache is no worse with a GPU than without one."""
    begun, asked, request = [], [], KernelSupply.request

    def begin(setup, coordinator, search, watch, is_ready, *rest):
        ready = {improver: is_ready(improver) for improver in (BRANCH, SEMIDEFINITE)}
        begun.append((setup.backend.device, setup.divided.config.device, list(setup.choices), setup.limits, ready))
        return improve_until_stop(setup, coordinator, search, watch, is_ready, *rest)

    def record(self, *sets, at_once=False, later=False):
        asked[-1] += [] if later else [(kernels.name, at_once) for kernels in sets]
        return request(self, *sets, at_once=at_once, later=later)

    let_kernels_of_the_gpu_be_ready(monkeypatch, lambda: False, others=lambda self, *sets: True)
    monkeypatch.setattr(solve_in_time, "improve_until_stop", begin)
    monkeypatch.setattr(KernelSupply, "request", record)
    problem = dmcmc.generate("random", agents=3, variables_per_agent=6, domain_size=3, seed=1)
    planned = [prepare(problem, settings_from(None, {**LARGE, "device": device}), World()) for device in DEVICES]
    assert planned[0].limits != planned[1].limits
    for device in DEVICES:
        asked.append([])
        dmcmc.solve(problem, device=device, **LARGE)
    assert begun[0] == begun[1]
    assert asked[0] == asked[1] and asked[0]


def test_a_warm_up_compiles_few_kernels_for_a_gpu(recorded):
    """A kernel is compiled for what it needs to know then: widths of tables, number types, places in memory."""
    for name, task in warm_up_child.tasks().items():
        if name.endswith("on a GPU"):
            for kernels in task.args[0]():
                kernels.compile()
    assert 50 < len(recorded) <= 100
