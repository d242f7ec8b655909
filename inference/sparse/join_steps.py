"""The steps of a join of sparse tables.

Plan how the rows of a bucket's message are made: the first table, what each step adds, and the bounds at each step.

The largest sparse table comes first. The other sparse tables are joined with it, those with the fewest matches per row
first. Then the remaining variables are added one by one, first those that complete tables with many −∞ entries. A dense
table is added as soon as all of its variables are present. Until then it bounds the rows, together with the bounds on
everything outside the bucket's subtree. The variables that are not present yet are eliminated from these tables with
mini-buckets, in the reverse order of the steps; this yields the bounds of all steps at once. The steps are run by
:mod:`dmcmc.inference.sparse.bucket_rows`.

Lay out the tables of a bucket in the form that the kernels of sparse rows read.

The layouts are made once per step by :mod:`dmcmc.inference.sparse.join_steps` and read by
:mod:`dmcmc.inference.sparse.row_kernels` and its GPU version.

Carry rows through the steps of a bucket: joins with tables and new variables, one block of rows at a time.

Eliminate a variable with dense tables, and drop the entries of its message that cannot beat the incumbent.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.tables import spread
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.runtime.types import Array, Ints, Number
from dmcmc.inference.sparse.row_kernels import best_of, extend, fill_vectors, join_rows, starts_of
from dmcmc.inference.sparse.sparse_table import (
    GroupedTable,
    KeyTooWide,
    SparseTable,
    bits_of,
    fields_of,
    group_by_variable,
    size_of,
    strides,
)
from dmcmc.inference.tuning import ROWS_PER_BLOCK, SMALL_STEP_CELLS


class LookupTables(NamedTuple):
    """Dense tables in which the entries for a row are looked up.

    The first ``exact`` tables are added to the row; the others bound the contribution of tables that are not joined
    yet.

    Attributes
    ----------
    exact : int
        Number of tables that are added.
    offset : (tables,) int64
        Offset of each table in ``data``.
    field_start : (tables + 1,) int64
        Table t depends on the key fields ``field_start[t]`` to ``field_start[t + 1]`` − 1 of the following arrays.
    shift, mask, stride : (fields,) int64
        Shift and mask of the field in the key, and the table's stride of its variable.
    x_stride, y_stride : (tables,) int64
        Stride of the bucket's variable, and of the variable that is being added; 0 if the table does not depend on it.
    data : (entries,)
        The entries of all tables, in the dtype of the arithmetic.
    """

    exact: int
    offset: Ints
    field_start: Ints
    shift: Ints
    mask: Ints
    stride: Ints
    x_stride: Ints
    y_stride: Ints
    data: Array


class JoinPartner(NamedTuple):
    """A sparse table with which rows are joined: vectors over the bucket's variable, grouped by shared variables.

    Attributes
    ----------
    shift, mask, target_shift : (shared variables,) int64
        Shift and mask of each shared variable's field in a row's key, and its shift in the packed values ``shared``.
    shared : (groups,) int64
        Packed values of the shared variables, ascending.
    group_start : (groups + 1,) int64
        First vector of each group.
    new_values : (vectors,) int64
        Packed values of the variables that the join adds.
    start : (vectors + 1,) int64
        Start of each vector's entries in ``x`` and ``values``.
    x : (rows,) int64
        Value of the bucket's variable of each entry.
    values : (rows,)
        Utility of each entry, in the dtype of the arithmetic.
    bits : int
        Number of bits of ``new_values``.
    """

    shift: Ints
    mask: Ints
    target_shift: Ints
    shared: Ints
    group_start: Ints
    new_values: Ints
    start: Ints
    x: Ints
    values: Array
    bits: int


class RowLayout(NamedTuple):
    """Which variables the parts of a row stand for.

    Attributes
    ----------
    scope
        Variables of the keys.
    variable
        The bucket's variable, whose values index the vectors.
    added
        The variable that is being added, or None.
    domains : (variables,) int64
        Domain sizes.
    """

    scope: Sequence[int]
    variable: int
    added: int | None
    domains: Ints


def lay_out_lookups(
    exact: Sequence[EncodedTable], bounds: Sequence[EncodedTable], layout: RowLayout, arithmetic: Arithmetic
) -> LookupTables:
    """Lay out tables for rows: ``exact`` are added to them, ``bounds`` bound what is not joined yet."""
    fields = fields_of(layout.scope, layout.domains)
    position = {v: i for i, v in enumerate(layout.scope)}
    offset, field_start, x_stride, y_stride, data = [0], [0], list[int](), list[int](), list[Array]()
    field_of_axis, stride = list[int](), list[int]()
    for table in (*exact, *bounds):
        sizes = [int(layout.domains[v]) for v in table.scope]
        stride_of = dict(zip(table.scope, strides(sizes).tolist(), strict=True))
        x_stride.append(stride_of.pop(layout.variable, 0))
        y_stride.append(0 if layout.added is None else stride_of.pop(layout.added, 0))
        field_of_axis += [position[v] for v in stride_of]
        stride += stride_of.values()
        field_start.append(len(field_of_axis))
        data.append(np.ascontiguousarray(table.values).reshape(-1))
        offset.append(offset[-1] + data[-1].size)
    field_index = np.array(field_of_axis, dtype=np.int64)
    return LookupTables(
        len(exact),
        np.array(offset[:-1], dtype=np.int64),
        np.array(field_start, dtype=np.int64),
        fields.shift[field_index],
        fields.mask[field_index],
        np.array(stride, dtype=np.int64),
        np.array(x_stride, dtype=np.int64),
        np.array(y_stride, dtype=np.int64),
        np.concatenate([np.zeros(0, dtype=arithmetic.dtype), *data]),
    )


def lay_out_partner(
    table: SparseTable, before: Sequence[int], new: Sequence[int], variable: int, domains: Ints
) -> JoinPartner:
    """Lay out a sparse table for a join with rows over ``before``; the join adds the variables ``new``."""
    shared = [v for v in before if v in table.scope]
    rows = group_by_variable(table, [*shared, *new], variable, domains)
    row_fields = fields_of(before, domains)
    shared_fields = fields_of(shared, domains)
    bits = fields_of(new, domains).bits
    columns = [list(before).index(v) for v in shared]
    group = starts_of(rows.keys, bits)
    return JoinPartner(
        row_fields.shift[columns],
        row_fields.mask[columns],
        shared_fields.shift,
        rows.keys[group[:-1]] >> bits,
        group,
        rows.keys & ((1 << bits) - 1),
        rows.start,
        rows.x,
        rows.values,
        bits,
    )


# From tables and variables to tables whose sum is an upper bound on the maximum of the given tables' sum over these
# variables.
Relax = Callable[[Sequence[EncodedTable], Sequence[int]], list[EncodedTable]]


@dataclass(frozen=True, eq=False)
class BucketInput:
    """A table of a bucket: an input of the problem or a message.

    Attributes
    ----------
    table : EncodedTable or SparseTable
        The table: dense, or the sorted list of its allowed rows.
    bounds : tuple of EncodedTable
        Dense tables whose sum is an upper bound on a sparse table; used until it is joined.
    """

    table: EncodedTable | SparseTable
    bounds: tuple[EncodedTable, ...] = ()

    @classmethod
    def of(cls, table: EncodedTable, domains: Ints, arithmetic: Arithmetic) -> "BucketInput":
        """Return a table as an input; a large table with few allowed entries becomes sparse and is its own bound."""
        if table.values.size >= tuning.SMALL_STEP_CELLS:
            possible = int(np.count_nonzero(table.values > arithmetic.forbidden_below))
            if possible * tuning.MIN_COMPRESSION <= table.values.size:
                with suppress(KeyTooWide):
                    return cls(SparseTable.of(table, domains, arithmetic), (table,))
        return cls(table)

    @property
    def scope(self) -> tuple[int, ...]:
        """The variables of the table."""
        return self.table.scope

    @property
    def dense(self) -> bool:
        """Whether the table is stored with all entries."""
        return isinstance(self.table, EncodedTable)

    @property
    def rows(self) -> int:
        """Number of rows of a sparse table; 0 for a dense one."""
        return self.table.rows if isinstance(self.table, SparseTable) else 0

    @property
    def bounding_tables(self) -> tuple[EncodedTable, ...]:
        """Dense tables whose sum is an upper bound on the table."""
        return (self.table,) if isinstance(self.table, EncodedTable) else self.bounds


@dataclass(frozen=True)
class JoinStep:
    """One step of making rows: the initial rows (``table``), a join (``partner``), or a new variable (neither).

    Attributes
    ----------
    lookups : LookupTables
        Tables that are added in this step, and tables that bound the rows afterwards.
    table : GroupedTable or None
        In the first step: the initial rows, as vectors over the bucket's variable.
    partner : JoinPartner or None
        The sparse table with which rows are joined, grouped by the variables that it shares with the rows.
    size, bits : int
        If a variable is added: its domain size and the width of its field in the keys.
    """

    lookups: LookupTables
    table: GroupedTable | None = None
    partner: JoinPartner | None = None
    size: int = 1
    bits: int = 0


@dataclass(frozen=True)
class Bucket:
    """A bucket: ``variable`` is eliminated from the join of ``inputs``, giving a message over ``separator``.

    ``outside`` are dense tables over subsets of the separator. Their sum is an upper bound on all tables
    outside the bucket's subtree. ``domains`` (variables,) int64 are the domain sizes.
    """

    variable: int
    separator: tuple[int, ...]
    inputs: Sequence[BucketInput]
    outside: Sequence[EncodedTable]
    domains: Ints
    arithmetic: Arithmetic


@dataclass(frozen=True)
class _PlannedStep:
    """A step before its tables are laid out.

    Attributes
    ----------
    table : BucketInput or None
        The sparse table that is joined.
    new : list of int
        The new variables.
    covered : list of BucketInput
        The dense tables that the new variables complete.
    """

    table: BucketInput | None
    new: list[int]
    covered: list[BucketInput]


def steps_of(bucket: Bucket, relax: Relax) -> tuple[tuple[int, ...], list[JoinStep]]:
    """Return the scope of a bucket's message, in the order of its keys, and the steps that make its rows.

    Parameters
    ----------
    bucket
        The bucket.
    relax
        A function of tables and variables that returns tables whose sum is an upper bound on the maximum of the given
        tables' sum over these variables.

    Raises
    ------
    KeyTooWide
        If packed keys cannot hold the scope of the message.
    """
    fields_of(bucket.separator, bucket.domains)
    planned_steps = _StepOrder(bucket).planned_steps()
    # Bounds after each step, last step first: after the last one only the tables outside the subtree are missing.
    bounds: list[list[EncodedTable]] = [list(bucket.outside)]
    for planned in reversed(planned_steps[1:]):
        joined = planned.covered if planned.table is None else [planned.table, *planned.covered]
        later = [*bounds[-1], *(table for bucket_input in joined for table in bucket_input.bounding_tables)]
        bounds.append(relax(later, planned.new))
    scope, steps = list[int](), list[JoinStep]()
    for planned, step_bounds in zip(planned_steps, reversed(bounds), strict=True):
        before, scope = scope, [*scope, *planned.new]
        added = planned.new[0] if steps and planned.table is None else None
        layout = RowLayout(scope if added is None else before, bucket.variable, added, bucket.domains)
        exact = [bucket_input.table for bucket_input in planned.covered if isinstance(bucket_input.table, EncodedTable)]
        lookups = lay_out_lookups(exact, step_bounds, layout, bucket.arithmetic)
        if not steps:
            steps.append(JoinStep(lookups, table=_initial_rows(planned, bucket)))
        elif planned.table is not None and isinstance(planned.table.table, SparseTable):
            other = lay_out_partner(planned.table.table, before, planned.new, bucket.variable, bucket.domains)
            steps.append(JoinStep(lookups, partner=other))
        else:
            size = int(bucket.domains[planned.new[0]])
            steps.append(JoinStep(lookups, size=size, bits=bits_of(size)))
    return tuple(scope), steps


def _initial_rows(planned: _PlannedStep, bucket: Bucket) -> GroupedTable:
    """Return the initial rows: a single row of zeros if there is no sparse table."""
    if planned.table is not None and isinstance(planned.table.table, SparseTable):
        return group_by_variable(planned.table.table, planned.new, bucket.variable, bucket.domains)
    size = int(bucket.domains[bucket.variable])
    zeros = np.zeros(size, dtype=bucket.arithmetic.dtype)
    return GroupedTable(np.zeros(1, dtype=np.int64), np.array([0, size]), np.arange(size), zeros)


class _StepOrder:
    """The greedy choice of the order of a bucket's steps.

    Attributes
    ----------
    scope : list of int
        The variables that are present in the rows so far, in the order of the keys.
    not_added : list of BucketInput
        The tables that no step adds yet.
    steps : list of _PlannedStep
        The steps so far.
    fill : dict of int to float
        Fraction of allowed entries of each dense table, by ``id`` of the table.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.bucket, self.domains = bucket, bucket.domains
        self.scope: list[int] = []
        self.not_added = list(bucket.inputs)
        self.steps: list[_PlannedStep] = []
        self.fill: dict[int, float] = {}

    def planned_steps(self) -> list[_PlannedStep]:
        """Return all steps."""
        self._join(max(self._sparse_inputs(), key=lambda bucket_input: bucket_input.rows, default=None))
        while sparse_inputs := self._sparse_inputs():
            self._join(min(sparse_inputs, key=self._growth))
        missing = [v for v in self.bucket.separator if v not in self.scope]
        while missing:
            v = min(missing, key=self._growth_of)
            missing.remove(v)
            self._add(None, [v])
        return self.steps

    def _sparse_inputs(self) -> list[BucketInput]:
        """Return the sparse tables that are not joined yet."""
        return [bucket_input for bucket_input in self.not_added if not bucket_input.dense]

    def _join(self, table: BucketInput | None) -> None:
        """Join a sparse table; None starts without one."""
        if table is not None:
            self.not_added.remove(table)
        inside = {*self.scope, self.bucket.variable}
        self._add(table, [] if table is None else [v for v in table.scope if v not in inside])

    def _add(self, table: BucketInput | None, new: list[int]) -> None:
        """Append a step with the dense tables that its new variables complete."""
        self.scope += new
        inside = {*self.scope, self.bucket.variable}
        covered = [
            bucket_input
            for bucket_input in self.not_added
            if bucket_input.dense and inside.issuperset(bucket_input.scope)
        ]
        self.not_added = [bucket_input for bucket_input in self.not_added if bucket_input not in covered]
        self.steps.append(_PlannedStep(table, new, covered))

    def _growth(self, table: BucketInput) -> float:
        """Estimate the rows that a sparse table makes of one row: its rows per assignment of the shared variables."""
        shared = [v for v in table.scope if v in self.scope or v == self.bucket.variable]
        return table.rows / size_of(shared, self.domains)

    def _growth_of(self, v: int) -> tuple[float, int]:
        """Return a sort key: estimated rows per row if v is added, then minus the number of completed tables."""
        inside, growth, tables = {*self.scope, self.bucket.variable, v}, float(self.domains[v]), 0
        for table in (*(bucket_input.table for bucket_input in self.not_added), *self.bucket.outside):
            if isinstance(table, EncodedTable) and v in table.scope and inside.issuperset(table.scope):
                growth *= self._fill_of(table)
                tables += 1
        return growth, -tables

    def _fill_of(self, table: EncodedTable) -> float:
        """Return the fraction of a table's entries that are not −∞."""
        if id(table) not in self.fill:
            possible = table.values > self.bucket.arithmetic.forbidden_below
            self.fill[id(table)] = float(np.count_nonzero(possible)) / max(1, table.values.size)
        return self.fill[id(table)]


