"""Searches of the same rows that hold parts of the open nodes: together sound, exact at the end, evenly busy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.branch_and_bound.open_nodes import planned_moves
from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearchRequest,
    SearchedPart,
    run_boundary_searches,
)
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.search_rows import create_boundary_search
from dmcmc.inference.dpop.division import LocalProblem

PAIRS = [(0, 1), (0, 2), (1, 2), (2, 3), (1, 3), (3, 4), (0, 4), (2, 4), (1, 4)]
MEMORY = 1 << 20  # bytes for the nodes of a search


def agent(seed, hard):
    """Return an agent with one boundary variable and four hidden ones."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(3, 9, 5)
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), 99, hard)) for s in PAIRS]
    return LocalProblem(0, (4,), (0, 1, 2, 3), tuple(factors), domains.astype(np.int64))


def exchange(searches, nodes_per_rank):
    """Move nodes between searches as ranks do; return the number of nodes moved."""
    moved = 0
    for move in planned_moves([search.best_excesses(nodes_per_rank) for search in searches], nodes_per_rank):
        parcel = searches[move.source].give(move.nodes)
        searches[move.target].take(parcel)
        moved += parcel.row.size
    return moved


@settings(max_examples=15)
@given(seed=st.integers(0, 9999), hard=st.sampled_from([0.0, 0.3]), parts=st.integers(2, 4))
def test_parts_of_a_search_are_sound_together_and_end_with_the_exact_rows(seed, hard, parts):
    local = agent(seed, hard)
    exact = np.array(naive.row_values(local).ravel().tolist())
    states = [DualState(local, triangles=True) for _ in range(parts)]
    kinds = [SearchedPart.SHARED] + [SearchedPart.RECEIVED] * (parts - 1)
    searches = [create_boundary_search(state, MEMORY, part=kind) for state, kind in zip(states, kinds, strict=True)]
    before = [state.bounds.copy() for state in states]
    no_cutoff, scale = np.full(local.rows, -math.inf), states[0].layout.scale
    for _ in range(200):
        for search in searches:
            run_boundary_searches([BoundarySearchRequest(search, no_cutoff, no_cutoff)], batches=1)
        together = np.full(local.rows, np.iinfo(np.int64).min)
        for search in searches:
            rows, bounds = search.part_bounds()
            together[rows] = np.maximum(together[rows], bounds)
        assert (np.array([scale.decode(int(bound)) for bound in together]) >= exact).all()
        exchange(searches, 4)
        if all(search.exhausted for search in searches):
            break
    assert np.array_equal([scale.decode(int(bound)) for bound in together], exact)
    assert all(np.array_equal(state.bounds, bounds) for state, bounds in zip(states, before, strict=True))
    leaves = [search.leaves() for search in searches]
    assert any(found is not None for found in leaves) or not np.isfinite(exact).any()


def test_every_part_works_on_some_nodes():
    local = agent(3, 0.0)
    searches = [
        create_boundary_search(DualState(local, triangles=False), MEMORY, part=part)
        for part in (SearchedPart.SHARED, SearchedPart.RECEIVED, SearchedPart.RECEIVED)
    ]
    no_cutoff, moved = np.full(local.rows, -math.inf), 0
    for _ in range(6):
        for search in searches:
            run_boundary_searches([BoundarySearchRequest(search, no_cutoff, no_cutoff)], batches=1)
        moved += exchange(searches, 2)
    assert moved > 0 and all(search.nodes > 0 for search in searches)


@settings(max_examples=200)
@given(
    best=st.lists(st.one_of(st.none(), st.lists(st.integers(0, 50), max_size=12)), min_size=1, max_size=6),
    per_rank=st.integers(1, 8),
)
def test_moves_even_out_the_best_nodes(best, per_rank):
    excesses = [None if one is None else np.sort(np.array(one, dtype=np.int64))[::-1] for one in best]
    held = {rank: one.size for rank, one in enumerate(excesses) if one is not None}
    moves = planned_moves(excesses, per_rank)
    after = dict(held)
    for move in moves:
        assert move.nodes > 0 and move.source in held and move.target in held
        after[move.source] -= move.nodes
        after[move.target] += move.nodes
    assert all(after[rank] >= 1 for rank in held if held[rank]), "a rank with nodes keeps one"
    assert {move.source for move in moves}.isdisjoint(move.target for move in moves)
    if held and sum(held.values()) >= 2 * len(held) and per_rank * len(held) >= sum(held.values()):
        assert max(after.values()) - min(after.values()) <= 1


@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_part_gives_at_most_half_of_its_nodes_and_no_node_is_lost(count):
    local = agent(5, 0.0)
    search = create_boundary_search(DualState(local, triangles=False), MEMORY, part=SearchedPart.SHARED)
    no_cutoff = np.full(local.rows, -math.inf)
    run_boundary_searches([BoundarySearchRequest(search, no_cutoff, no_cutoff)], batches=1)
    nodes = search.best_excesses(1000)
    given_nodes = search.give(count)
    left = search.best_excesses(1000)
    assert given_nodes.row.size == min(count, nodes.size // 2)
    assert left.size + given_nodes.row.size == nodes.size and left[0] == nodes[0]
    search.take(given_nodes)
    assert np.array_equal(search.best_excesses(1000), nodes)
