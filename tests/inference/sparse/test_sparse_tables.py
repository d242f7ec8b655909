"""Sparse tables give the results of dense ones, and only rows that cannot beat the incumbent are filtered out."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clock import ExpiresAfterChecks
from support.encoded_problems import HARD, first_bucket, naive, queries

from dmcmc.inference import tuning
from dmcmc.inference.elimination.plan import EliminationQuery, plan_elimination
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.factor import Factor, choose_arithmetic
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.sparse.bucket_rows import RowBuilder
from dmcmc.inference.sparse.function_filtering import FunctionFiltering, MiniBucketRelaxation, OutsideBounds
from dmcmc.inference.sparse.join_steps import RowLimits, TooManyRows, steps_of
from dmcmc.inference.sparse.sparse_table import KeyTooWide, SparseTable, fields_of


def best(query):
    return naive(query, tuple(range(query.domains.size)), query.tables).max()


def as_floats(query, table):
    return np.where(table.values > query.arithmetic.forbidden_below, table.values.astype(float), HARD)


@pytest.fixture(autouse=True, scope="module")
def no_size_is_small():
    patch = pytest.MonkeyPatch()
    patch.setattr("dmcmc.inference.tuning.ROWS_PER_BLOCK", 3)
    patch.setattr("dmcmc.inference.tuning.MIN_RANGES", 4)
    patch.setattr(tuning, "SMALL_STEP_CELLS", 2)
    patch.setattr(tuning, "MIN_COMPRESSION", 2)
    yield
    patch.undo()


@given(queries())
def test_a_sparse_table_is_the_same_in_any_order_and_converts_back_to_dense(query):
    for table in query.tables:
        sparse = SparseTable.of(table, query.domains, query.arithmetic)
        assert (np.diff(sparse.keys) > 0).all()
        reversed_table = sparse.reordered(table.scope[::-1], query.domains)
        assert (np.diff(reversed_table.keys) > 0).all()
        values = reversed_table.dense(query.domains, query.arithmetic).values.transpose()
        np.testing.assert_array_equal(values, table.values)
        for entry in product(*map(range, table.values.shape)):
            found = sparse.entry(dict(zip(table.scope, entry, strict=True)), query.domains)
            assert found == (None if table.values[entry] < -1000 else table.values[entry])


@settings(max_examples=150, deadline=None)
@given(queries(), st.integers(0, 255))
def test_a_bucket_of_sparse_and_dense_tables_gives_the_message_of_dense_ones(query, sparse):
    bucket, tables = first_bucket(query, sparse)
    variable, scope = bucket.variable, bucket.separator
    expected = naive(query, (variable, *scope), tables).max(axis=0)
    relax = MiniBucketRelaxation(query.domains, query.arithmetic, 1)
    key_scope, steps = steps_of(bucket, relax)
    size, threshold = int(query.domains[variable]), query.arithmetic.forbidden_below
    message = RowBuilder(key_scope, steps, size, query.arithmetic, threshold, RowLimits(10**6)).resume(1)
    assert (np.diff(message.keys) > 0).all()
    found = message.reordered(scope, query.domains).dense(query.domains, query.arithmetic)
    np.testing.assert_array_equal(as_floats(query, found), expected)


@settings(max_examples=150, deadline=None)
@given(queries(), st.integers(0, 3), st.sampled_from([None, -1, 0, 1]), st.sampled_from([0, 1, 1 << 20]))
def test_exactly_the_assignments_that_beat_the_incumbent_are_found(query, z, gap, dense):
    optimum = best(query)
    incumbent = None if gap is None or optimum == HARD else query.arithmetic.dtype.type(optimum - gap).item()
    answer = FunctionFiltering(query, incumbent, z, 1 << 20, dense=dense).resume()
    if optimum == HARD or (incumbent is not None and gap <= 0):
        assert answer.utility is None and answer.values is None
    else:
        assert answer.utility == optimum
        assert sum(as_floats(query, t)[tuple(answer.values[list(t.scope)])] for t in query.tables) == optimum


@given(queries(), st.integers(0, 2))
def test_outside_bounds_are_upper_bounds(query, z):
    exact = plan_elimination(query.scopes, query.domains, query.order)
    outside = OutsideBounds(query, exact, MiniBucketRelaxation(query.domains, query.arithmetic, z))
    below = {b: {b} for b in range(exact.buckets)}
    for b in range(exact.buckets):
        if outside.parent[b] >= 0:
            below[outside.parent[b]] |= below[b]
    for b in range(exact.buckets):
        inside = {query.order[c] for c in below[b]}
        separator = outside.separator(b)
        rest = [t for t in query.tables if not inside & set(t.scope)]
        others = tuple(v for v in range(query.domains.size) if v not in inside and v not in separator)
        true = naive(query, (*separator, *others), rest)
        true = true.max(axis=tuple(range(len(separator), true.ndim)))
        assert (naive(query, separator, outside.bounds_of(b)) >= true - 1e-9).all()


@given(queries(kinds=("whole",)), st.integers(0, 19))
def test_an_interrupted_elimination_resumes(query, checks):
    expected = FunctionFiltering(query, None, 1, 1 << 20, dense=0).resume()
    work = FunctionFiltering(query, None, 1, 1 << 20, dense=0)
    for _ in range(1000):
        try:
            answer = work.resume(ExpiresAfterChecks(checks))
            break
        except OutOfTime:
            checks += 1
    assert answer.utility == expected.utility


def wide(n, size=3):
    """Return a query whose first message has all other variables."""
    rng = np.random.default_rng(0)
    factors = [Factor.of((0, v), rng.integers(0, 9, (size, size))) for v in range(1, n)]
    arithmetic = choose_arithmetic(factors)
    return EliminationQuery([arithmetic.encode(f) for f in factors], np.full(n, size), range(n), (), arithmetic)


def test_a_small_bucket_is_dense_without_sampling_rows(monkeypatch):
    monkeypatch.setattr(RowBuilder, "__init__", None)
    work = FunctionFiltering(wide(12), None, 2, 1 << 30, dense=1)
    message = work.message(0)
    assert work.joined == {0}
    assert isinstance(message, EncodedTable)


def test_rows_that_exceed_the_memory_or_the_limit_are_refused():
    with pytest.raises(TooManyRows, match="memory"):
        FunctionFiltering(wide(9), None, 2, 3000, dense=0).resume()
    with pytest.raises(TooManyRows, match="number of rows"):
        FunctionFiltering(wide(9), None, 2, 1 << 20, work=1000, dense=0).resume()
    with pytest.raises(TooManyRows, match="number of rows"):  # dense tables count as work too
        FunctionFiltering(wide(12), None, 2, 1 << 30, work=1000, dense=1).resume()


def test_scopes_that_exceed_a_packed_key_are_refused():
    with pytest.raises(KeyTooWide, match="64 bits; the limit is 62"):
        fields_of(range(32), np.full(32, 3))


def test_an_incumbent_avoids_most_rows():
    query = wide(9)
    free = FunctionFiltering(query, None, 2, 1 << 20, dense=0)
    filtered = FunctionFiltering(query, round(best(query)) - 1, 2, 1 << 20, dense=0)
    assert free.resume().utility == filtered.resume().utility
    assert sum(m.rows for m in filtered.messages) < sum(m.rows for m in free.messages) / 10


def test_a_nearly_full_message_becomes_a_dense_table():
    query = wide(4)
    work = FunctionFiltering(query, None, 3, 1 << 20, dense=0)
    work.resume()
    assert isinstance(work._inputs[1][0].table, EncodedTable)
