"""Smoothed marginals: never below the maxima, near log-sum-exp; sweeps with them get further than without."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.dual import dual_bound as dual
from dmcmc.inference.bounds.dual import row_kernels as rows
from dmcmc.inference.bounds.dual.graph import lay_out, spread
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import SCRATCH, cooled, soft_plus, soft_plus_turned
from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, LIMIT, THRESHOLD
from dmcmc.inference.bounds.dual.triangle_kernels import marginal
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Stop

RUNNING = np.zeros(1, dtype=np.uint8)
TIMED = Backend(stop=Stop(1e12))


def products(rng, shape, size, dead, temperature):
    """Two tables, their sums over each inner value, and what the kernel makes of them."""
    rows_, inner, columns = shape
    left, right = (rng.integers(-size, size + 1, s).astype(np.int32) for s in ((rows_, inner), (inner, columns)))
    for table in (left, right):
        table[rng.random(table.shape) < dead] = DEAD
    out, widest = np.zeros((rows_, columns), dtype=np.int32), max(shape)
    room = np.zeros((SCRATCH - 2, widest, widest), dtype=np.int32)
    soft_plus(left, right, out, *shape, np.float32(temperature), room)
    again, turned = np.zeros_like(out), np.ascontiguousarray(left.T)
    soft_plus_turned(turned, right, again, *shape, np.float32(temperature), room)
    assert (again == out).all()
    return left[:, :, None].astype(np.int64) + right[None], out


@settings(max_examples=60)
@given(
    st.integers(0, 9999),
    st.sampled_from([(8, 8, 8), (8, 24, 16), (24, 24, 24), (4, 8, 8), (20, 16, 24)]),
    st.sampled_from([1, 100, 10_000, int(LIMIT)]),
    st.sampled_from([0.0, 0.3, 0.9]),
    st.sampled_from([0.01, 1.0, 30.0, 1e4, 1e6]),
)
def test_a_smoothed_product_is_no_less_than_the_maximum_and_dead_where_that_is(seed, shape, size, dead, temperature):
    sums, out = products(np.random.default_rng(seed), shape, size, dead, temperature)
    best = sums.max(axis=1)
    alive = best >= THRESHOLD
    assert (out[alive] >= best[alive]).all()
    assert (out[~alive] < THRESHOLD).all()


@pytest.mark.parametrize("size", [10, 1000, 100_000])
@pytest.mark.parametrize("temperature", [50.0, 1000.0])
def test_a_smoothed_product_is_near_log_sum_exp(size, temperature):
    sums, out = products(np.random.default_rng(size), (16, 24, 8), size, 0.0, temperature)
    best = sums.max(axis=1)
    exact = best + temperature * np.log(np.exp((sums - best[:, None]) / temperature).sum(axis=1))
    # three straight lines for a power, each 0.0861 of a factor two off, as much for all that is added up
    assert (np.abs(out - exact) <= 3 * 0.0861 * np.log(2) * temperature + 3 + temperature / 4096).all()


@pytest.mark.parametrize("temperature", [10.0, 300.0, 5000.0])
def test_no_product_is_below_the_normal_numbers_which_processors_take_long_for(temperature):
    rng, room = np.random.default_rng(0), np.zeros((SCRATCH - 2, 24, 24), dtype=np.int32)
    left, right = (rng.integers(-10_000, 10_001, (24, 24)).astype(np.int32) for _ in range(2))
    soft_plus(left, right, np.zeros_like(left), 24, 24, 24, np.float32(temperature), room)
    powers = room[1].view(np.float32)  # of the right table; what comes of the left one may be written over
    least, most = powers[powers > 0].min(), powers.max()
    assert least * least >= np.finfo(np.float32).tiny and 1024 * most * most < np.finfo(np.float32).max


def test_without_temperature_marginals_are_maxima():
    rng = np.random.default_rng(1)
    left, right = (rng.integers(-99, 99, (8, 8)).astype(np.int32) for _ in range(2))
    out = np.zeros((8, 8), dtype=np.int32)
    marginal(left, right, out, 8, 8, 8, np.float32(0), np.zeros((SCRATCH - 2, 8, 8), dtype=np.int32))
    assert (out == (left[:, :, None] + right[None]).max(axis=1)).all()


def test_two_thirds_of_sweeps_cool_and_the_others_have_no_temperature():
    found = [float(cooled(np.float32(10), sweep, 9)) for sweep in range(9)]
    assert found[0] == 10 and found[:6] == sorted(found[:6], reverse=True) and min(found[:6]) > 2
    assert found[6:] == [0, 0, 0]
    assert [float(cooled(np.float32(10), 0, few)) for few in (1, 7, 8)] == [0, 0, 10]


def dense(seed, n=7, d=8, hard=0.0):
    """An agent all of whose variables share factors; the last one is its interface."""
    rng = np.random.default_rng(seed)
    scopes = [(a, b) for a in range(n) for b in range(a + 1, n)]
    factors = [Factor.of(s, random_table(rng, (d, d), 1000, hard)) for s in scopes]
    return LocalProblem(0, (n - 1,), tuple(range(n - 1)), tuple(factors), np.full(n, d))


@pytest.mark.parametrize("seed", range(4))
def test_no_triangle_is_worth_anything_after_a_sweep_at_any_temperature(seed):
    layout = lay_out(dense(seed, n=5, hard=0.2), triangles=True)
    scratch = np.zeros((SCRATCH, 8, 8), dtype=np.int32)
    for step, part in enumerate((1.0, 0.2, 0.05, 0.001)):
        temperature = np.float32(part * spread(layout.shares))
        assert rows.sweep(layout.whole, layout.shares, step % 2 == 0, temperature, scratch, RUNNING)
        for ab, ac, bc in layout.shares.cluster.astype(np.int64):
            assert (ab[:, :, None] + ac[:, None, :] + bc[None]).max() <= 0


@settings(max_examples=15)
@given(st.integers(0, 999), st.sampled_from([0.0, 0.3]), st.sampled_from([0.01, 0.05, 1.0]), st.integers(1, 8))
def test_bounds_are_sound_and_only_ever_lower_at_any_temperature(seed, hard, warmth, sweeps):
    local = dense(seed, n=5, d=4, hard=hard)
    state = dual.DualState(local, triangles=True, backend=TIMED)
    assert state.warmth > 0
    state.warmth = np.float32(warmth / dual.WARMTH * state.warmth)
    worth, before = naive.row_values(local).ravel().tolist(), state.bounds.copy()
    for _ in range(3):
        state.improve(sweeps=sweeps)
        assert (state.bounds <= before).all()
        before = state.bounds.copy()
        assert all(state.layout.scale.decode(int(w)) >= u for w, u in zip(before, worth, strict=True))


def test_warm_sweeps_lead_further_where_all_variables_share_factors():
    bounds = list[float]()
    for warmth in (0.0, dual.WARMTH):
        state = dual.DualState(dense(0, n=16, d=8), triangles=True, backend=TIMED)
        state.warmth = np.float32(state.warmth * warmth / dual.WARMTH)
        state.improve(sweeps=20)
        bounds.append(state.layout.scale.decode(int(state.bounds.max())))
    assert bounds[1] < bounds[0]


@pytest.mark.parametrize(("done", "fitting", "cooling"), [(1, 11.9, 0), (1, 12.1, 13), (5, 20.1, 25), (25, 20.1, 30)])
def test_sweeps_cool_within_their_time_and_a_few_have_no_temperature(done, fitting, cooling):
    state = dual.DualState(dense(0, n=5), triangles=True, backend=TIMED)
    state.done, state._paces = done, (0.01,)
    state._plan(fitting * dual._WARMER * 0.01)
    assert state._cooling == cooling
    state._paces = ()  # nobody knows what a sweep takes
    state._plan(1e9)
    assert state._cooling == 0


def test_an_ascent_goes_on_after_others_have_had_the_core_for_longer_than_its_turns(monkeypatch):
    state = dual.DualState(dense(0, n=5), triangles=True, backend=TIMED)
    ascend, held_up = state._ascend, [0.3]

    def ascend_when_there_is_a_core(sweeps):
        time.sleep(held_up.pop() if held_up else 0.0)
        return ascend(sweeps)

    monkeypatch.setattr(state, "_ascend", ascend_when_there_is_a_core)
    state.improve(seconds=0.1)
    assert not held_up and state.pace >= 0.3 and state.done < 5
    state.improve(seconds=0.1)
    assert state.pace < 0.3 and state.done >= 5


def test_a_graph_with_few_triangles_has_no_warm_sweeps():
    factors = [Factor.of((v, v + 1), np.arange(4).reshape(2, 2)) for v in range(5)]
    local = LocalProblem(0, (), tuple(range(6)), tuple(factors), np.full(6, 2))
    assert dual.DualState(local, triangles=True, backend=TIMED).warmth == 0


def test_there_are_none_without_a_time_budget():
    assert dual.DualState(dense(0, n=5), triangles=True).warmth == 0
    assert dual.DualState(dense(0, n=5), triangles=True, backend=TIMED).warmth > 0
