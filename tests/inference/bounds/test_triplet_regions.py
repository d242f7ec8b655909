"""Triangles for four-cycles are chosen where tables disagree, keep bounds valid and are exact on a cycle."""

from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.calibration import CalibratedBoundState
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import add_triangles
from dmcmc.inference.bounds.dual.triplet_regions import frustrated_cycle_triangles
from dmcmc.inference.bounds.mini_bucket import MiniBucketState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.runtime.compile import kernels_supplied_by

RING = [(0, 1), (1, 2), (2, 3), (0, 3)]
GRID = [*RING, (2, 4), (4, 5), (3, 5), (5,), (0,)]  # two cycles of four, and one of six


def agent(seed, scopes=GRID, hard=0.0, most=4, interface=()):
    """Return an agent with random factors over the given scopes."""
    rng = np.random.default_rng(seed)
    n = 1 + max(v for scope in scopes for v in scope)
    domains = rng.integers(2, most, n)
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), 99, hard)) for s in scopes]
    hidden = tuple(v for v in range(n) if v not in interface)
    return LocalProblem(0, interface, hidden, tuple(factors), domains.astype(np.int64))


def decoded(state):
    """Return the bounds of all rows as utilities."""
    return [state.layout.scale.decode(int(bound)) for bound in state.bounds]


def utility(layout, shares, values):
    """Return the sum of all entries that an assignment selects."""
    total = sum(int(shares.unary[v, x]) for v, x in enumerate(values))
    for e, (a, b) in enumerate(layout.whole.pairs):
        total += int(shares.pair[e, values[a], values[b]])
    for t, (a, b, c) in enumerate(layout.whole.corners):
        ab, ac, bc = shares.triangle[t]
        total += int(ab[values[a], values[b]]) + int(ac[values[a], values[c]]) + int(bc[values[b], values[c]])
    return total


@settings(max_examples=20)
@given(st.integers(0, 9999), st.sampled_from([0.0, 0.3]), st.sampled_from([(), (4,), (0, 5)]))
def test_bounds_stay_valid_for_all_rows(seed, hard, interface):
    local = agent(seed, hard=hard, interface=interface)
    state, values = DualState(local, triangles=True), naive.row_values(local).ravel().tolist()
    for sweeps in (3, 4, 6):
        state.improve(sweeps=sweeps)
        state.tighten()
        assert all(bound >= value for bound, value in zip(decoded(state), values, strict=True))


@settings(max_examples=20)
@given(st.integers(0, 9999))
def test_adding_triangles_changes_no_utility(seed):
    state = DualState(agent(seed), triangles=True)
    state.improve(sweeps=1)
    before, layout, shares = (
        state.layout,
        *add_triangles(state.layout, state.potentials, [(0, 1, 2), (0, 2, 3), (2, 3, 4)]),
    )
    for values in product(*(range(d) for d in before.whole.domains)):
        assert utility(before, state.potentials, values) == utility(layout, shares, values)


@settings(max_examples=20)
@given(st.integers(0, 9999))
def test_cycles_whose_maximum_is_below_the_sum_of_their_tables_maxima_are_found(seed):
    state = DualState(agent(seed, RING), triangles=True)
    state.improve(sweeps=3)
    pair, domains = state.potentials.pair, state.layout.whole.domains
    index = {tuple(p): e for e, p in enumerate(state.layout.whole.pairs.tolist())}
    tables = [pair[index[p]][: domains[p[0]], : domains[p[1]]].astype(np.int64) for p in RING]
    best = max(
        sum(int(table[x[a], x[b]]) for table, (a, b) in zip(tables, RING, strict=True))
        for x in product(*(range(d) for d in domains))
    )
    found = frustrated_cycle_triangles(state.layout, state.potentials, 9)
    assert bool(found) == (sum(int(t.max()) for t in tables) > best)
    assert sorted(found) in ([], [(0, 1, 2), (0, 2, 3)], [(0, 1, 3), (1, 2, 3)])


def ring_of_two_colours():
    """Return a cycle of three pairs that prefer equal values and one that prefers different ones."""
    same, other = [[1, 0], [0, 1]], [[0, 1], [1, 0]]
    tables = [np.array(t) * 64 for t in (same, same, same, other)]
    return LocalProblem(
        0, (), (0, 1, 2, 3), tuple(Factor.of(s, t) for s, t in zip(RING, tables, strict=True)), np.full(4, 2)
    )


def test_a_cycle_that_pairs_cannot_bound_exactly_is_bounded_exactly():
    pairs, more = DualState(ring_of_two_colours(), triangles=False), DualState(ring_of_two_colours(), triangles=True)
    for state in (pairs, more):
        state.improve(sweeps=3)
        state.tighten()
        state.improve(sweeps=20)
    assert decoded(pairs) == [256] and decoded(more) == [192]


def test_the_calibrated_bound_uses_cycle_triangles_and_keeps_its_layout():
    state = CalibratedBoundState(ring_of_two_colours(), False)
    state.dual.improve(sweeps=3)
    for _ in range(9):
        state.cycles.ascend(0.1)
    assert decoded(state.dual) == [192] and not len(state.dual.layout.whole.triangles)


def test_the_calibrated_bound_begins_without_the_kernels_of_mini_buckets(monkeypatch):
    stepped, step = [], MiniBucketState.step
    monkeypatch.setattr(MiniBucketState, "step", lambda state: stepped.append(1) or step(state))
    state = CalibratedBoundState(agent(3), triangles=True)
    nothing_ready = SimpleNamespace(supply=lambda *_: None, request=lambda *_: 0.0, is_ready=lambda *_: False)
    with kernels_supplied_by(nothing_ready):
        state.improve(seconds=0.2)
    assert state.dual.sweeps_done > 1 and not stepped
    state.improve(seconds=0.2)
    assert stepped


def test_a_branch_and_bound_search_fixes_the_layout():
    from dmcmc.inference.bounds.search_rows import create_boundary_search

    state = DualState(agent(3, interface=(4,)), triangles=True)
    state.improve(sweeps=4)
    create_boundary_search(state, 1 << 20)
    before = state.layout
    state.tighten()
    assert state.layout is before and all(a <= b for a, b in pairwise(sorted(before.whole.pairs[:, 0])))
