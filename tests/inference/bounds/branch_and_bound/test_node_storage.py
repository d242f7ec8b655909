"""Storing tables in 16 bits changes no sum, and no triplet region increases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmcmc import Factor
from dmcmc.inference.bounds.branch_and_bound.dual_bounder import (
    make_node_buffer,
    make_working_tables,
)
from dmcmc.inference.bounds.branch_and_bound.node_kernels import MAX_INT16, fetch, shift_for, store
from dmcmc.inference.bounds.dual.graph import lay_out
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE
from dmcmc.inference.dpop.division import LocalProblem

CORNERS = [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]


def graph():
    """Return the hidden graph of four variables that all share factors, with one interface variable."""
    scopes = [*((a, b) for a in range(4) for b in range(a + 1, 4)), (0, 4)]
    factors = tuple(Factor.of(scope, np.zeros((5, 5), dtype=np.int64)) for scope in scopes)
    return lay_out(LocalProblem(0, (4,), (0, 1, 2, 3), factors, np.full(5, 5)), True).hidden


HIDDEN = graph()
WIDTH = 8


def random_tables(rng, largest, forbidden):
    tables = make_working_tables(HIDDEN, WIDTH)
    for table, bound_on_entries in (
        (tables.potentials.unary, 99),
        (tables.potentials.pair, 999),
        (tables.potentials.triangle, largest),
    ):
        table[:] = rng.integers(-bound_on_entries, bound_on_entries + 1, table.shape)
        table[rng.random(table.shape) < forbidden] = FORBIDDEN
    tables.potentials.triangle.flat[0] = -largest
    tables.graph.domains[:] = rng.integers(1, 6, tables.graph.domains.size)
    tables.value_of[:] = rng.integers(0, WIDTH, tables.value_of.shape)
    return tables


def assignment_sums(tables):
    """Return the sums of all assignments over all tables, and over each triplet region."""
    index = np.indices((WIDTH,) * 4)
    total = sum(tables.potentials.unary[v].astype(np.int64)[index[v]] for v in range(4))
    for e, (a, b) in enumerate(HIDDEN.pairs.tolist()):
        total = total + tables.potentials.pair[e].astype(np.int64)[index[a], index[b]]
    triplets = [
        sum(
            tables.potentials.triangle[t, k].astype(np.int64)[index[u], index[v]]
            for k, (u, v) in enumerate(((a, b), (a, c), (b, c)))
        )
        for t, (a, b, c) in enumerate(HIDDEN.corners.tolist())
    ]
    return total + sum(triplets), triplets


@settings(max_examples=30)
@given(
    st.integers(0, 9999),
    st.sampled_from([1, MAX_INT16, MAX_INT16 + 1, 100_000, MAX_MAGNITUDE]),
    st.sampled_from([0.0, 0.2]),
)
def test_stored_tables_keep_all_sums_and_triplets_do_not_increase(seed, largest, forbidden):
    assert HIDDEN.corners.tolist() == [list(corners) for corners in CORNERS]
    tables = random_tables(np.random.default_rng(seed), largest, forbidden)
    buffer = make_node_buffer(HIDDEN, WIDTH, 3)
    before, triplets = assignment_sums(tables)
    stored = [
        table.copy()
        for table in (tables.potentials.unary, tables.graph.domains, tables.value_of, tables.potentials.triangle)
    ]
    store(buffer, 1, tables)
    fetched = make_working_tables(HIDDEN, WIDTH)
    fetch(buffer, 1, fetched)
    after, fetched_triplets = assignment_sums(fetched)
    allowed = before >= FORBIDDEN_BELOW
    assert (after[allowed] == before[allowed]).all() and (after[~allowed] < FORBIDDEN_BELOW).all()
    assert all((x <= y).all() for x, y in zip(fetched_triplets, triplets, strict=True))
    assert all(
        (x == y).all()
        for x, y in zip((fetched.potentials.unary, fetched.graph.domains, fetched.value_of), stored[:3], strict=True)
    )
    assert largest > MAX_INT16 or (fetched.potentials.triangle == stored[3]).all()


@pytest.mark.parametrize("largest", [0, 1, MAX_INT16, MAX_INT16 + 1, 2 * MAX_INT16, 2 * MAX_INT16 + 2, MAX_MAGNITUDE])
def test_the_shift_is_the_smallest_that_fits(largest):
    shift = shift_for(np.int32(largest))
    assert largest >> shift <= MAX_INT16 and (shift == 0 or largest >> (shift - 1) > MAX_INT16)
