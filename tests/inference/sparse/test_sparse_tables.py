"""Incomplete tables give what dense ones give; what is filtered out cannot beat the incumbent."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.encoded_problems import HARD, first_bucket, naive, queries

from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.model.arithmetic import Table, choose_arithmetic
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.sparse import bucket_rows, function_filtering
from dmcmc.inference.sparse.bucket_rows import Making, Room, TooMuch
from dmcmc.inference.sparse.function_filtering import Filtering
from dmcmc.inference.sparse.join_steps import steps_of
from dmcmc.inference.sparse.outside_bounds import Outside, Relaxing
from dmcmc.inference.sparse.sparse_table import Incomplete, TooWide, fields_of


def best(query):
    return naive(query, tuple(range(query.domains.size)), query.tables).max()


def as_floats(query, table):
    return np.where(table.values > query.arithmetic.threshold, table.values.astype(float), HARD)


@pytest.fixture(autouse=True, scope="module")
def nothing_is_small():
    patch = pytest.MonkeyPatch()
    patch.setattr(bucket_rows, "_BLOCK", 3)
    patch.setattr(bucket_rows, "_RANGES", 4)
    patch.setattr(function_filtering, "_LARGE", 2)
    patch.setattr(function_filtering, "_LITTLE", 2)
    yield
    patch.undo()


@given(queries())
def test_a_table_is_the_same_incomplete_in_any_order_and_dense_again(query):
    for table in query.tables:
        listed = Incomplete.of(table, query.domains, query.arithmetic)
        assert (np.diff(listed.keys) > 0).all()
        turned = listed.reordered(table.scope[::-1], query.domains)
        assert (np.diff(turned.keys) > 0).all()
        values = turned.dense(query.domains, query.arithmetic).values.transpose()
        np.testing.assert_array_equal(values, table.values)
        for entry in product(*map(range, table.values.shape)):
            found = listed.entry(dict(zip(table.scope, entry, strict=True)), query.domains)
            assert found == (None if table.values[entry] < -1000 else table.values[entry])


@settings(max_examples=150, deadline=None)
@given(queries(), st.integers(0, 255))
def test_a_bucket_of_incomplete_and_dense_tables_gives_what_dense_ones_give(query, listed):
    joined, tables = first_bucket(query, listed)
    variable, scope = joined.variable, joined.separator
    expected = naive(query, (variable, *scope), tables).max(axis=0)
    relax = Relaxing(query.domains, query.arithmetic, 1)
    own, steps = steps_of(joined, relax)
    size, threshold = int(query.domains[variable]), query.arithmetic.threshold
    message = Making(own, steps, size, query.arithmetic, threshold, Room(10**6)).go_on(1)
    assert (np.diff(message.keys) > 0).all()
    found = message.reordered(scope, query.domains).dense(query.domains, query.arithmetic)
    np.testing.assert_array_equal(as_floats(query, found), expected)


@settings(max_examples=150, deadline=None)
@given(queries(), st.integers(0, 3), st.sampled_from([None, -1, 0, 1]), st.sampled_from([0, 1, 1 << 20]))
def test_what_beats_the_incumbent_is_found_and_nothing_else(query, z, apart, dense):
    optimum = best(query)
    incumbent = None if apart is None or optimum == HARD else query.arithmetic.dtype.type(optimum - apart).item()
    answer = Filtering(query, incumbent, z, 1 << 20, dense=dense).go_on()
    if optimum == HARD or (incumbent is not None and apart <= 0):
        assert answer.utility is None and answer.values is None
    else:
        assert answer.utility == optimum
        assert sum(as_floats(query, t)[tuple(answer.values[list(t.scope)])] for t in query.tables) == optimum


@given(queries(), st.integers(0, 2))
def test_what_is_outside_of_a_bucket_is_bounded_from_above(query, z):
    exact = plan_elimination(query.scopes, query.domains, query.order)
    outside = Outside(query, exact, Relaxing(query.domains, query.arithmetic, z))
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
        assert (naive(query, separator, outside.of(b)) >= true - 1e-9).all()


@given(queries(kinds=("whole",)), st.integers(1, 20))
def test_an_interrupted_elimination_goes_on_where_it_was(query, looks):
    class Impatient(Stop):
        left_over = looks

        @property
        def left(self):
            object.__setattr__(self, "left_over", self.left_over - 1)
            return self.left_over

    expected = Filtering(query, None, 1, 1 << 20, dense=0).go_on()
    work = Filtering(query, None, 1, 1 << 20, dense=0)
    for _ in range(1000):
        try:
            answer = work.go_on(Impatient())
            break
        except OutOfTime:
            looks += 1
            Impatient.left_over = looks
    assert answer.utility == expected.utility


def wide(n, size=3):
    """A query whose first bucket has all other variables in its message."""
    rng = np.random.default_rng(0)
    factors = [Factor.of((0, v), rng.integers(0, 9, (size, size))) for v in range(1, n)]
    arithmetic = choose_arithmetic(factors)
    return Query([arithmetic.encode(f) for f in factors], np.full(n, size), range(n), (), arithmetic)


def test_a_bucket_that_rows_are_not_worth_beginning_for_is_dense_without_a_sample(monkeypatch):
    monkeypatch.setattr(Making, "__init__", None)
    work = Filtering(wide(12), None, 2, 1 << 30, dense=1)
    message = work.message(0)
    assert work.joined == {0}
    assert isinstance(message, Table)


def test_rows_beyond_the_memory_or_the_work_are_refused():
    with pytest.raises(TooMuch, match="memory"):
        Filtering(wide(9), None, 2, 3000, dense=0).go_on()
    with pytest.raises(TooMuch, match="work"):
        Filtering(wide(9), None, 2, 1 << 20, work=1000, dense=0).go_on()
    with pytest.raises(TooMuch, match="work"):  # dense tables are work, too
        Filtering(wide(12), None, 2, 1 << 30, work=1000, dense=1).go_on()


def test_keys_that_have_no_room_are_refused():
    with pytest.raises(TooWide, match="64 bits, and have 62"):
        fields_of(range(32), np.full(32, 3))


def test_with_an_incumbent_most_rows_are_not_made():
    query = wide(9)
    free = Filtering(query, None, 2, 1 << 20, dense=0)
    filtered = Filtering(query, round(best(query)) - 1, 2, 1 << 20, dense=0)
    assert free.go_on().utility == filtered.go_on().utility
    assert sum(m.rows for m in filtered.messages) < sum(m.rows for m in free.messages) / 10


def test_a_dense_table_is_what_a_full_message_becomes():
    query = wide(4)
    work = Filtering(query, None, 3, 1 << 20, dense=0)
    work.go_on()
    assert isinstance(work._inputs[1][0].table, Table)
