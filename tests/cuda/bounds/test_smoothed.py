"""Warm sweeps on the GPU: bounds hold and are near the CPU's, whose sums are added up in another order."""

import numpy as np
import pytest
from support import naive
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.branch_and_bound.cuda.engine import GpuEngine
from dmcmc.inference.bounds.branch_and_bound.engine import CpuEngine, run_waves
from dmcmc.inference.bounds.branch_and_bound.frontier import Tree
from dmcmc.inference.bounds.branch_and_bound.node_buffers import slot_bytes
from dmcmc.inference.bounds.dual.cuda.device_ascent import places
from dmcmc.inference.bounds.dual.dual_bound import WARMTH, DualState
from dmcmc.inference.bounds.dual.graph import spread
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import LEAST_SWEEPS
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.device import gpu_problem

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

TIMED = Backend(stop=Stop(1e12))


def dense(seed, hard):
    """An agent all of whose four variables share factors; the last one is its interface."""
    rng = np.random.default_rng(seed)
    scopes = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    factors = [Factor.of(s, random_table(rng, (3, 3), 1000, hard)) for s in scopes]
    return LocalProblem(0, (3,), (0, 1, 2), tuple(factors), np.full(4, 3))


def warm_states(seed, hard, warmth):
    """Two states of an agent, with sweeps as warm as said."""
    states = [DualState(dense(seed, hard), triangles=True, backend=TIMED) for _ in range(2)]
    for state in states:
        state.warmth = np.float32(warmth * WARMTH / 3 * spread(state.shares))  # with so few triangles there is none
    return states


def sums_of(shares):
    """What every assignment of the four variables is worth in all tables."""
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


@pytest.mark.parametrize("seed, hard, warmth, alone", [(0, 0.0, 1.0, True), (1, 0.3, 0.01, True), (2, 0.1, 1.0, False)])
def test_bounds_hold_and_are_near_the_cpus(seed, hard, warmth, alone, all_together):
    if not alone:
        all_together()
    here, there = warm_states(seed, hard, warmth)
    batch = places([there])[0].group
    before = sums_of(there.shares)
    here._shift(2)
    assert batch.shift([0], [there.done], [there.done + 2]) == [here.done]
    there.moved(here.done, True)
    after = sums_of(there.shares)
    alive = before >= THRESHOLD
    assert (before[alive] == after[alive]).all()  # no sum of shares changes, whatever a temperature does
    rows = np.arange(1)
    here._run(rows, LEAST_SWEEPS, None)
    ((found, _),) = batch.run([0], [rows], LEAST_SWEEPS, [None])
    assert there.layout.scale.decode(int(found[0])) >= naive.row_values(there.local).ravel()[0]
    assert abs(int(found[0]) - int(here.bounds[0])) <= 1e-3 * np.abs(here.bounds).max()


def test_nodes_bounds_hold_and_are_near_the_cpus():
    here, there = warm_states(3, 0.0, 1.0)
    engines = CpuEngine(here, 9 * slot_bytes(here.layout.hidden, here.width)), GpuEngine(there)
    worth, found = naive.row_values(here.local).ravel().tolist(), []
    for state, engine in zip((here, there), engines, strict=True):
        rows, limits = np.arange(state.bounds.size), np.full(state.bounds.size, NEVER)
        tree = Tree(state.shares.unary[:3] >= THRESHOLD, state.bounds, state.layout.scale, 9)
        tree.begin(state.bounds, rows, limits, limits)
        for _ in range(2):  # a row, then both branches of it
            chosen, wave = tree.wave(1, LEAST_SWEEPS, LEAST_SWEEPS, LEAST_SWEEPS)
            tree.take(chosen, wave, run_waves([(engine, wave)], NO_STOP)[0])
        found.append(tree.bounds()[1])
        assert all(state.layout.scale.decode(int(w)) >= u for w, u in zip(found[-1], worth, strict=True))
    assert (np.abs(found[0] - found[1]) <= 1e-3 * np.abs(found[0]).max()).all()
