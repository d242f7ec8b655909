"""Rows are searched in, and lifted, where that can be of use in the time that is left."""

import math
import time

import numpy as np
import pytest
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds import semidefinite_rows
from dmcmc.inference.bounds.semidefinite import relaxation
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.run.agent.upper_table import UpperTable


def test_a_search_that_would_be_too_slow_is_given_up_for_good(monkeypatch):
    rng, domains = np.random.default_rng(0), np.full(4, 5)
    factors = [Factor.of(pair, random_table(rng, (5, 5), 99, 0.0)) for pair in ((0, 1), (1, 2), (0, 2), (2, 3))]
    local = LocalProblem(0, (3,), (0, 1, 2), tuple(factors), domains)
    above = UpperTable()
    above.start("triangles", local, CPU)
    monkeypatch.setattr(above.dual, "_paces", (0.01,))
    assert above.searchable(5) and above.quick_enough(5, seconds=10.0)
    assert above.searchable(5) and not above.quick_enough(5, seconds=1.0)
    assert not above.searchable(5) and not above.quick_enough(5, seconds=10.0)


def test_a_search_that_has_begun_goes_by_what_it_earns_and_not_by_a_guess_of_what_it_takes(monkeypatch):
    rng, domains = np.random.default_rng(0), np.full(4, 5)
    factors = [Factor.of(pair, random_table(rng, (5, 5), 99, 0.0)) for pair in ((0, 1), (1, 2), (0, 2), (2, 3))]
    above = UpperTable()
    above.start("triangles", LocalProblem(0, (3,), (0, 1, 2), tuple(factors), domains), CPU)
    limits = np.zeros(5, dtype=np.int64)
    above.search(None, limits, limits, seconds=1.0, room=1 << 20)
    monkeypatch.setattr(above.dual, "_paces", (0.01,))
    assert above.quick_enough(5, seconds=1.0) and not above.slow


def test_a_lift_that_would_take_too_long_to_be_of_use_is_given_up_for_good(monkeypatch):
    monkeypatch.setattr(relaxation, "_LEAST_HIDDEN", 3)
    rng, domains = np.random.default_rng(0), np.full(4, 5)
    pairs = ((0, 1), (1, 2), (0, 2), (2, 3))
    local = LocalProblem(
        0, (3,), (0, 1, 2), tuple(Factor.of(p, random_table(rng, (5, 5), 99, 0.0)) for p in pairs), domains
    )
    above, other = UpperTable(), UpperTable()
    for one in (above, other):
        one.start("dual", local, CPU)
        assert one.liftable(local)
    before = above.dual.bounds.copy()
    monkeypatch.setattr(relaxation, "TRIAL", 1 << 20)
    request = above.lift_request(np.array([0, 2]), None)
    request.lift.improve(0.1, None, request.rows, request.limits)
    assert (above.dual.bounds <= before).all() and (above.dual.bounds[[1, 3]] == before[[1, 3]]).all()
    assert above.pay(0.1, brought=False) == 0.0  # before anybody can judge it
    assert other.pay(0.1, brought=True) == 0.1  # but by what it has brought
    above.lifted.improve(steps=3)
    monkeypatch.setattr(relaxation, "TRIAL", 2)
    assert above.pay(0.2, brought=False) == pytest.approx(0.3) and above.pay(0.1, brought=False) == 0.1
    monkeypatch.setattr(relaxation, "TRIAL", 1 << 20)
    assert above.quick_to_lift(math.inf) and not other.quick_to_lift(0.0)
    assert above.liftable(local) and not other.liftable(local)


@pytest.mark.parametrize("gpu", [True, False])
def test_squares_of_rows_own_are_waited_for_on_a_gpu_alone(monkeypatch, gpu):
    for least in ("_LEAST_ON_GPU", "_LEAST_HIDDEN"):
        monkeypatch.setattr(relaxation, least, 3)
    monkeypatch.setattr(semidefinite_rows, "on_gpu", lambda backend, seconds: gpu)
    tables = [Factor.of(p, [[0, 1], [1, 0]]) for p in ((0, 1), (1, 2), (0, 2), (2, 3))]
    local, above = LocalProblem(0, (3,), (0, 1, 2), tuple(tables), np.full(4, 2)), UpperTable()
    above.start("dual", local, CPU)
    assert above.liftable(local) and above.lifted.own.young == gpu
    assert above.pay(1.0, brought=False) == 0.0
    monkeypatch.setattr(relaxation, "TRIAL", 0)  # the common square is known
    assert above.pay(1.0, brought=False) == (0.0 if gpu else 2.0)
    above.lifted.own.grown = True
    assert above.pay(1.0, brought=False) == (3.0 if gpu else 1.0)
    assert not above.lifted.own.young


@pytest.mark.parametrize("seconds", [math.inf, 25.0, 15.0])
def test_a_search_goes_before_a_lift_where_it_may_close_rows(monkeypatch, seconds):
    monkeypatch.setattr(relaxation, "_LEAST_ON_GPU", 3)
    monkeypatch.setattr(semidefinite_rows, "on_gpu", lambda backend, seconds: True)
    tables = [Factor.of(p, [[0, 1], [1, 0]]) for p in ((0, 1), (1, 2), (0, 2), (2, 3))]
    local = LocalProblem(0, (3,), (0, 1, 2), tuple(tables), np.full(4, 2))
    above, other = UpperTable(), UpperTable()
    for one in (above, other):
        one.start("triangles", local, Backend(stop=Stop(time.perf_counter() + seconds)))
        assert one.searchable(local.rows) and not one.liftable(local) and not one.unlifted
    above.stalls = other.slow = True
    for one in (above, other):  # what it would take to overtake a search that goes before is left or not
        assert one.liftable(local) == (seconds > 20) and one.unlifted == (seconds < 20)
    monkeypatch.setattr(relaxation, "_LEAST_HIDDEN", 3)
    many = UpperTable()
    many.start("triangles", local, Backend())
    assert many.liftable(local)
