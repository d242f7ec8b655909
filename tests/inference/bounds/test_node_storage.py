"""Nodes' tables are kept in 16 bits without a change of any sum, and no triangle is worth more than before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmcmc import Factor
from dmcmc.inference.bounds.branch_and_bound.node_buffers import make_area, make_pool
from dmcmc.inference.bounds.branch_and_bound.node_storage_kernels import MOST, fetch, power_for, store
from dmcmc.inference.bounds.dual.graph import lay_out
from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, LIMIT, THRESHOLD
from dmcmc.inference.dpop.division import LocalProblem

CORNERS = [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]


def graph():
    """Four variables all of which share factors, and a fifth that is the interface."""
    scopes = [*((a, b) for a in range(4) for b in range(a + 1, 4)), (0, 4)]
    factors = tuple(Factor.of(scope, np.zeros((5, 5), dtype=np.int64)) for scope in scopes)
    return lay_out(LocalProblem(0, (4,), (0, 1, 2, 3), factors, np.full(5, 5)), True).hidden


HIDDEN = graph()
WIDTH = 8


def area_of(rng, largest, dead):
    area = make_area(HIDDEN, WIDTH)
    for part, most in ((area.unary, 99), (area.pair, 999), (area.cluster, largest)):
        part[:] = rng.integers(-most, most + 1, part.shape)
        part[rng.random(part.shape) < dead] = DEAD
    area.cluster.flat[0] = -largest
    area.domains[:] = rng.integers(1, 6, area.domains.size)
    area.names[:] = rng.integers(0, WIDTH, area.names.shape)
    return area


def sums_of(area):
    """What every assignment is worth in all tables; and in each triangle."""
    index = np.indices((WIDTH,) * 4)
    total = sum(area.unary[v].astype(np.int64)[index[v]] for v in range(4))
    for e, (a, b) in enumerate(HIDDEN.pairs.tolist()):
        total = total + area.pair[e].astype(np.int64)[index[a], index[b]]
    triangles = [
        sum(
            area.cluster[t, k].astype(np.int64)[index[u], index[v]] for k, (u, v) in enumerate(((a, b), (a, c), (b, c)))
        )
        for t, (a, b, c) in enumerate(HIDDEN.corners.tolist())
    ]
    return total + sum(triangles), triangles


@settings(max_examples=30)
@given(st.integers(0, 9999), st.sampled_from([1, MOST, MOST + 1, 100_000, LIMIT]), st.sampled_from([0.0, 0.2]))
def test_what_is_fetched_adds_up_to_what_was_stored_and_triangles_are_worth_no_more(seed, largest, dead):
    assert HIDDEN.corners.tolist() == [list(corners) for corners in CORNERS]
    area, pool, back = area_of(np.random.default_rng(seed), largest, dead), make_pool(HIDDEN, WIDTH, 3), None
    before, triangles = sums_of(area)
    kept = [part.copy() for part in (area.unary, area.domains, area.names, area.cluster)]
    store(pool, 1, area, HIDDEN)
    back = make_area(HIDDEN, WIDTH)
    fetch(pool, 1, back)
    after, lower = sums_of(back)
    alive = before >= THRESHOLD
    assert (after[alive] == before[alive]).all() and (after[~alive] < THRESHOLD).all()
    assert all((x <= y).all() for x, y in zip(lower, triangles, strict=True))
    assert all((x == y).all() for x, y in zip((back.unary, back.domains, back.names), kept[:3], strict=True))
    assert largest > MOST or (back.cluster == kept[3]).all()


@pytest.mark.parametrize("largest", [0, 1, MOST, MOST + 1, 2 * MOST, 2 * MOST + 2, LIMIT])
def test_the_power_is_the_least_that_fits(largest):
    shift = power_for(np.int32(largest))
    assert largest >> shift <= MOST and (shift == 0 or largest >> (shift - 1) > MOST)
