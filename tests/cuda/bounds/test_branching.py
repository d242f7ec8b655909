"""Search in rows on the GPU finds the nodes that the CPU finds, to the bit; runs under Numba's simulator."""

from dataclasses import replace

import numpy as np
import pytest
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.branch_and_bound.cuda.engine import GpuEngine
from dmcmc.inference.bounds.branch_and_bound.engine import CpuEngine, run_waves
from dmcmc.inference.bounds.branch_and_bound.frontier import Tree
from dmcmc.inference.bounds.branch_and_bound.node_buffers import (
    JOB,
    JOB_ROW,
    JOB_SOURCE,
    JOB_SWEEPS,
    JOB_TARGET,
    JOB_THRESHOLD,
    STUCK,
    UNDONE,
    Wave,
    slot_bytes,
)
from dmcmc.inference.bounds.dual.cuda.device_ascent import places
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.device import gpu_problem

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


SCOPES = [(0, 1), (2, 0), (1, 2), (2, 3), (1, 3), (3, 4), (4,), (0, 4), (1, 4), (0,)]


def agent(seed, hard, scopes, largest):
    """An agent with an interface variable, five variables in all."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(2, largest, 5)
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), 99, hard)) for s in scopes]
    return LocalProblem(0, (4,), (0, 1, 2, 3), tuple(factors), domains.astype(np.int64))


def tree_of(state, slots):
    live = state.shares.unary[: state.layout.n_hidden] >= THRESHOLD
    tree = Tree(live, state.bounds, state.layout.scale, slots)
    rows = np.arange(state.bounds.size)
    limits = np.full(rows.size, NEVER)
    tree.begin(state.bounds, rows, limits, limits)
    return tree


def forget_tables(tree):
    """Take all slots away, as if others had needed them."""
    tree._free += [slot for slot in tree._open.slot.tolist() if slot >= 0]
    tree._open.slot[:] = -1


@pytest.mark.parametrize(
    "seeds, hard, scopes, largest",
    [
        ((0, 4), 0.0, SCOPES, 5),
        ((1,), 0.4, SCOPES, 5),
        ((2,), 0.0, [*SCOPES, (0, 2, 4), (1, 2, 3)], 5),
        ((3,), 0.0, SCOPES, 11),
    ],
)
def test_waves_of_all_agents_are_the_cpus(seeds, hard, scopes, largest, exact_memory):
    locals_, slots = [agent(seed, hard, scopes, largest) for seed in seeds], 9
    here, there = ([DualState(local, triangles=True) for local in locals_] for _ in range(2))
    places(there)  # together
    engines = [
        [CpuEngine(state, slots * slot_bytes(state.layout.hidden, state.width)) for state in here],
        [GpuEngine(state) for state in there],
    ]
    trees = [[tree_of(state, slots) for state in states] for states in (here, there)]
    for turn in range(4 if len(seeds) == 1 else 2):
        for tree in [*trees[0], *trees[1]] if turn == 3 else []:
            forget_tables(tree)
        chosen = [[tree.wave(2, 2, 1, 1) for tree in own] for own in trees]
        found = [
            run_waves([(engine, wave) for engine, (_, wave) in zip(own, waves, strict=True)], NO_STOP)
            for own, waves in zip(engines, chosen, strict=True)
        ]
        for mine, other, one, two in zip(*chosen, *found, strict=True):
            assert mine[1].jobs.tolist() == other[1].jobs.tolist()
            assert one.bounds.tolist() == two.bounds.tolist()
            assert one.variables.tolist() == two.variables.tolist()
            branching = one.variables >= 0
            assert one.firsts[branching].tolist() == two.firsts[branching].tolist()
            assert (one.masks[branching] == two.masks[branching]).all()
        for own, waves, results in zip(trees, chosen, found, strict=True):
            for tree, (nodes, wave), one in zip(own, waves, results, strict=True):
                tree.take(nodes, wave, one)
        assert [tree.bounds()[1].tolist() for tree in trees[0]] == [tree.bounds()[1].tolist() for tree in trees[1]]


def test_a_row_without_tables_is_worth_nothing_with_any_values_either():
    local = agent(0, 0.0, SCOPES, 5)
    first = np.arange(local.domains[4]) == 0
    local = replace(local, factors=(*local.factors, Factor.of((4,), np.where(first, -np.inf, 0))))
    for engine in (CpuEngine(DualState(local, triangles=True), 1 << 20), GpuEngine(DualState(local, triangles=True))):
        layout = engine.state.layout
        jobs = np.zeros((4, JOB), dtype=np.int64)
        jobs[:, JOB_ROW], jobs[:, JOB_SWEEPS], jobs[:, JOB_THRESHOLD] = [0, 0, 0, 1], 1, NEVER
        jobs[:, JOB_SOURCE], jobs[:, JOB_TARGET] = [-1, 0, 0, -1], [0, 1, 0, 2]
        masks = np.repeat((layout.shares.unary[: layout.n_hidden] >= THRESHOLD)[None], 4, axis=0)
        (found,) = run_waves([(engine, Wave(jobs, np.array([0, 3, 4]), masks))], NO_STOP)
        assert found.bounds[:3].tolist() == [NEVER] * 3 and found.variables[:3].tolist() == [STUCK] * 3
        assert found.bounds[3] > NEVER


def test_a_wave_for_which_there_is_no_time_is_left_undone():
    state = DualState(agent(0, 0.0, SCOPES, 5), triangles=True)
    engine, tree, rows = GpuEngine(state), tree_of(state, 5), np.arange(state.bounds.size)
    chosen, wave = tree.wave(2, 2, 1, 1)
    (found,) = run_waves([(engine, wave)], Stop(until=0.0))
    assert (found.bounds == UNDONE).all()
    tree.take(chosen, wave, found)
    assert tree.size == rows.size and tree.bounds()[1].tolist() == state.bounds.tolist()
