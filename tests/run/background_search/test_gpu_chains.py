"""Test that GPU chains get time and are recorded like all other work; a fake replaces the chains."""

import pytest
from support.runs import HurriedProgress, hard_problem

import dmcmc
from dmcmc.config.settings import Budget, Settings
from dmcmc.inference.runtime import device
from dmcmc.run.compilation import prepare_gpu
from dmcmc.run.improvers import gpu_chains
from dmcmc.run.scheduler.improver_statistics import ImproverStatistics
from dmcmc.run.scheduler.proposal import BOUND, GPU_CHAINS, LOCAL_SEARCH, MeasuredGain, Proposal
from dmcmc.run.scheduler.scheduler import Scheduler, SchedulingState


class FakeChains:
    """Chains that are always running, and find a 1-optimal assignment at once."""

    def __init__(self, search, known, take, alone, stop):
        self.allowed, self.ended, self.running = [], False, True
        self.raised = take(search.one_opt(known()))
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
    monkeypatch.setattr(prepare_gpu, "_load_search", lambda setup: None)
    made.clear()
    progress = HurriedProgress(
        clock, "improving", times=2
    )  # the chains have had time and are recorded at the second time
    local = {"method": "gibbs"}
    result = dmcmc.solve(hard_problem(), timeout=600, local=local, search="none", device="cpu", progress=progress)
    (search,) = made
    assert search.ended and search.allowed and all(seconds > 0 for seconds in search.allowed)
    assert {work.improver: work.seconds for work in result.work}[GPU_CHAINS] >= 0.125


def scheduler_with(rate):
    scheduler = Scheduler([0, 0])
    scheduler.record(SchedulingState(1.0, 9.0, 100.0, 150.0), [])
    scheduler.statistics.expected_rates[GPU_CHAINS] = rate
    return scheduler


def test_the_chains_part_of_a_slice_falls_with_their_expected_rate():
    proposals = [
        Proposal(BOUND, 30.0, 0),
        Proposal(BOUND, 20.0, 1),
        Proposal(LOCAL_SEARCH, float("inf")),
        Proposal(GPU_CHAINS, float("inf")),
    ]
    parts = []
    for rate in (0.25, 0.05):
        allocations = scheduler_with(rate).decide(proposals)
        assert sum(one.improver == GPU_CHAINS for one in allocations) == 1
        assert sum(one.seconds for one in allocations if one.improver != GPU_CHAINS) <= 1.0 + 1e-9
        parts.append(next(one.seconds for one in allocations if one.improver == GPU_CHAINS))
    assert 0 < parts[1] < parts[0] < 1.0
    alone = scheduler_with(0.05).decide([Proposal(LOCAL_SEARCH, float("inf")), Proposal(GPU_CHAINS, float("inf"))])
    assert next(one.seconds for one in alone if one.improver == GPU_CHAINS) == 1.0


def test_objective_gains_of_the_chains_are_attributed_to_them():
    statistics = ImproverStatistics()
    statistics.record([MeasuredGain(GPU_CHAINS, 1.0, objective_gain=5.0), MeasuredGain(BOUND, 1.0)], 9.0, 8.0, 100.0)
    found = {improver: (record.objective, record.bound) for improver, record in statistics.records.items()}
    assert found == {GPU_CHAINS: (5.0, 0.0), BOUND: (4.0, 8.0)}


@pytest.mark.parametrize(
    ("where", "seconds", "local_search", "there"),
    [
        ("cuda", 2.0, "auto", True), ("auto", 60.0, "auto", True), ("auto", 2.0, "auto", False),
        ("cpu", 60.0, "auto", False), ("cuda", None, "auto", False), ("cuda", 60.0, "none", False),
    ],
)  # fmt: skip
def test_the_chains_run_if_there_is_a_gpu_and_enough_time(where, seconds, local_search, there, monkeypatch):
    settings = Settings(device=where, budget=Budget(time=seconds), local_search=local_search)
    monkeypatch.setattr(gpu_chains, "_exists", lambda name: True)
    monkeypatch.setattr(gpu_chains, "allows_concurrent_use", lambda: True)
    for problem in (None, "no CUDA device is visible"):
        monkeypatch.setattr(gpu_chains, "gpu_problem", lambda problem=problem: problem)
        assert gpu_chains.wanted(settings) == (there and problem is None)
        assert bool(gpu_chains.outlook(settings)) == (there and problem is None)
    assert not device.is_gpu_in_use()
