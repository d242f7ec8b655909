"""Function filtering keeps every row that can still beat the incumbent, whatever bounds, order and threads are used."""

import dataclasses
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import naive
from support.encoded_problems import HARD, first_bucket, queries
from support.encoded_problems import naive as dense_sum

from dmcmc import Factor
from dmcmc.inference import tuning
from dmcmc.inference.elimination.plan import EliminationQuery, plan_elimination
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.sparse.bucket_rows import RowBuilder
from dmcmc.inference.sparse.function_filtering import (
    ROOT,
    FunctionFiltering,
    MiniBucketRelaxation,
    OutsideBounds,
    z_within,
)
from dmcmc.inference.sparse.join_steps import RowLimits, TooManyRows, steps_of
from dmcmc.inference.sparse.sparse_table import SizeStatistics, SparseTable, total_statistics

MEMORY = 1 << 20
LISTED = st.integers(0, 255)  # bit i: whether table i of a bucket is sparse


@pytest.fixture(autouse=True, scope="module")
def blocks_are_small():
    patch = pytest.MonkeyPatch()
    patch.setattr(tuning, "ROWS_PER_BLOCK", 3)
    patch.setattr(tuning, "MIN_RANGES", 4)
    yield
    patch.undo()


def builder_of(query, listed, threshold=None, outside=(), limits=None):
    """Return the first bucket's message under construction, its tables, and the scope of the message."""
    bucket, tables = first_bucket(query, listed)
    bucket = dataclasses.replace(bucket, outside=outside)
    scope, steps = steps_of(bucket, MiniBucketRelaxation(query.domains, query.arithmetic, 1))
    threshold = query.arithmetic.forbidden_below if threshold is None else threshold
    size = int(query.domains[bucket.variable])
    return RowBuilder(scope, steps, size, query.arithmetic, threshold, limits or RowLimits(10**6)), tables, bucket


@settings(max_examples=100)
@given(queries(), LISTED, st.integers(-20, 20), st.integers(1, 3))
def test_a_row_is_kept_if_and_only_if_its_utility_plus_the_outside_bound_exceeds_the_threshold(
    query, listed, threshold, threads
):
    _, _, bucket = builder_of(query, listed)
    inside = {bucket.variable, *bucket.separator}
    outside = [t for t in query.tables if bucket.variable not in t.scope and inside.issuperset(t.scope)]
    builder, tables, bucket = builder_of(query, listed, threshold, outside)
    message = builder.resume(threads)
    scope = message.scope
    exact = dense_sum(query, (bucket.variable, *scope), tables).max(axis=0)
    kept = exact + dense_sum(query, scope, outside) > threshold
    found = message.dense(query.domains, query.arithmetic)
    np.testing.assert_array_equal(dense_sum(query, scope, [found]), np.where(kept, exact, HARD))
    assert message.rows == np.count_nonzero(kept)
    assert builder.fraction_done == 1.0 or not message.rows


@settings(max_examples=60)
@given(queries(), LISTED)
def test_the_estimate_from_all_ranges_is_the_number_of_candidates_and_a_smaller_sample_changes_no_row(query, listed):
    expected = builder_of(query, listed)[0].resume(1)
    for n_ranges_per_sample in (1, 3):
        builder, _, bucket = builder_of(query, listed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tuning, "SAMPLED_SHARE", 1 / n_ranges_per_sample)
            estimate = builder.estimate_candidates(np.inf)
        message = builder.resume(1)
        np.testing.assert_array_equal(message.keys, expected.keys)
        np.testing.assert_array_equal(message.values, expected.values)
        if n_ranges_per_sample == 1:
            steps_left = len(builder.row_steps.steps) - (1 if builder.start is None else builder.start[0])
            # every row of the message was a candidate of the last step
            assert estimate >= message.rows if steps_left else estimate == 0
            assert estimate <= len(builder.row_steps.steps) * prod(query.domains.tolist()) * max(1, len(bucket.inputs))


@given(queries(), LISTED)
def test_rows_beyond_a_limit_are_refused_and_rows_within_it_are_counted(query, listed):
    needed = RowLimits(10**6, 10**6)
    message = builder_of(query, listed, limits=needed)[0].resume(1)
    message_rows, step_rows = 10**6 - needed.message_rows, 10**6 - needed.step_rows
    assert message_rows == message.rows <= step_rows
    enough = RowLimits(message_rows, step_rows)
    builder_of(query, listed, limits=enough)[0].resume(1)
    assert (enough.message_rows, enough.step_rows) == (0, 0)
    if message_rows:
        for limits in (RowLimits(message_rows - 1, step_rows), RowLimits(message_rows, step_rows - 1)):
            with pytest.raises(TooManyRows):
                builder_of(query, listed, limits=limits)[0].resume(1)


