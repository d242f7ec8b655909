"""The kernels of sparse rows give the results of loops over assignments, up to the limits of int64."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive

from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.sparse.join_steps import RowLayout, lay_out_lookups, lay_out_partner
from dmcmc.inference.sparse.row_kernels import (
    best_of,
    extend,
    fill_vectors,
    find,
    join_rows,
    radix_sort,
    repack,
    starts_of,
)
from dmcmc.inference.sparse.sparse_table import KEY_BITS, SparseTable, bits_of, fields_of, group_by_variable

EDGE = 2**60 - 1  # the largest total of utilities in int64
KINDS = {
    "int32": Arithmetic(np.dtype(np.int32), -(2**29), 2**28 - 1),
    "int64": Arithmetic(np.dtype(np.int64), -(2**61), EDGE),
    "float64": Arithmetic(np.dtype(np.float64), -np.inf, 1e6),
}
VARIABLE, ADDED = 0, 3  # the bucket's variable, and a variable that a step adds to rows over 1 and 2
SEEDS = st.integers(0, 2**32)


class RowCase:
    """Rows over the variables 1 and 2, with tables that are added to them and tables that bound the rest.

    The first table has entries at the limits of the arithmetic; all sums stay within them. Numbers are multiples of a
    quarter at most, so that sums of floats are exact.
    """

    def __init__(self, seed, kind):
        self.rng, self.arithmetic = np.random.default_rng(seed), KINDS[kind]
        self.domains = self.rng.integers(1, 5, 5)
        self.exact = [self.table(s, 5) for s in self.scopes()]
        self.bounds = [self.table(s, 5) for s in self.scopes()]
        self.threshold = self.rng.choice(
            [self.arithmetic.forbidden_below, max(60 - EDGE, self.arithmetic.forbidden_below), -5, 3]
        )
        self.rows = self.vectors_over((1, 2))

    def scopes(self):
        """Return up to three scopes over the variables of the rows, the bucket's one and the added one."""
        return [self.rng.permutation(4)[: self.rng.integers(0, 4)].tolist() for _ in range(self.rng.integers(0, 4))]

    def table(self, scope, size, density=0.8, offsets=(0,)):
        """Return an encoded table with entries in ±size around one of the offsets; the others are forbidden."""
        shape = tuple(self.domains[list(scope)])
        entries = self.rng.integers(-size, size + 1, shape) + self.rng.choice(offsets, shape)
        entries = np.asarray(entries if self.arithmetic.exact else entries / 4).astype(self.arithmetic.dtype)
        allowed = self.rng.random(shape) < density
        return EncodedTable(tuple(scope), np.where(allowed, entries, self.arithmetic.lowest_scalar))

    def vectors_over(self, scope):
        """Return a sparse table over a scope and the bucket's variable, with entries at the limits of int64."""
        edges = (0, 50 - EDGE, EDGE - 50) if self.arithmetic.dtype == np.int64 else (0,)
        return SparseTable.of(self.table((*scope, VARIABLE), 5, 0.5, edges), self.domains, self.arithmetic)

    def lookups(self, scope, added=None):
        present = {*scope, VARIABLE, added}
        exact, bounds = ([t for t in group if present.issuperset(t.scope)] for group in (self.exact, self.bounds))
        return lay_out_lookups(exact, bounds, RowLayout(scope, VARIABLE, added, self.domains), self.arithmetic)

    def limits(self):
        number = np.int64 if self.arithmetic.exact else np.float64
        return self.arithmetic.lowest_scalar, number(self.threshold)

    def survivors(self, scope, joined):
        """Return the rows that a loop over assignments keeps: their packed keys and the utilities of all values."""
        kept = {}
        groups = [
            [(t.scope, naive.decoded(t.values, self.arithmetic)) for t in g if {*scope, VARIABLE}.issuperset(t.scope)]
            for g in (self.exact, self.bounds)
        ]
        for assignment in product(*(range(self.domains[v]) for v in scope)):
            vector = []
            for x in range(self.domains[VARIABLE]):
                values = {**dict(zip(scope, assignment, strict=True)), VARIABLE: x}
                utility = sum(t.entry(values, self.domains) or 0 for t in joined)
                if any(t.entry(values, self.domains) is None for t in joined):
                    utility = -naive.INFINITY
                utility, bound = (
                    utility + sum(t[tuple(values[v] for v in s)] for g in some for s, t in g)
                    for some in (groups[:1], groups)
                )
                vector.append(utility if bound > max(self.threshold, -naive.INFINITY) else -naive.INFINITY)
            if max(vector) > -naive.INFINITY:
                kept[packed(scope, assignment, self.domains)] = vector
        return kept

    def check(self, keys, vectors, expected):
        """Compare rows with those of :meth:`survivors`, which are in the order of their keys."""
        assert keys.tolist() == sorted(expected)
        for key, vector in zip(keys.tolist(), vectors, strict=True):
            assert naive.same_numbers(naive.decoded(vector, self.arithmetic), expected[key])


def packed(scope, assignment, domains):
    key = 0
    for v, value in zip(scope, assignment, strict=True):
        key = key << bits_of(domains[v]) | value
    return key


def rows_of(case):
    """Return the rows of a case that agree with no table yet: keys and vectors."""
    grouped = group_by_variable(case.rows, (1, 2), VARIABLE, case.domains)
    vectors = np.full((grouped.keys.size, case.domains[VARIABLE]), case.arithmetic.lowest, case.arithmetic.dtype)
    for e in range(grouped.keys.size):
        part = slice(grouped.start[e], grouped.start[e + 1])
        vectors[e, grouped.x[part]] = grouped.values[part]
    return grouped.keys, vectors


