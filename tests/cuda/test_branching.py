"""Search in rows on the GPU finds the nodes that the CPU finds, to the bit; runs under Numba's simulator."""

import numpy as np
import pytest
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.branching.cuda.engine import GpuEngine
from dmcmc.inference.bounds.branching.pool import UNDONE, slot_bytes
from dmcmc.inference.bounds.branching.search import CpuEngine
from dmcmc.inference.bounds.branching.tree import Tree
from dmcmc.inference.bounds.dual.scale import NEVER, THRESHOLD
from dmcmc.inference.bounds.dual.state import DualState
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


@pytest.mark.parametrize(
    "seed, hard, scopes, largest",
    [(0, 0.0, SCOPES, 5), (1, 0.4, SCOPES, 5), (2, 0.0, [*SCOPES, (0, 2, 4), (1, 2, 3)], 5), (3, 0.0, SCOPES, 11)],
)
def test_waves_are_the_cpus(seed, hard, scopes, largest, exact_memory):
    local = agent(seed, hard, scopes, largest)
    here, there = (DualState(local, triangles=True) for _ in range(2))
    slots = 9
    engines = [CpuEngine(here, slots * slot_bytes(here.layout.hidden, here.width)), GpuEngine(there, 1)]
    engines[1].slots = slots
    hidden = here.shares.unary[: here.layout.n_hidden]
    trees = [Tree(hidden >= THRESHOLD, here.bounds, here.layout.scale, slots) for _ in engines]
    rows = np.arange(here.bounds.size)
    limits = np.full(rows.size, NEVER)
    for tree in trees:
        tree.begin(here.bounds, rows, limits, limits)
    for _ in range(4):
        waves = [tree.wave(2, 2, 1) for tree in trees]
        found = [engine.run(wave, NO_STOP) for engine, (_, wave) in zip(engines, waves, strict=True)]
        assert waves[0][1].jobs.tolist() == waves[1][1].jobs.tolist()
        assert found[0].bounds.tolist() == found[1].bounds.tolist()
        assert found[0].variables.tolist() == found[1].variables.tolist()
        branching = found[0].variables >= 0
        assert found[0].values[branching].tolist() == found[1].values[branching].tolist()
        assert (found[0].masks[branching] == found[1].masks[branching]).all()
        for tree, (chosen, wave), one in zip(trees, waves, found, strict=True):
            tree.take(chosen, wave, one)
        assert trees[0].bounds()[1].tolist() == trees[1].bounds()[1].tolist()


def test_a_wave_for_which_there_is_no_time_is_left_undone():
    state = DualState(agent(0, 0.0, SCOPES, 5), triangles=True)
    engine = GpuEngine(state, 1)
    tree = Tree(state.shares.unary[: state.layout.n_hidden] >= THRESHOLD, state.bounds, state.layout.scale, 5)
    rows = np.arange(state.bounds.size)
    tree.begin(state.bounds, rows, np.full(rows.size, NEVER), np.full(rows.size, NEVER))
    chosen, wave = tree.wave(2, 2, 1)
    found = engine.run(wave, Stop(until=0.0))
    assert (found.bounds == UNDONE).all()
    tree.take(chosen, wave, found)
    assert tree.size == rows.size and tree.bounds()[1].tolist() == state.bounds.tolist()
