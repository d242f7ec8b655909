"""Chains on the GPU beside a run are offered, granted and told like all other work; a made-up search stands in."""

import pytest
from support.runs import Hurried, hard_problem

import dmcmc
from dmcmc.config.settings import Budget, Settings
from dmcmc.inference.runtime import device
from dmcmc.run.compilation import prepare_gpu
from dmcmc.run.improvers import gpu_chains
from dmcmc.run.scheduler.improver_statistics import Ledger
from dmcmc.run.scheduler.proposal import BOUND, GPU_SEARCH, SEARCH, Brought, Offer
from dmcmc.run.scheduler.scheduler import Controller, State


class MadeUp:
    """What a run sees of it: it says that it works all the time, and finds what is best at once."""

    def __init__(self, search, known, take, alone, stop):
        self.allowed, self.ended, self.on = [], False, True
        self.raised = take(search.polish(known()))
        made.append(self)

    def allow(self, seconds):
        self.allowed.append(seconds)

    def brought(self):
        return [Brought(GPU_SEARCH, 0.125, objective=self.raised)]

    def end(self):
        self.ended = True


made: list[MadeUp] = []


def test_a_run_offers_it_tells_what_it_took_and_ends_it(clock, monkeypatch):
    monkeypatch.setattr(gpu_chains, "wanted", lambda settings: settings.budget.time == 600)
    monkeypatch.setattr(gpu_chains, "OnGpu", MadeUp)
    monkeypatch.setattr(prepare_gpu, "_load_search", lambda setup: None)
    made.clear()
    progress = Hurried(clock, "improving", times=2)  # the second time its work has been allowed, and told
    local = {"method": "gibbs"}
    result = dmcmc.solve(hard_problem(), timeout=600, local=local, search="none", device="cpu", progress=progress)
    (search,) = made
    assert search.ended and search.allowed and all(seconds > 0 for seconds in search.allowed)
    assert {work.kind: work.seconds for work in result.work}[GPU_SEARCH] >= 0.125


def controller(hope):
    asked = Controller([0, 0])
    asked.enter(State(1.0, 9.0, 100.0, 150.0), [])
    asked.ledger.hopes[GPU_SEARCH] = hope
    return asked


def test_its_part_of_a_slice_falls_with_what_it_brings():
    offers = [
        Offer(BOUND, 30.0, 0),
        Offer(BOUND, 20.0, 1),
        Offer(SEARCH, float("inf")),
        Offer(GPU_SEARCH, float("inf")),
    ]
    parts = []
    for hope in (0.25, 0.05):
        grants = controller(hope).decide(offers)
        assert sum(grant.kind == GPU_SEARCH for grant in grants) == 1
        assert sum(grant.seconds for grant in grants if grant.kind != GPU_SEARCH) <= 1.0 + 1e-9
        parts.append(next(grant.seconds for grant in grants if grant.kind == GPU_SEARCH))
    assert 0 < parts[1] < parts[0] < 1.0
    alone = controller(0.05).decide([Offer(SEARCH, float("inf")), Offer(GPU_SEARCH, float("inf"))])
    assert next(grant.seconds for grant in alone if grant.kind == GPU_SEARCH) == 1.0


def test_what_it_finds_is_its_own_and_no_bound():
    ledger = Ledger()
    ledger.enter([Brought(GPU_SEARCH, 1.0, objective=5.0), Brought(BOUND, 1.0)], 9.0, 8.0, 100.0)
    found = {kind: (account.objective, account.bound) for kind, account in ledger.accounts.items()}
    assert found == {GPU_SEARCH: (5.0, 0.0), BOUND: (4.0, 8.0)}


@pytest.mark.parametrize(
    ("where", "seconds", "polish", "there"),
    [
        ("cuda", 2.0, "auto", True), ("auto", 60.0, "auto", True), ("auto", 2.0, "auto", False),
        ("cpu", 60.0, "auto", False), ("cuda", None, "auto", False), ("cuda", 60.0, "none", False),
    ],
)  # fmt: skip
def test_it_is_wanted_where_there_is_time_and_a_gpu(where, seconds, polish, there, monkeypatch):
    settings = Settings(device=where, budget=Budget(time=seconds), polish=polish)
    monkeypatch.setattr(gpu_chains, "_exists", lambda name: True)
    monkeypatch.setattr(gpu_chains, "takes_threads", lambda: True)
    for problem in (None, "no CUDA device is visible"):
        monkeypatch.setattr(gpu_chains, "gpu_problem", lambda problem=problem: problem)
        assert gpu_chains.wanted(settings) == (there and problem is None)
        assert bool(gpu_chains.outlook(settings)) == (there and problem is None)
    assert not device.opened()