# Keys (n,) int64 and vectors (n, x_size), one utility per value of the bucket's variable; of finished rows: keys and
# values (n,), the largest utility of each vector.
Rows = tuple[Ints, Array]


class TooManyRows(OutOfMemory):
    """The rows exceed the memory or the admissible work."""


@dataclass
class RowLimits:
    """The rows that may still be made; all threads count on the same object.

    Attributes
    ----------
    message_rows : int
        Remaining rows of the message.
    step_rows : int
        Remaining rows of all steps; the default 2^62 means no limit.
    """

    message_rows: int
    step_rows: int = 1 << 62
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, message_rows: int, step_rows: int) -> None:
        """Count rows of the message and of all steps.

        Raises
        ------
        TooManyRows
            If either count exceeds its limit.
        """
        with self._lock:
            self.message_rows -= message_rows
            self.step_rows -= step_rows
            if self.message_rows < 0:
                raise TooManyRows("a sparse message of an elimination has more rows than fit the memory limit")
            if self.step_rows < 0:
                raise TooManyRows("an elimination exceeds its limit on the number of rows made")


class RowSteps:
    """The steps of a bucket, which rows pass one after another.

    Parameters
    ----------
    steps
        The steps, from :func:`steps_of`.
    size
        Domain size of the bucket's variable.
    arithmetic
        The arithmetic of the tables.
    threshold
        The sum of a row's value and the bound on the remaining tables must exceed it.
    row_limits
        The number of rows that may still be made.

    Attributes
    ----------
    lowest_and_threshold : tuple
        The −∞ of the arithmetic, and the threshold as int64 or float64.
    candidates : int
        Number of candidates that were checked; approximate, because threads update it without a lock.
    """

    def __init__(
        self,
        steps: Sequence[JoinStep],
        size: int,
        arithmetic: Arithmetic,
        threshold: int | float,
        row_limits: RowLimits,
    ) -> None:
        self.steps, self.size, self.row_limits, self.dtype = steps, size, row_limits, arithmetic.dtype
        number = np.int64 if arithmetic.exact else np.float64
        self.lowest_and_threshold = arithmetic.dtype.type(arithmetic.lowest), number(threshold)
        self.candidates = 0

    def finished(self, j: int, rows: Rows, stop: Deadline) -> list[Rows]:
        """Return what rows become in the steps from ``j`` on, in blocks."""
        finished_rows = list[Rows]()
        self._run_steps(j, rows, {}, finished_rows, stop)
        return finished_rows

    def first(self, begin: int, end: int) -> Rows:
        """Return vectors ``begin`` to ``end`` − 1 of the first table as rows."""
        step = self.steps[0]
        assert step.table is not None
        keys, vectors = np.empty(end - begin, dtype=np.int64), np.empty((end - begin, self.size), dtype=self.dtype)
        n_rows = fill_vectors(step.table, begin, end, step.lookups, *self.lowest_and_threshold, keys, vectors)
        return keys[:n_rows], vectors[:n_rows]

    def blocks(self, j: int, rows: Rows, scratch: dict[int, Rows], stop: Deadline) -> Iterator[Rows]:
        """Yield the rows that step ``j`` makes, one block at a time in the same buffers."""
        step, at = self.steps[j], np.zeros(3, dtype=np.int64)
        if j not in scratch:
            scratch[j] = (
                np.empty(ROWS_PER_BLOCK, dtype=np.int64),
                np.empty((ROWS_PER_BLOCK, self.size), dtype=self.dtype),
            )
        keys, vectors = scratch[j]
        while at[0] < rows[0].size:
            stop.check()
            if step.partner is not None:
                n_rows = join_rows(*rows, step.lookups, step.partner, *self.lowest_and_threshold, at, keys, vectors)
            else:
                n_rows = extend(
                    *rows, step.lookups, step.size, step.bits, *self.lowest_and_threshold, at, keys, vectors
                )
            if n_rows:
                yield keys[:n_rows], vectors[:n_rows]
        self.candidates += int(at[2])

    def _run_steps(
        self, j: int, rows: Rows, scratch: dict[int, Rows], finished_rows: list[Rows], stop: Deadline
    ) -> None:
        """Carry rows through the steps from ``j`` on; append each finished block to ``finished_rows``.

        ``scratch`` holds the output block of each step, by its number; it is filled on demand.
        """
        last = j == len(self.steps)
        self.row_limits.count(rows[0].size if last else 0, rows[0].size)
        if last:
            best = np.empty(rows[0].size, dtype=self.dtype)
            best_of(rows[1], best)
            finished_rows.append((rows[0].copy(), best))
            return
        for block in self.blocks(j, rows, scratch, stop):
            self._run_steps(j + 1, block, scratch, finished_rows, stop)


