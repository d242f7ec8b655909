"""Plan how the rows of a bucket's message are made: the first table, what each step adds, and the bounds at each step.

The largest sparse table comes first. The other sparse tables are joined with it, those with the fewest
matches per row first. Then the remaining variables are added one by one, first those that complete tables
with many −∞ entries. A dense table is added as soon as all of its variables are present. Until then it
bounds the rows, together with the bounds on everything outside the bucket's subtree. The variables that are
not present yet are eliminated from these tables with mini-buckets, in the reverse order of the steps; this
yields the bounds of all steps at once. The steps are run by :mod:`dmcmc.inference.sparse.bucket_rows`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.sparse.lookups import JoinPartner, LookupTables, RowLayout, lay_out_lookups, lay_out_partner
from dmcmc.inference.sparse.sparse_table import (
    GroupedTable,
    KeyTooWide,
    SparseTable,
    bits_of,
    fields_of,
    group_by_variable,
    size_of,
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
