"""Joins and eliminations of sparse tables give the tables of dense ones, and take the rows that were planned."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import naive
from support.encoded_problems import problems

from dmcmc import Factor
from dmcmc.inference import tuning
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.automaton import automaton_of
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.inference.sparse import sparse_table as sparse_elimination
from dmcmc.inference.sparse.sparse_table import (
    KeyTooWide,
    SparseBackedTable,
    SparseQuery,
    SparseTable,
    all_values,
    as_rows,
    eliminate_sparse,
    forecast,
    join,
    maximise_over,
    project_keys,
    sparse_table_of,
)

ARITHMETIC = Arithmetic(np.dtype(np.int64), -(2**61), 2**60 - 1)
MAX_ROWS = 10**6


@st.composite
def sparse_tables(draw, count):
    """Draw domain sizes of 5 variables, and sparse tables over up to 3 of them: any density, entries of any size."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    domains, tables = rng.integers(1, 4, 5), []
    for _ in range(count):
        scope = tuple(rng.permutation(5)[: rng.integers(1, 4)].tolist())
        values = rng.integers(-(2**58), 2**58, tuple(domains[list(scope)]))
        allowed = rng.random(values.shape) < rng.choice([0.0, 0.3, 0.7, 1.0])
        table = EncodedTable(scope, np.where(allowed, values, ARITHMETIC.lowest))
        tables.append(SparseTable.of(table, domains, ARITHMETIC))
    return domains, tables


def dense(table, domains):
    """Return a sparse table as scope and Python numbers of all entries."""
    return table.scope, naive.decoded(table.dense(domains, ARITHMETIC).values, ARITHMETIC)


@given(sparse_tables(2))
def test_a_join_is_the_sum_of_the_dense_tables_and_has_exactly_its_allowed_rows(case):
    domains, (left, right) = case
    both = join(left, right, domains, MAX_ROWS)
    expected = naive.join([dense(left, domains), dense(right, domains)], list(both.scope), domains)
    assert naive.same_numbers(dense(both, domains)[1], expected)
    assert both.rows == int((expected > -naive.INFINITY).sum())
    assert (np.diff(both.keys) > 0).all()