class RefusingDevice:
    """A device that is always worth its time and never has enough memory."""

    def __init__(self):
        self.asked = 0

    def worth(self, seconds):
        assert seconds >= 0
        return True

    def carry(self, builder, ranges, stop):
        self.asked += 1
        assert all(first < last for first, last in ranges)
        assert all(a[1] == b[0] for a, b in pairwise(ranges))  # ranges are consecutive
        return False


@settings(max_examples=60)
@given(queries(), LISTED)
def test_ranges_that_a_device_refuses_are_built_on_the_cpu(query, listed):
    expected, device = builder_of(query, listed)[0].resume(1), RefusingDevice()
    message = builder_of(query, listed)[0].resume(1, row_device=device)
    np.testing.assert_array_equal(message.keys, expected.keys)
    np.testing.assert_array_equal(message.values, expected.values)
    assert device.asked <= 1


def optimum(query):
    """Return the optimum as a Python number, −inf if no assignment is allowed."""
    tables = naive.plain_tables(query.tables, query.arithmetic)
    return naive.marginal(tables, list(range(query.domains.size)), [], query.domains).item()


@settings(max_examples=40)
@given(queries(kinds=("whole",)), st.integers(0, 3), st.integers(1, 9))
def test_neither_order_nor_threads_nor_z_change_the_optimum_and_a_smaller_gap_needs_no_more_rows(query, z, gap):
    best = optimum(query)
    assume(best > HARD)
    rows = []
    for incumbent in (None, best - gap, best - 1):
        answers = []
        for threads, order in ((1, query.order), (2, query.order), (1, query.order[::-1])):
            other = dataclasses.replace(query, order=order)
            work = FunctionFiltering(other, incumbent, z, MEMORY, threads, dense=0)
            answers.append(work.resume().utility)
            rows += [work.size_statistics.stored_entries] if order is query.order and threads == 1 else []
            assert work.bound >= best
        assert answers == [best] * 3
    assert rows[0] >= rows[1] >= rows[2]