def in_blocks(case, block, step, *arguments):
    """Run a step that can be resumed in output blocks of some size; return all rows and the number of candidates."""
    at, keys, vectors = np.zeros(3, dtype=np.int64), [], []
    while at[0] < arguments[0].size:
        out = np.empty(block, dtype=np.int64), np.empty((block, case.domains[VARIABLE]), case.arithmetic.dtype)
        count = step(*arguments, *case.limits(), at, *out)
        keys.append(out[0][:count])
        vectors.append(out[1][:count])
    return np.concatenate([*keys, np.zeros(0, dtype=np.int64)]), [v for part in vectors for v in part], int(at[2])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(seed=SEEDS, block=st.integers(1, 9))
def test_extended_rows_are_those_whose_bound_exceeds_the_threshold_in_blocks_of_any_size(kind, seed, block):
    case = RowCase(seed, kind)
    size = int(case.domains[ADDED])
    lookups = case.lookups((1, 2), ADDED)
    keys, vectors, candidates = in_blocks(case, block, extend, *rows_of(case), lookups, size, bits_of(size))
    case.check(keys, vectors, case.survivors((1, 2, ADDED), [case.rows]))
    assert candidates == size * rows_of(case)[0].size


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(seed=SEEDS, block=st.integers(1, 9), shared=st.sampled_from([(), (1,), (2, 1)]))
def test_joined_rows_are_those_whose_bound_exceeds_the_threshold_in_blocks_of_any_size(kind, seed, block, shared):
    case = RowCase(seed, kind)
    partner = SparseTable.of(case.table((*shared, ADDED, VARIABLE), 5, 0.5), case.domains, case.arithmetic)
    lookups = case.lookups((1, 2, ADDED))
    layout = lay_out_partner(partner, (1, 2), [ADDED], VARIABLE, case.domains)
    keys, vectors, _ = in_blocks(case, block, join_rows, *rows_of(case), lookups, layout)
    case.check(keys, vectors, case.survivors((1, 2, ADDED), [case.rows, partner]))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(seed=SEEDS, cut=st.floats(0, 1))
def test_initial_rows_are_the_vectors_whose_bound_exceeds_the_threshold_in_ranges_of_any_size(kind, seed, cut):
    case = RowCase(seed, kind)
    table = group_by_variable(case.rows, (1, 2), VARIABLE, case.domains)
    middle, keys, vectors = int(cut * table.keys.size), [], []
    for first, last in ((0, middle), (middle, table.keys.size)):
        out = (
            np.empty(last - first, dtype=np.int64),
            np.empty((last - first, case.domains[VARIABLE]), case.rows.values.dtype),
        )
        count = fill_vectors(table, first, last, case.lookups((1, 2)), *case.limits(), *out)
        keys += out[0][:count].tolist()
        vectors += list(out[1][:count])
    case.check(np.array(keys, dtype=np.int64), vectors, case.survivors((1, 2), [case.rows]))


@given(SEEDS)
def test_the_best_of_a_row_is_its_maximum(seed):
    vectors = np.random.default_rng(seed).normal(size=(5, 3))
    out = np.empty(5)
    best_of(vectors, out)
    np.testing.assert_array_equal(out, vectors.max(axis=1))


def keys_of(rng, bits):
    """Return up to 50 keys of some bits, with repetitions."""
    return rng.choice(rng.integers(0, 2**bits, 20), rng.integers(1, 50))


@given(SEEDS, st.integers(0, KEY_BITS), st.booleans())
def test_the_radix_sort_is_stable(seed, bits, sorted_before):
    keys = keys_of(np.random.default_rng(seed), bits)
    keys = np.sort(keys) if sorted_before else keys
    order, positions = np.argsort(keys, kind="stable"), np.arange(keys.size)
    expected = keys[order]
    radix_sort(keys, positions, bits)
    np.testing.assert_array_equal(keys, expected)
    np.testing.assert_array_equal(positions, order)


@given(SEEDS, st.integers(0, 12))
def test_runs_start_where_the_high_bits_change_and_every_key_is_found(seed, shift):
    keys = np.unique(keys_of(np.random.default_rng(seed), 14))
    high, first = np.unique(keys >> shift, return_index=True)
    assert starts_of(keys, shift).tolist() == [*first.tolist(), keys.size]
    for key in range(int(keys[0]) - 2, int(keys[-1]) + 3, 1 + 2**9):
        assert find(keys, keys.size, key) == (keys.tolist().index(key) if key in keys else -1)
    assert [find(keys, keys.size, key) for key in keys] == list(range(keys.size))
    assert high.size == starts_of(keys, shift).size - 1


@given(SEEDS)
def test_packed_keys_are_in_the_order_of_the_assignments_and_fields_can_be_moved(seed):
    rng = np.random.default_rng(seed)
    domains = rng.integers(1, 5, 4)
    scope, other = rng.permutation(4).tolist(), rng.permutation(4)[: rng.integers(0, 5)].tolist()
    fields, target = fields_of(scope, domains), fields_of(other, domains)
    assignments = list(product(*(range(domains[v]) for v in scope)))
    keys = np.array([packed(scope, values, domains) for values in assignments])
    assert (np.diff(keys) > 0).all() and keys[-1] < 2**fields.bits
    unpacked = (keys[:, None] >> fields.shift) & fields.mask
    np.testing.assert_array_equal(unpacked, np.array(assignments).reshape(unpacked.shape))
    columns = [scope.index(v) for v in other]
    moved = repack(keys, fields.shift[columns], fields.mask[columns], target.shift)
    assert moved.tolist() == [packed(other, [values[c] for c in columns], domains) for values in assignments]