@given(sparse_tables(2), st.integers(1, 4))
def test_a_join_in_pieces_is_the_whole_join_and_ends_at_the_deadline(case, piece):
    domains, (left, right) = case
    whole = join(left, right, domains, MAX_ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmcmc.inference.sparse.sparse_table.MAX_EXAMINED_ENTRIES", piece)
        pieces = join(left, right, domains, MAX_ROWS)
    assert np.array_equal(pieces.keys, whole.keys) and np.array_equal(pieces.values, whole.values)
    if whole.rows:
        with pytest.raises(OutOfTime):
            join(left, right, domains, MAX_ROWS, Deadline(0))


@given(sparse_tables(3))
def test_joins_are_commutative_and_associative(case):
    domains, (a, b, c) = case
    left = join(join(a, b, domains, MAX_ROWS), c, domains, MAX_ROWS)
    right = join(c, join(b, a, domains, MAX_ROWS), domains, MAX_ROWS).reordered(left.scope, domains)
    np.testing.assert_array_equal(left.keys, right.keys)
    np.testing.assert_array_equal(left.values, right.values)


@given(sparse_tables(2))
def test_a_join_is_refused_if_it_has_one_row_more_than_the_limit(case):
    domains, (left, right) = case
    rows = join(left, right, domains, MAX_ROWS).rows
    assert join(left, right, domains, rows).rows == rows
    if rows:
        with pytest.raises(OutOfMemory, match=f"has {rows} rows; the limit is {rows - 1}"):
            join(left, right, domains, rows - 1)


def test_a_join_whose_keys_are_too_wide_is_refused_before_it_is_made():
    domains = np.full(40, 4)
    left, right = (
        SparseTable(tuple(scope), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        for scope in (range(20), range(20, 40))
    )
    with pytest.raises(KeyTooWide, match="keys of 80 bits"):
        join(left, right, domains, MAX_ROWS)


@given(sparse_tables(1), st.data())
def test_maximising_over_variables_is_the_maximum_of_the_dense_table(case, data):
    domains, (table,) = case
    eliminated = data.draw(st.lists(st.sampled_from(table.scope), unique=True))
    remaining = [v for v in table.scope if v not in eliminated]
    message = maximise_over(table, eliminated, domains)
    assert list(message.scope) == remaining
    expected = naive.marginal([dense(table, domains)], eliminated, remaining, domains)
    assert naive.same_numbers(dense(message, domains)[1], expected)
    assert sorted(set(project_keys(table, remaining, domains).tolist())) == message.keys.tolist()


@given(sparse_tables(1), st.integers(0, 4))
def test_joining_all_values_of_a_variable_repeats_the_table_for_each_of_them(case, variable):
    domains, (table,) = case
    assume(variable not in table.scope)
    larger = join(table, all_values(variable, domains, ARITHMETIC), domains, MAX_ROWS)
    assert larger.rows == table.rows * domains[variable]
    same = maximise_over(larger, [variable], domains)
    assert (same.keys.tolist(), same.values.tolist()) == (table.keys.tolist(), table.values.tolist())


@given(sparse_tables(1), st.integers(0, 2**32), st.sampled_from([None, 0, -7]))
def test_every_representation_of_a_factor_has_the_same_allowed_rows(case, seed, default):
    domains, (table,) = case
    shape = tuple(domains[list(table.scope)].tolist())
    listed = np.random.default_rng(seed).random(shape) < 0.5
    default = np.iinfo(np.int64).min if default is None else default  # the smallest integer forbids
    values = table.dense(domains, ARITHMETIC).values
    values = np.where(values == ARITHMETIC.lowest, np.iinfo(np.int64).min, values)
    tuples = np.argwhere(listed).astype(np.int32)
    sparse = SparseFactor(table.scope, shape, tuples, np.append(values[listed], default))
    for factor in (sparse, automaton_of(sparse), Factor(table.scope, sparse.table)):
        rows = sparse_table_of(factor, domains, ARITHMETIC)
        expected = np.where(listed, values, default)
        assert naive.same_numbers(dense(rows, domains)[1], naive.utilities(expected))
        assert rows.rows == int((expected > np.iinfo(np.int64).min).sum())


@given(sparse_tables(1), st.booleans())
def test_a_sparse_table_replaces_a_large_dense_one_only_if_it_takes_at_most_half_of_the_memory(case, wide):
    domains, (table,) = case
    if wide:
        domains, one_row = np.append(domains, 90), np.zeros(1, dtype=np.int64)
        table = join(table, SparseTable((5,), one_row, one_row), domains, MAX_ROWS)
    chosen = SparseBackedTable.where_smaller(table, domains, ARITHMETIC)
    full = table.dense(domains, ARITHMETIC)
    np.testing.assert_array_equal(chosen.values, full.values)
    assert as_rows(chosen, domains, ARITHMETIC).keys.tolist() == table.keys.tolist()
    if isinstance(chosen, SparseBackedTable):
        assert 2 * chosen.nbytes <= full.values.nbytes and full.values.size >= tuning.SMALL_TABLE_ENTRIES
    else:
        assert full.values.size < tuning.SMALL_TABLE_ENTRIES or 2 * table.bytes > full.values.nbytes


@pytest.fixture(autouse=True, scope="module")
def no_elimination_is_small():
    patch = pytest.MonkeyPatch()
    patch.setattr(tuning, "SMALL_STEP_CELLS", 0)
    patch.setattr(tuning, "SMALL_TABLE_ENTRIES", 64)
    patch.setattr("dmcmc.inference.tuning.CELLS_PER_ROW", 1)
    yield
    patch.undo()


def query_of(flat, plan, arithmetic):
    """Return the query of flat tables."""
    domains = plan.program.domains
    parts = [flat.data[begin:end] for begin, end in pairwise(flat.at.tolist())]
    tables = [EncodedTable(s, x.reshape(domains[list(s)])) for s, x in zip(flat.scopes(), parts, strict=True)]
    return SparseQuery(tables, domains, arithmetic)


@given(problems())
def test_a_sparse_elimination_has_the_tables_and_choices_of_the_dense_one(case):
    flat, plan, arithmetic = case
    found, expected = eliminate_sparse(query_of(*case), plan, None), eliminate(flat, plan, arithmetic)
    assert found is not None
    domains, keep = plan.program.domains, sorted({v for t in plan.remaining for v in plan.scope(t)})
    left, right = (
        naive.join(naive.plain_tables([(t.scope, t.values) for t in done.remaining()], arithmetic), keep, domains)
        for done in (found, expected)
    )
    assert naive.same_numbers(left, right)
    for kept in product(*(range(domains[v]) for v in keep)):
        ours, theirs = (dict(zip(keep, map(int, kept), strict=True)) for _ in range(2))
        found.maximise(ours)
        expected.maximise(theirs)
        assert ours == theirs  # even if no value is allowed


@settings(max_examples=150)
@given(problems(), st.integers(80, 800))
def test_a_sparse_elimination_holds_no_more_rows_than_half_of_the_memory(case, memory):
    flat, plan, arithmetic = case
    assume(plan.entries * arithmetic.dtype.itemsize > memory)  # otherwise dense tables fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_elimination, "expected_rows", lambda plan, query: 0.0)  # a wrong estimate
        found = eliminate_sparse(query_of(*case), plan, memory)
    if found is not None:
        messages = found.tables[flat.tables :]
        assert sum(message.rows for message in messages) * 2 * sparse_elimination._BYTES_PER_ROW <= memory


@given(problems(whole=False))
def test_floats_and_small_eliminations_are_left_to_dense_tables(case):
    _, plan, arithmetic = case
    assert not arithmetic.exact and eliminate_sparse(query_of(*case), plan, None) is None


@given(problems(), st.integers(1, 8))
def test_the_forecast_for_full_tables_is_their_size_and_never_grows_if_tables_are_sparser(case, itemsize):
    flat, plan, _ = case
    full = forecast(plan, [1.0] * flat.tables, itemsize)
    messages = [int(plan.sizes[plan.output(b)]) for b in range(plan.buckets)]
    assert full == (plan.buckets, 0, sum(messages), sum(messages), sum(messages) * itemsize)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "SMALL_STEP_CELLS", 0)
        sizes = [forecast(plan, [fill] * flat.tables, itemsize) for fill in (0.0, 0.1, 0.4, 1.0)]
    assert all(low.stored_entries <= high.stored_entries + 1e-9 for low, high in pairwise(sizes))
    assert sizes[-1] == full


@pytest.mark.parametrize("itemsize", [4, 8])
def test_a_forecast_row_takes_its_key_and_its_value(itemsize):
    plan = plan_elimination([(0, 1), (0, 2)], np.array([2, 300, 400]), [0], [1, 2])
    found = forecast(plan, [0.5, 0.2], itemsize)  # a joined entry is allowed with probability 0.1
    rows = (1 - 0.9**2) * 300 * 400
    assert found.sparse_messages == 1 and found.stored_entries == pytest.approx(rows)
    assert found.dense_entries == 300 * 400 and found.bytes == pytest.approx(rows * (8 + itemsize), abs=1)
