"""Smoothed max-marginals are never below the maxima and near log-sum-exp; sweeps with them lower the bound further."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.contract.tuning import SMOOTHED_SWEEP_COST
from dmcmc.inference.bounds.dual import ascent_kernels as rows
from dmcmc.inference.bounds.dual import dual_bound as dual
from dmcmc.inference.bounds.dual.ascent_kernels import combine_over_third
from dmcmc.inference.bounds.dual.graph import lay_out, mean_standard_deviation
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import (
    SCRATCH_TABLES,
    annealed_temperature,
    smoothed_max_plus,
    smoothed_max_plus_transposed,
)
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Deadline

RUNNING = np.zeros(1, dtype=np.uint8)
TIMED = Backend(stop=Deadline(1e12))


def products(rng, shape, size, forbidden, temperature):
    """Return the sums of two random tables over each inner value, and the smoothed product that the kernel computes."""
    rows_, inner, columns = shape
    left, right = (rng.integers(-size, size + 1, s).astype(np.int32) for s in ((rows_, inner), (inner, columns)))
    for table in (left, right):
        table[rng.random(table.shape) < forbidden] = FORBIDDEN
    out, widest = np.zeros((rows_, columns), dtype=np.int32), max(shape)
    workspace = np.zeros((SCRATCH_TABLES - 2, widest, widest), dtype=np.int32)
    smoothed_max_plus(left, right, out, *shape, np.float32(temperature), workspace)
    again, transposed = np.zeros_like(out), np.ascontiguousarray(left.T)
    smoothed_max_plus_transposed(transposed, right, again, *shape, np.float32(temperature), workspace)
    assert (again == out).all()
    return left[:, :, None].astype(np.int64) + right[None], out


@settings(max_examples=60)
@given(
    st.integers(0, 9999),
    st.sampled_from([(8, 8, 8), (8, 24, 16), (24, 24, 24), (4, 8, 8), (20, 16, 24)]),
    st.sampled_from([1, 100, 10_000, int(MAX_MAGNITUDE)]),
    st.sampled_from([0.0, 0.3, 0.9]),
    st.sampled_from([0.01, 1.0, 30.0, 1e4, 1e6]),
)
def test_a_smoothed_product_is_at_least_the_maximum_and_forbidden_where_that_is(
    seed, shape, size, forbidden, temperature
):
    sums, out = products(np.random.default_rng(seed), shape, size, forbidden, temperature)
    best = sums.max(axis=1)
    allowed = best >= FORBIDDEN_BELOW
    assert (out[allowed] >= best[allowed]).all()
    assert (out[~allowed] < FORBIDDEN_BELOW).all()


@pytest.mark.parametrize("size", [10, 1000, 100_000])
@pytest.mark.parametrize("temperature", [50.0, 1000.0])
def test_a_smoothed_product_is_near_log_sum_exp(size, temperature):
    sums, out = products(np.random.default_rng(size), (16, 24, 8), size, 0.0, temperature)
    best = sums.max(axis=1)
    exact = best + temperature * np.log(np.exp((sums - best[:, None]) / temperature).sum(axis=1))
    # piecewise linear: two exponentials and a logarithm are each wrong by up to 0.0861 powers of two
    assert (np.abs(out - exact) <= 3 * 0.0861 * np.log(2) * temperature + 3 + temperature / 4096).all()


@pytest.mark.parametrize("temperature", [10.0, 300.0, 5000.0])
def test_no_product_of_exponentials_is_subnormal(temperature):
    rng, workspace = np.random.default_rng(0), np.zeros((SCRATCH_TABLES - 2, 24, 24), dtype=np.int32)
    left, right = (rng.integers(-10_000, 10_001, (24, 24)).astype(np.int32) for _ in range(2))
    smoothed_max_plus(left, right, np.zeros_like(left), 24, 24, 24, np.float32(temperature), workspace)
    exponentials = workspace[1].view(np.float32)  # of the right table; those of the left one may be overwritten
    least, most = exponentials[exponentials > 0].min(), exponentials.max()
    assert least * least >= np.finfo(np.float32).tiny and 1024 * most * most < np.finfo(np.float32).max


def test_without_temperature_marginals_are_maxima():
    rng = np.random.default_rng(1)
    left, right = (rng.integers(-99, 99, (8, 8)).astype(np.int32) for _ in range(2))
    out = np.zeros((8, 8), dtype=np.int32)
    combine_over_third(left, right, out, 8, 8, 8, np.float32(0), np.zeros((SCRATCH_TABLES - 2, 8, 8), dtype=np.int32))
    assert (out == (left[:, :, None] + right[None]).max(axis=1)).all()


def test_two_thirds_of_the_sweeps_are_annealed_and_the_others_are_exact():
    found = [float(annealed_temperature(np.float32(10), sweep, 9)) for sweep in range(9)]
    assert found[0] == 10 and found[:6] == sorted(found[:6], reverse=True) and min(found[:6]) > 2
    assert found[6:] == [0, 0, 0]
    assert [float(annealed_temperature(np.float32(10), 0, few)) for few in (1, 7, 8)] == [0, 0, 10]


def dense(seed, n=7, d=8, hard=0.0):
    """Return an agent whose variables all share factors; the last one is its interface."""
    rng = np.random.default_rng(seed)
    scopes = [(a, b) for a in range(n) for b in range(a + 1, n)]
    factors = [Factor.of(s, random_table(rng, (d, d), 1000, hard)) for s in scopes]
    return LocalProblem(0, (n - 1,), tuple(range(n - 1)), tuple(factors), np.full(n, d))


@pytest.mark.parametrize("seed", range(4))
def test_no_triangle_has_an_entry_above_0_after_a_sweep_at_any_temperature(seed):
    layout = lay_out(dense(seed, n=5, hard=0.2), triangles=True)
    scratch = np.zeros((SCRATCH_TABLES, 8, 8), dtype=np.int32)
    for step, part in enumerate((1.0, 0.2, 0.05, 0.001)):
        temperature = np.float32(part * mean_standard_deviation(layout.potentials))
        assert rows.sweep(layout.whole, layout.potentials, step % 2 == 0, temperature, scratch, RUNNING)
        for ab, ac, bc in layout.potentials.triangle.astype(np.int64):
            assert (ab[:, :, None] + ac[:, None, :] + bc[None]).max() <= 0


@settings(max_examples=15)
@given(st.integers(0, 999), st.sampled_from([0.0, 0.3]), st.sampled_from([0.01, 0.05, 1.0]), st.integers(1, 8))
def test_bounds_are_valid_and_never_rise_at_any_temperature(seed, hard, ratio, sweeps):
    local = dense(seed, n=5, d=4, hard=hard)
    state = dual.DualState(local, triangles=True, backend=TIMED)
    assert state.initial_temperature > 0
    state.initial_temperature = np.float32(ratio / dual.MAX_TEMPERATURE_RATIO * state.initial_temperature)
    utilities, before = naive.row_values(local).ravel().tolist(), state.bounds.copy()
    for _ in range(3):
        state.improve(sweeps=sweeps)
        assert (state.bounds <= before).all()
        before = state.bounds.copy()
        assert all(state.layout.scale.decode(int(w)) >= u for w, u in zip(before, utilities, strict=True))


def test_smoothed_sweeps_lower_the_bound_further_on_a_dense_graph():
    bounds = list[float]()
    for ratio in (0.0, dual.MAX_TEMPERATURE_RATIO):
        state = dual.DualState(dense(0, n=16, d=8), triangles=True, backend=TIMED)
        state.initial_temperature = np.float32(state.initial_temperature * ratio / dual.MAX_TEMPERATURE_RATIO)
        state.improve(sweeps=20)
        bounds.append(state.layout.scale.decode(int(state.bounds.max())))
    assert bounds[1] < bounds[0]


@pytest.mark.parametrize(("done", "fitting", "cooling"), [(1, 7.9, 0), (1, 8.1, 9), (5, 20.1, 25), (25, 20.1, 30)])
def test_annealing_fits_the_time_and_a_few_sweeps_are_not_smoothed(done, fitting, cooling, monkeypatch):
    state = dual.DualState(dense(0, n=5), triangles=True, backend=TIMED)
    state.sweeps_done = done
    monkeypatch.setattr(dual.DualState, "seconds_per_sweep", 0.01)
    state._plan_annealing(fitting * SMOOTHED_SWEEP_COST * 0.01)
    assert state._annealed_sweeps == cooling
    monkeypatch.setattr(dual.DualState, "seconds_per_sweep", 0.0)  # the time of a sweep is unknown
    state._plan_annealing(1e9)
    assert state._annealed_sweeps == 0


def test_an_ascent_continues_after_a_delay_by_other_processes(monkeypatch):
    state = dual.DualState(dense(0, n=5), triangles=True, backend=TIMED)
    ascend, delays = rows.ascend, [0.3]

    def ascend_after_a_delay(*arguments):
        time.sleep(delays.pop() if delays else 0.0)
        return ascend(*arguments)

    monkeypatch.setattr(rows, "ascend", ascend_after_a_delay)
    state.improve(seconds=0.1)
    assert not delays and state.seconds_per_sweep >= 0.3 and state.sweeps_done < 5
    state.improve(seconds=0.1)
    assert state.seconds_per_sweep < 0.3 and state.sweeps_done >= 5


def test_a_graph_with_few_triangles_has_no_smoothed_sweeps():
    factors = [Factor.of((v, v + 1), np.arange(4).reshape(2, 2)) for v in range(5)]
    local = LocalProblem(0, (), tuple(range(6)), tuple(factors), np.full(6, 2))
    assert dual.DualState(local, triangles=True, backend=TIMED).initial_temperature == 0


def test_no_sweeps_are_smoothed_without_a_time_budget():
    assert dual.DualState(dense(0, n=5), triangles=True).initial_temperature == 0
    assert dual.DualState(dense(0, n=5), triangles=True, backend=TIMED).initial_temperature > 0
