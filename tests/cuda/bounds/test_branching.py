"""Search in rows on the GPU finds the nodes that the CPU finds, to the bit; runs under Numba's simulator."""

import numpy as np
import pytest
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.branching.cuda.engine import GpuEngine
from dmcmc.inference.bounds.branching.engine import CpuEngine, run_waves
from dmcmc.inference.bounds.branching.pool import UNDONE, slot_bytes
from dmcmc.inference.bounds.branching.tree import Tree
from dmcmc.inference.bounds.dual.cuda.device import places
from dmcmc.inference.bounds.dual.scale import NEVER
from dmcmc.inference.bounds.dual.state import DualState
from dmcmc.inference.bounds.dual.tables.entries import THRESHOLD
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
    for _ in range(4 if len(seeds) == 1 else 2):
        chosen = [[tree.wave(2, 2, 1) for tree in own] for own in trees]
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


def test_a_wave_for_which_there_is_no_time_is_left_undone():
    state = DualState(agent(0, 0.0, SCOPES, 5), triangles=True)
    engine, tree, rows = GpuEngine(state), tree_of(state, 5), np.arange(state.bounds.size)
    chosen, wave = tree.wave(2, 2, 1)
    (found,) = run_waves([(engine, wave)], Stop(until=0.0))
    assert (found.bounds == UNDONE).all()
    tree.take(chosen, wave, found)
    assert tree.size == rows.size and tree.bounds()[1].tolist() == state.bounds.tolist()
