"""Test that GPU chains get time and are recorded like all other work; a fake replaces the chains."""

from types import SimpleNamespace

import pytest
from support.runs import HurriedProgress, hard_problem

import dmcmc
from dmcmc.anytime.improvers import gpu_chains
from dmcmc.anytime.scheduler.proposal import MeasuredGain
from dmcmc.config.settings import Budget, Settings
from dmcmc.inference.runtime import device
from dmcmc.results.result import GPU_CHAINS
from dmcmc.samplers.local_search.cuda import chains as cuda_chains


class FakeChains:
    """Chains that are always running, and find a 1-optimal assignment at once."""

    def __init__(self, search, incumbent, alone, stop):
        self.allowed, self.ended, self.running = [], False, True
        before = incumbent.utility
        incumbent.update(search.one_opt(incumbent.values), GPU_CHAINS)
        self.raised = float(incumbent.utility - before)
        made.append(self)

    def allow(self, seconds):
        self.allowed.append(seconds)

    def take_gains(self):
        return [MeasuredGain(GPU_CHAINS, 0.125, objective_gain=self.raised)]

    def end(self):
        self.ended = True


made: list[FakeChains] = []


def test_a_run_allocates_time_records_the_cost_and_ends_the_chains(clock, monkeypatch):
    monkeypatch.setattr(gpu_chains, "wanted", lambda settings: settings.budget.time == 600)
    monkeypatch.setattr(gpu_chains, "BackgroundGpuChains", FakeChains)
    monkeypatch.setattr(cuda_chains, "load_kernels", lambda graph: None)
    made.clear()
    progress = HurriedProgress(
        clock, "improving", times=2
    )  # the chains have had time and are recorded at the second time
    local = {"method": "gibbs"}
    result = dmcmc.solve(hard_problem(), timeout=600, local=local, search="none", device="cpu", progress=progress)
    (search,) = made
    assert search.ended and search.allowed and all(seconds > 0 for seconds in search.allowed)
    assert {work.improver: work.seconds for work in result.work}[GPU_CHAINS] >= 0.125


@pytest.mark.parametrize(
    ("where", "seconds", "local_search", "there"),
    [
        ("cuda", 2.0, "auto", True), ("auto", 60.0, "auto", True), ("auto", 2.0, "auto", False),
        ("cpu", 60.0, "auto", False), ("cuda", None, "auto", False), ("cuda", 60.0, "none", False),
    ],
)  # fmt: skip
def test_the_chains_run_if_there_is_a_gpu_and_enough_time(where, seconds, local_search, there, monkeypatch):
    settings = Settings(device=where, budget=Budget(time=seconds), local_search=local_search)
    monkeypatch.setattr(gpu_chains, "Path", lambda name: SimpleNamespace(exists=lambda: True))
    monkeypatch.setattr(gpu_chains, "allows_concurrent_use", lambda: True)
    for problem in (None, "no CUDA device is visible"):
        monkeypatch.setattr(gpu_chains, "gpu_problem", lambda problem=problem: problem)
        assert gpu_chains.wanted(settings) == (there and problem is None)
        assert bool(gpu_chains.outlook(settings)) == (there and problem is None)
    assert not device.is_gpu_in_use()
