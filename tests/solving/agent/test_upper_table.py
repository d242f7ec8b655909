"""Test that branch and bound and semidefinite relaxations are used if the remaining time is enough for them."""

import math
import time

import numpy as np
import pytest
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds import search_rows as semidefinite_rows
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite import relaxation
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.solving.agent.tables import UpperTable


def test_a_branch_and_bound_that_would_be_too_slow_is_excluded_for_good(monkeypatch):
    rng, domains = np.random.default_rng(0), np.full(4, 5)
    factors = [Factor.of(pair, random_table(rng, (5, 5), 99, 0.0)) for pair in ((0, 1), (1, 2), (0, 2), (2, 3))]
    local = LocalProblem(0, (3,), (0, 1, 2), tuple(factors), domains)
    above = UpperTable()
    above.start("triangles", local, CPU)
    monkeypatch.setattr(DualState, "seconds_per_sweep", 0.01)
    assert above.may_search(5) and above.has_time_for_search(5, seconds=10.0)
    assert above.may_search(5) and not above.has_time_for_search(5, seconds=1.0)
    assert not above.may_search(5) and not above.has_time_for_search(5, seconds=10.0)


def test_a_branch_and_bound_that_has_begun_is_not_excluded(monkeypatch):
    rng, domains = np.random.default_rng(0), np.full(4, 5)
    factors = [Factor.of(pair, random_table(rng, (5, 5), 99, 0.0)) for pair in ((0, 1), (1, 2), (0, 2), (2, 3))]
    above = UpperTable()
    above.start("triangles", LocalProblem(0, (3,), (0, 1, 2), tuple(factors), domains), CPU)
    limits = np.zeros(5, dtype=np.int64)
    above.search_request(None, limits, limits, seconds=1.0, node_bytes=1 << 20)
    monkeypatch.setattr(DualState, "seconds_per_sweep", 0.01)
    assert above.has_time_for_search(5, seconds=1.0) and not above.search_too_slow


def test_a_relaxation_without_time_for_its_trial_is_excluded_for_good(monkeypatch):
    monkeypatch.setattr(relaxation, "MIN_HIDDEN_VARIABLES", 3)
    rng, domains = np.random.default_rng(0), np.full(4, 5)
    pairs = ((0, 1), (1, 2), (0, 2), (2, 3))
    local = LocalProblem(
        0, (3,), (0, 1, 2), tuple(Factor.of(p, random_table(rng, (5, 5), 99, 0.0)) for p in pairs), domains
    )
    above, other = UpperTable(), UpperTable()
    for one in (above, other):
        one.start("dual", local, CPU)
        assert one.may_relax(local)
    before = above.dual.bounds.copy()
    monkeypatch.setattr(relaxation, "TRIAL_STEPS", 1 << 20)
    request = above.relaxation_request(np.array([0, 2]), None)
    request.relaxation.improve(0.1, None, request.rows, request.cutoffs)
    assert (above.dual.bounds <= before).all() and (above.dual.bounds[[1, 3]] == before[[1, 3]]).all()
    assert above.charge(0.1, gained=False) == 0.0  # it cannot be judged yet
    assert other.charge(0.1, gained=True) == 0.1  # a gain is charged at once
    above.relaxation.improve(steps=3)
    monkeypatch.setattr(relaxation, "TRIAL_STEPS", 2)
    assert above.charge(0.2, gained=False) == pytest.approx(0.3) and above.charge(0.1, gained=False) == 0.1
    monkeypatch.setattr(relaxation, "TRIAL_STEPS", 1 << 20)
    assert above.has_time_for_relaxation(math.inf) and not other.has_time_for_relaxation(0.0)
    assert above.may_relax(local) and not other.may_relax(local)


@pytest.mark.parametrize("gpu", [True, False])
def test_per_row_relaxations_are_only_awaited_on_a_gpu(monkeypatch, gpu):
    for threshold in ("MIN_HIDDEN_VARIABLES_ON_GPU", "MIN_HIDDEN_VARIABLES"):
        monkeypatch.setattr(relaxation, threshold, 3)
    monkeypatch.setattr(semidefinite_rows, "runs_on_gpu", lambda backend, seconds: gpu)
    tables = [Factor.of(p, [[0, 1], [1, 0]]) for p in ((0, 1), (1, 2), (0, 2), (2, 3))]
    local, above = LocalProblem(0, (3,), (0, 1, 2), tuple(tables), np.full(4, 2)), UpperTable()
    above.start("dual", local, CPU)
    assert above.may_relax(local) and above.relaxation.per_row.undecided == gpu
    assert above.charge(1.0, gained=False) == 0.0
    monkeypatch.setattr(relaxation, "TRIAL_STEPS", 0)  # the common relaxation can be judged
    assert above.charge(1.0, gained=False) == (0.0 if gpu else 2.0)
    above.relaxation.per_row.has_branched = True
    assert above.charge(1.0, gained=False) == (3.0 if gpu else 1.0)
    assert not above.relaxation.per_row.undecided


@pytest.mark.parametrize("seconds", [math.inf, 25.0, 15.0])
def test_branch_and_bound_goes_before_a_relaxation_if_it_may_close_rows(monkeypatch, seconds):
    monkeypatch.setattr(relaxation, "MIN_HIDDEN_VARIABLES_ON_GPU", 3)
    monkeypatch.setattr(semidefinite_rows, "runs_on_gpu", lambda backend, seconds: True)
    tables = [Factor.of(p, [[0, 1], [1, 0]]) for p in ((0, 1), (1, 2), (0, 2), (2, 3))]
    local = LocalProblem(0, (3,), (0, 1, 2), tuple(tables), np.full(4, 2))
    above, other = UpperTable(), UpperTable()
    for one in (above, other):
        one.start("triangles", local, Backend(stop=Deadline(time.perf_counter() + seconds)))
        assert one.may_search(local.rows) and not one.may_relax(local) and not one.no_relaxation
    above.search_stalled = other.search_too_slow = True
    for one in (above, other):  # the relaxation needs about 20 seconds to overtake the search
        assert one.may_relax(local) == (seconds > 20) and one.no_relaxation == (seconds < 20)
    monkeypatch.setattr(relaxation, "MIN_HIDDEN_VARIABLES", 3)
    many = UpperTable()
    many.start("triangles", local, Backend())
    assert many.may_relax(local)
