"""Dual ascent on the GPU lowers every bound to exactly what the CPU lowers it to; runs under Numba's simulator."""

import numpy as np
import pytest
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.contract.protocol import BoundRequest
from dmcmc.inference.bounds.dual.cuda.batched_ascent import improve_on_gpu
from dmcmc.inference.bounds.dual.cuda.descriptors import triangle_colours, triangle_levels
from dmcmc.inference.bounds.dual.cuda.device_ascent import DeviceDualAscent, fits_gpu, place_on_device
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.device import gpu_problem

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


SCOPES = [(0, 1), (2, 0), (1, 2), (2, 3), (1, 3), (3, 4), (4,), (0, 4), (1, 4), (0,)]


def agent(seed, hard=0.15, scopes=SCOPES, interface=(4,), largest=5, scale=99):
    """Return an agent of five variables with small domains."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(2, largest, 5)
    domains[0] = largest - 1  # the same table width for all agents
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), scale, hard)) for s in scopes]
    hidden = tuple(v for v in range(5) if v not in interface)
    return LocalProblem(0, interface, hidden, tuple(factors), domains.astype(np.int64))


def test_a_triangle_comes_after_all_earlier_ones_with_a_pair_of_it():
    rng = np.random.default_rng(1)
    triangles = np.array([rng.choice(12, 3, replace=False) for _ in range(40)])
    levels = triangle_levels(triangles)
    for t, own in enumerate(triangles):
        before = [levels[s] for s in range(t) if set(own) & set(triangles[s])]
        assert levels[t] == (max(before) + 1 if before else 0)


@pytest.mark.parametrize("pairs, many", [(12, 40), (30, 200), (3, 1), (1, 0)])
def test_triangles_of_a_colour_share_no_pair_and_colours_are_limited_in_size(pairs, many):
    rng = np.random.default_rng(pairs)
    triangles = np.array([rng.choice(pairs, 3, replace=False) for _ in range(many)], dtype=np.int64).reshape(-1, 3)
    colours = triangle_colours(triangles, 8)
    for colour in range(colours.max(initial=-1) + 1):
        own = triangles[colours == colour].ravel()
        assert 0 < own.size == np.unique(own).size
    assert np.bincount(colours, minlength=1).max() <= -(-many // 8) * 8
    assert colours.max(initial=0) <= triangle_levels(triangles).max(initial=0)


def lower(states, rows, found):
    """Lower the bounds of the given rows."""
    for state, own, bounds in zip(states, rows, found, strict=True):
        state.bounds[own] = np.minimum(state.bounds[own], bounds)


@pytest.mark.parametrize(
    "seed, options",
    [
        (0, {"shifts": 17}),  # recentred once
        (0, {"shifts": 17, "together": True}),
        (1, {"hard": 0.6}),
        (6, {"scopes": [(0, 1), (1, 2), (2, 3), (3, 4), (4,)], "shifts": 17}),  # no triangles
        (2, {"interface": (3, 4)}),
        (3, {"scopes": [*SCOPES, (0, 2, 4), (1, 2, 3)]}),
        (4, {"scopes": [*SCOPES, (0, 3, 4), (3, 4), (4, 3, 1, 0)], "interface": (3, 4), "hard": 0.3}),
    ],
)
def test_potentials_and_bounds_equal_the_cpus(seed, options, all_together):
    options = dict(options)
    shifts = options.pop("shifts", 2)
    if options.pop("together", False):
        all_together()
    problems = [agent(seed, **options), agent(100 + seed, **options)]
    here, there = ([DualState(local, triangles=True) for local in problems] for _ in range(2))
    assert all(fits_gpu(state) for state in there)
    batch = place_on_device(there)[0].group
    for state in here:
        state.improve(sweeps=0, rows=())
        state._sweep_whole(shifts)
    ones = [state.sweeps_done for state in there]
    for k, last in enumerate(batch.sweep_whole([0, 1], ones, [one + shifts for one in ones])):
        there[k].record_device_sweeps(last, True)
    rows = [np.arange(0, state.bounds.size, 2) for state in there]
    for state, chosen in zip(here, rows, strict=True):
        state._bound_rows(chosen, 1, None)
    lower(there, rows, batch.bound_rows([0, 1], rows, 1, [None, None]))
    for state, other in zip(here, there, strict=True):
        assert state.sweeps_done == other.sweeps_done
        assert (state.bounds == other.bounds).all()
        for mine, theirs in zip(state.potentials, other.potentials, strict=True):
            assert (mine == theirs).all()
    limits = [np.full(own.size, np.median(s.bounds[own]).astype(np.int64)) for s, own in zip(here, rows, strict=True)]
    for state, chosen, limit in zip(here, rows, limits, strict=True):
        state._bound_rows(chosen, 5, limit)
    lower(there, rows, batch.bound_rows([0, 1], rows, 5, limits))
    for state, other in zip(here, there, strict=True):
        assert (state.bounds == other.bounds).all()


def test_agents_of_all_widths_are_improved_at_once():
    """Agents of different widths, with thresholds, and a second call that continues from the first."""
    problems = [agent(20), agent(21, largest=10, scopes=SCOPES[:6])]
    here, there = ([DualState(local, triangles=True) for local in problems] for _ in range(2))
    backend = Backend("cuda")
    assert improve_on_gpu([BoundRequest(state) for state in there], backend, sweeps=1)
    for state in here:
        state.improve(sweeps=1)
    thresholds = [np.full(s.bounds.size, s.layout.scale.decode(int(np.median(s.bounds)))) for s in here]
    assert improve_on_gpu([BoundRequest(s, None, t) for s, t in zip(there, thresholds, strict=True)], backend, sweeps=2)
    for state, other, limits in zip(here, there, thresholds, strict=True):
        state.prune(limits, sweeps=2)
        assert (state.bounds == other.bounds).all()
        for mine, theirs in zip(state.potentials, other.potentials, strict=True):
            assert (mine == theirs).all()
    here[0].improve(sweeps=3)
    there[0].improve(sweeps=3)  # on the CPU, continuing from the GPU's potentials
    assert (here[0].bounds == there[0].bounds).all()


def test_a_forbidden_row_is_found_infeasible():
    local = agent(7, hard=0.0)
    wall = np.zeros(int(local.domains[4]))
    wall[1] = -np.inf
    local = LocalProblem(0, (4,), local.hidden, (*local.factors, Factor.of((4,), wall)), local.domains)
    state = DualState(local, triangles=True)
    (found,) = DeviceDualAscent([state]).bound_rows([0], [np.arange(state.bounds.size)], 1, [None])
    assert (found == MINUS_INFINITY).tolist() == [x == 1 for x in range(wall.size)]