@st.composite
def extremes(draw):
    """Draw tables over three variables whose sums come as close to the limits of int64 as the arithmetic allows."""
    domains, limit = np.array([3, 2, 2]), 2**60 - 1
    scopes = draw(st.lists(st.sampled_from([(0,), (0, 1), (2, 0), (1, 2)]), min_size=1, max_size=3))
    entries = [np.iinfo(np.int64).min, -(limit // len(scopes)), limit // len(scopes), -1, 0, 3]
    entry = st.sampled_from(draw(st.lists(st.sampled_from(entries), min_size=1, max_size=3)))
    factors = []
    for scope in scopes:
        shape = domains[list(scope)].tolist()
        values = draw(st.lists(entry, min_size=prod(shape), max_size=prod(shape)))
        factors.append(Factor.of(scope, np.array(values, dtype=np.int64).reshape(shape)))
    arithmetic = choose_arithmetic(factors)
    return EliminationQuery([arithmetic.encode(f) for f in factors], domains, range(3), (), arithmetic)


@settings(max_examples=100)
@given(extremes(), st.integers(0, 2))
def test_the_optimum_is_found_at_the_limits_of_int64(query, z):
    best = optimum(query)
    answer = FunctionFiltering(query, None, z, MEMORY, dense=0).resume()
    assert answer.utility == (None if best == HARD else best)


@settings(max_examples=60)
@given(queries(), st.integers(0, 6), st.data())
def test_a_relaxation_bounds_the_maximum_and_is_exact_if_z_allows_it(query, z, data):
    variables = data.draw(st.lists(st.sampled_from(range(query.domains.size)), unique=True))
    relaxation = MiniBucketRelaxation(query.domains, query.arithmetic, z)
    tables = relaxation(query.tables, variables)
    keep = [v for v in range(query.domains.size) if v not in variables]
    assert all(set(t.scope) <= set(keep) for t in tables)
    exact = dense_sum(query, (*keep, *variables), query.tables)
    exact = exact.max(axis=tuple(range(len(keep), exact.ndim)))
    bound = dense_sum(query, tuple(keep), tables)
    assert (bound >= exact - 1e-9).all()
    if z >= query.domains.size:
        np.testing.assert_allclose(bound, exact, atol=1e-9)
        assert relaxation.margin == 0


@settings(max_examples=60)
@given(queries(), st.integers(0, 6))
def test_inside_bounds_bound_each_message_and_all_bounds_are_exact_if_z_allows_it(query, z):
    exact = plan_elimination(query.scopes, query.domains, query.order)
    outside = OutsideBounds(query, exact, MiniBucketRelaxation(query.domains, query.arithmetic, z))
    is_exact = z >= query.domains.size
    best = dense_sum(query, tuple(range(query.domains.size)), query.tables).max()
    assert outside.total >= best - 1e-9
    assert not is_exact or (
        query.arithmetic.is_lowest(outside.total) if best == HARD else outside.total == pytest.approx(best)
    )
    position = {v: b for b, v in enumerate(query.order)}
    below = {b: {query.order[b]} for b in range(exact.buckets)}
    for b in range(exact.buckets):
        separator, parent = outside.separator(b), outside.parent[b]
        assert parent == (min(position[v] for v in separator) if separator else ROOT)
        if parent != ROOT:
            below[parent] |= below[b]
        tables = [t for t in query.tables if below[b] & set(t.scope)]
        message = dense_sum(query, (*separator, *below[b]), tables)
        message = message.max(axis=tuple(range(len(separator), message.ndim)))
        bound = dense_sum(query, separator, outside.inside_bounds(b))
        assert (bound >= message - 1e-9).all()
        assert not is_exact or np.allclose(bound, message, atol=1e-9)


@settings(max_examples=60)
@given(queries(), st.sampled_from([None, -3, 0, 3]), st.integers(0, 2))
def test_dense_and_sparse_messages_keep_the_same_entries(query, gap, z):
    best = optimum(query)
    incumbent = None if gap is None or best == HARD else query.arithmetic.dtype.type(best - gap).item()
    sparse, dense = (FunctionFiltering(query, incumbent, z, MEMORY, dense=cells).message(0) for cells in (0, 1 << 20))
    assume(dense.scope)  # a number is compared with the incumbent at the end
    sparse = sparse.dense(query.domains, query.arithmetic)
    dense = dense.dense(query.domains, query.arithmetic) if isinstance(dense, SparseTable) else dense
    np.testing.assert_array_equal(dense_sum(query, dense.scope, [sparse]), dense_sum(query, dense.scope, [dense]))


@settings(max_examples=60)
@given(queries(kinds=("real",)), st.integers(0, 2), st.sampled_from([0, 1 << 20]))
def test_no_assignment_that_beats_the_incumbent_by_more_than_the_rounding_error_is_lost(query, z, dense):
    best = optimum(query)
    assume(best > HARD)
    incumbent = best - 2 * query.arithmetic.rounding(len(query.tables) + 1)
    assert FunctionFiltering(query, incumbent, z, MEMORY, dense=dense).resume().utility == pytest.approx(best)


@settings(max_examples=60)
@given(queries(kinds=("whole",)), st.integers(0, 3000), st.sampled_from([0, 1 << 20]))
def test_the_messages_of_a_finished_elimination_fit_the_memory(query, memory, dense):
    work = FunctionFiltering(query, None, 1, memory, dense=dense)
    try:
        answer = work.resume()
    except TooManyRows as error:
        assert "memory" in str(error)
    else:
        assert work.message_bytes <= memory
        assert answer.utility == FunctionFiltering(query, None, 1, MEMORY).resume().utility


@given(st.integers(2, 5), st.integers(2, 4))
def test_a_message_is_refused_if_its_rows_exceed_the_memory_by_one_byte(leaves, size):
    """All factors share variable 0, so its message has a row for every assignment of the others."""
    factors = [Factor.of((0, v), np.arange(size * size).reshape(size, size)) for v in range(1, leaves + 1)]
    arithmetic = choose_arithmetic(factors)
    tables, domains = [arithmetic.encode(f) for f in factors], np.full(leaves + 1, size)
    query = EliminationQuery(tables, domains, range(leaves + 1), (), arithmetic)
    needed = size**leaves * 3 * (8 + arithmetic.dtype.itemsize)
    assert FunctionFiltering(query, None, 1, needed, dense=0).message(0).rows == size**leaves
    with pytest.raises(TooManyRows, match="memory limit"):
        FunctionFiltering(query, None, 1, needed - 1, dense=0).message(0)


@given(queries(kinds=("whole",)), st.integers(0, 10**4))
def test_z_within_a_number_of_cells_never_falls_if_more_cells_are_allowed(query, cells):
    assert z_within(query, cells) <= z_within(query, 2 * cells + 1)


@settings(max_examples=30)
@given(queries(kinds=("whole",)), st.sampled_from([0, 1 << 20]))
def test_statistics_and_progress_describe_the_finished_messages(query, dense):
    work = FunctionFiltering(query, None, 1, MEMORY, dense=dense)
    with pytest.raises(OutOfTime):
        work.resume(Deadline(until=0.0))
    assert work.messages == [] and work.message_progress == (1.0, 0.0)
    assume(work.resume().utility is not None)
    plan = plan_elimination(query.scopes, query.domains, query.order)
    found = work.size_statistics
    assert [m.variable for m in work.messages] == list(query.order)
    assert [m.entries for m in work.messages] == [plan.sizes[plan.output(b)] for b in range(plan.buckets)]
    assert found.messages == plan.buckets and found.dense_entries >= found.stored_entries
    assert found.bytes == work.message_bytes == sum(m.bytes for m in work.messages)
    assert found.sparse_messages == sum(m.is_sparse for m in work.messages)
    assert total_statistics([found, found]) == SizeStatistics(*(2 * n for n in found))