def dense_message(bucket: Bucket, threads: int, stop: Deadline) -> EncodedTable:
    """Return the message of a bucket with all entries.

    Parameters
    ----------
    bucket : Bucket
        The bucket; its sparse input tables are expanded.
    threads : int
        Number of CPU threads.
    stop : Deadline
        When to give up with ``OutOfTime``.
    """
    tables = [bucket_input.table for bucket_input in bucket.inputs]
    dense = [t if isinstance(t, EncodedTable) else t.dense(bucket.domains, bucket.arithmetic) for t in tables]
    plan = plan_elimination([t.scope for t in dense], bucket.domains, [bucket.variable], bucket.separator)
    result = eliminate(dense, plan, bucket.arithmetic, threads, stop=stop).table(plan.output(0))
    return EncodedTable(result.scope, result.values.copy())


def drop_dominated(
    message: EncodedTable,
    bounds: Sequence[EncodedTable],
    threshold: Number,
    arithmetic: Arithmetic,
    threads: int,
    stop: Deadline,
) -> None:
    """Set entries to −∞ whose sum with the outside bounds does not exceed a threshold.

    Parameters
    ----------
    message : EncodedTable
        The message of a bucket; it is changed, in pieces that fit a core's cache.
    bounds : sequence of EncodedTable
        The outside bounds over variables of the message.
    threshold : number
        Number that the sum must exceed.
    arithmetic : Arithmetic
        The number type of all tables.
    threads : int
        Number of CPU threads.
    stop : Deadline
        When to give up with ``OutOfTime``.
    """
    tables = [spread(table.values, table.scope, message.scope) for table in bounds]
    number = np.int64 if arithmetic.exact else np.float64
    lowest, values = number(arithmetic.lowest), message.values
    axes, piece = 0, values.size
    while piece > SMALL_STEP_CELLS and axes < values.ndim:
        piece //= values.shape[axes]
        axes += 1

    def filter_pieces(pieces: Sequence[tuple[int, ...]]) -> None:
        """Filter the pieces at these indices."""
        for index in pieces:
            entries = values[index]
            bound = entries.astype(number)
            for table in tables:
                bound += table[tuple(i if n > 1 else 0 for i, n in zip(index, table.shape, strict=False))]
                np.maximum(bound, lowest, out=bound)
            dominated = bound <= threshold
            dominated |= entries < arithmetic.forbidden_below
            entries[dominated] = arithmetic.lowest

    pieces = list(np.ndindex(values.shape[:axes]))
    per_task = -(-len(pieces) // (4 * threads))  # four tasks per thread, so that all finish together
    tasks = [partial(filter_pieces, pieces[i : i + per_task]) for i in range(0, len(pieces), per_task)]
    if not run_parallel(tasks, threads if axes else 1, stop):
        stop.check()
