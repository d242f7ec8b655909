"""Smoothed sweeps on the GPU: bounds are valid and close to the CPU's, whose sums are added up in another order."""

import numpy as np
import pytest
from support import naive
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.branch_and_bound.bounder import NodeWork, run_batches
from dmcmc.inference.bounds.branch_and_bound.cuda.dual_bounder import GpuDualBounder
from dmcmc.inference.bounds.branch_and_bound.dual_bounder import (
    CpuDualBounder,
    entry_bytes,
)
from dmcmc.inference.bounds.branch_and_bound.frontier import Frontier
from dmcmc.inference.bounds.contract.tuning import MAX_FRONTIER_BYTES, MAX_TEMPERATURE_RATIO
from dmcmc.inference.bounds.dual.cuda.device_ascent import place_on_device
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import mean_standard_deviation
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW, MINUS_INFINITY
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import MIN_ANNEALED_SWEEPS
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import gpu_problem

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

TIMED = Backend(stop=Deadline(1e12))


def dense(seed, hard):
    """Return an agent whose four variables all share factors; the last one is its interface."""
    rng = np.random.default_rng(seed)
    scopes = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    factors = [Factor.of(s, random_table(rng, (3, 3), 1000, hard)) for s in scopes]
    return LocalProblem(0, (3,), (0, 1, 2), tuple(factors), np.full(4, 3))


def smoothed_states(seed, hard, ratio):
    """Return two states of an agent whose initial temperature is ``ratio`` times the usual one."""
    states = [DualState(dense(seed, hard), triangles=True, backend=TIMED) for _ in range(2)]
    for state in states:
        # With so few triangles the temperature would be 0.
        state.initial_temperature = np.float32(
            ratio * MAX_TEMPERATURE_RATIO / 3 * mean_standard_deviation(state.potentials)
        )
    return states


def sums_of(shares):
    """Return the sum of all tables for every assignment of the four variables."""
    unary, pair, cluster = (part[..., :3].astype(np.int64) for part in shares[:3])
    total = np.zeros((3,) * 4, dtype=np.int64)
    places_ = {pair: k for k, pair in enumerate([(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)])}
    index = np.indices(total.shape)
    for v in range(4):
        total += unary[v][index[v]]
    for (a, b), k in places_.items():
        total += pair[k][index[a], index[b]]
    for t, (a, b, c) in enumerate([(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]):
        for k, (u, v) in enumerate(((a, b), (a, c), (b, c))):
            total += cluster[t, k][index[u], index[v]]
    return total


@pytest.mark.parametrize(
    "seed, hard, temperature, alone", [(0, 0.0, 1.0, True), (1, 0.3, 0.01, True), (2, 0.1, 1.0, False)]
)
def test_bounds_are_valid_and_close_to_the_cpus(seed, hard, temperature, alone, all_together):
    if not alone:
        all_together()
    here, there = smoothed_states(seed, hard, temperature)
    batch = place_on_device([there])[0].group
    before = sums_of(there.potentials)
    here._sweep_whole(2)
    assert batch.sweep_whole([0], [there.sweeps_done], [there.sweeps_done + 2]) == [here.sweeps_done]
    there.record_device_sweeps(here.sweeps_done, True)
    after = sums_of(there.potentials)
    alive = before >= FORBIDDEN_BELOW
    assert (before[alive] == after[alive]).all()  # no utility changes, whatever the temperature
    rows = np.arange(1)
    here._bound_rows(rows, MIN_ANNEALED_SWEEPS, None)
    (found,) = batch.bound_rows([0], [rows], MIN_ANNEALED_SWEEPS, [None])
    assert there.layout.scale.decode(int(found[0])) >= naive.row_values(there.local).ravel()[0]
    assert abs(int(found[0]) - int(here.bounds[0])) <= 1e-3 * np.abs(here.bounds).max()


def test_bounds_of_nodes_are_valid_and_close_to_the_cpus():
    here, there = smoothed_states(3, 0.0, 1.0)
    bounders = CpuDualBounder(here, 9 * entry_bytes(here.layout.hidden, here.width)), GpuDualBounder(there)
    worth, found = naive.row_values(here.local).ravel().tolist(), []
    for state, bounder in zip((here, there), bounders, strict=True):
        rows, limits = np.arange(state.bounds.size), np.full(state.bounds.size, MINUS_INFINITY)
        tree = Frontier(
            state.potentials.unary[:3] >= FORBIDDEN_BELOW, state.bounds, state.layout.scale, 9, MAX_FRONTIER_BYTES
        )
        tree.begin(state.bounds, rows, limits, limits)
        for _ in range(2):  # a row, then both branches of it
            chosen, wave = tree.next_batch(1, NodeWork(*[MIN_ANNEALED_SWEEPS] * 3))
            tree.record(chosen, wave, run_batches([(bounder, wave)], NO_DEADLINE)[0])
        found.append(tree.bounds()[1])
        assert all(state.layout.scale.decode(int(w)) >= u for w, u in zip(found[-1], worth, strict=True))
    assert (np.abs(found[0] - found[1]) <= 1e-3 * np.abs(found[0]).max()).all()
