"""The plan of an elimination, and a query of its memory.

Plan an elimination before it runs: buckets, tables, joined cells and memory.

A bucket joins all tables that contain the variable it eliminates; its message, a table over the other variables (the
separator), goes to the bucket of the next of them. A joined cell is one entry of this join, the unit of work. All
tables of a plan lie in one array, the arena.

The axes of every table follow the elimination order; kept variables come last. The variable that a bucket eliminates is
therefore the first axis of each of its tables, and all its tables end with the same variables, contiguous in memory.

The elimination query: one record shared by the exact solvers and the mini-bucket solvers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.elimination.plan_kernels import plan_buckets
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.compile import writable_once
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memo import digest
from dmcmc.inference.runtime.types import Ints


class BucketProgram(NamedTuple):
    """A plan as flat arrays for compiled code; all arrays are int64.

    Tables are numbered: first the inputs, then one message per bucket.

    Attributes
    ----------
    domains : (variables,)
        Domain sizes.
    scope_start : (tables + 1,)
        Start of each table's scope in ``scope``.
    scope
        Scope of table t in axis order: ``scope[scope_start[t]:scope_start[t + 1]]``.
    at : (tables,)
        Offset of each table's first entry in the arena.
    variable : (buckets,)
        The variable that each bucket eliminates. Consecutive buckets of one variable are its mini-buckets.
    input_start : (buckets + 1,)
        Start of each bucket's tables in ``inputs``.
    inputs
        Tables of bucket b: ``inputs[input_start[b]:input_start[b + 1]]``. Its message is table
        ``tables − buckets + b``.
    cells : (buckets,)
        Cells of the joined table, which is never written to memory.
    row_axes : (buckets,)
        Number of trailing separator variables that form one row of the message, the unit of vectorised work.
    """

    domains: Ints
    scope_start: Ints
    scope: Ints
    at: Ints
    variable: Ints
    input_start: Ints
    inputs: Ints
    cells: Ints
    row_axes: Ints


class TableLocation(NamedTuple):
    """The location of a table: its scope, its shape, and its first and end entry in the arena."""

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class EliminationPlan:
    """An elimination plan and its memory requirements.

    Attributes
    ----------
    program : BucketProgram
        The plan as flat arrays.
    sizes : (tables,) int64
        Number of entries of each table.
    remaining : tuple of int
        Tables that no bucket consumes: the result, over the kept variables.
    derived_plans : dict
        Cache of the plans derived from this one: the divisions between CPU and GPU by their two limits in entries,
        and the layout with one contiguous piece per merged plan.
    """

    program: BucketProgram
    sizes: Ints
    remaining: tuple[int, ...]
    derived_plans: dict[tuple[int, int], Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def buckets(self) -> int:
        """Number of buckets."""
        return self.program.variable.size

    @cached_property
    def tables(self) -> int:
        """Number of tables, including messages."""
        return self.sizes.size

    @cached_property
    def cells(self) -> int:
        """Joined cells summed over all buckets: the work of the elimination."""
        return sum(self.program.cells.tolist())

    @cached_property
    def entries(self) -> int:
        """Number of entries of all tables together."""
        return sum(self.sizes.tolist())

    @property
    def is_small(self) -> bool:
        """Whether the elimination takes less time than the choice of a better method for it."""
        return self.cells + self.entries < tuning.SMALL_STEP_CELLS

    @cached_property
    def shape_key(self) -> bytes:
        """Digest of the plan without the domain sizes of the problem's variables."""
        p = self.program
        return digest(p.scope_start, p.scope, p.variable, p.input_start, p.inputs, self.sizes)

    @cached_property
    def locations(self) -> "_Locations":
        """The location of each table, by its number; computed once per table."""
        return _Locations(self.program, self.sizes)

    @cached_property
    def width(self) -> int:
        """Induced width: the largest number of variables in a message."""
        return int(np.diff(self.program.scope_start)[self.tables - self.buckets :].max(initial=0))

    def scope(self, t: int) -> tuple[int, ...]:
        """Return the scope of table ``t`` in axis order."""
        start = self.program.scope_start
        return tuple(self.program.scope[start[t] : start[t + 1]].tolist())

    def shape(self, t: int) -> tuple[int, ...]:
        """Return the shape of table ``t``."""
        return tuple(self.program.domains[list(self.scope(t))].tolist())

    def inputs(self, b: int) -> tuple[int, ...]:
        """Return the tables that bucket ``b`` joins."""
        start = self.program.input_start
        return tuple(self.program.inputs[start[b] : start[b + 1]].tolist())

    def output(self, b: int) -> int:
        """Return the number of the table that bucket ``b`` writes."""
        return self.tables - self.buckets + b


class _Locations(dict[int, TableLocation]):
    """The locations of a plan's tables; a location is computed when it is read first."""

    def __init__(self, program: BucketProgram, sizes: Ints) -> None:
        self._program, self._sizes = program, sizes

    def __missing__(self, t: int) -> TableLocation:
        program, begin = self._program, int(self._program.at[t])
        scope = program.scope[program.scope_start[t] : program.scope_start[t + 1]]
        shape = tuple(program.domains[scope].tolist())
        self[t] = location = TableLocation(tuple(scope.tolist()), shape, begin, begin + int(self._sizes[t]))
        return location


def plan_elimination(
    scopes: Sequence[Sequence[int]], domains: Ints, order: Sequence[int], keep: Sequence[int] = ()
) -> EliminationPlan:
    """Plan the elimination of the variables ``order`` from tables over ``scopes``; the variables ``keep`` are kept.

    Parameters
    ----------
    scopes
        The scope of each input table.
    domains : (variables,) int64
        Domain sizes of all variables of the problem.
    order
        The variables to eliminate, first to last.
    keep
        The variables that are not eliminated, in the axis order of the result.

    Returns
    -------
    EliminationPlan

    Examples
    --------
    >>> plan = plan_elimination([(0, 1), (1, 2)], np.array([2, 3, 4]), order=[1], keep=[0, 2])
    >>> plan.scope(2), plan.cells, plan.shape(2)
    ((0, 2), 24, (2, 4))
    """
    start = np.array([0, *accumulate(map(len, scopes))], dtype=np.int64)
    return plan_flat(start, np.array([v for s in scopes for v in s], dtype=np.int64), domains, order, keep)


def plan_flat(
    scope_start: Ints, scope: Ints, domains: Ints, order: Sequence[int], keep: Sequence[int] = ()
) -> EliminationPlan:
    """Plan as :func:`plan_elimination` does, from scopes in the layout of ``FlatTables``.

    If only few of the problem's variables take part (one agent of many), the cost does not depend on the others.
    """
    domains = writable_once(domains)
    if tuning.MIN_COMPRESSION * (len(order) + len(keep)) < domains.size:
        return _plan_renumbered(scope_start, scope, domains, order, keep)
    eliminated, rank = np.array(order, dtype=np.int64), rank_of(domains, order, keep)
    start, scopes, size, input_start, inputs, remaining, cells, row_axes = plan_buckets(
        scope_start, scope, rank, eliminated, domains
    )
    program = BucketProgram(
        domains, start, scopes, table_offsets(size), eliminated, input_start, inputs, cells, row_axes
    )
    return EliminationPlan(program, size, tuple(remaining.tolist()))


def _plan_renumbered(
    scope_start: Ints, scope: Ints, domains: Ints, order: Sequence[int], keep: Sequence[int]
) -> EliminationPlan:
    """Plan over the participating variables only, renumbered in the same order."""
    eliminated, kept_variables = np.array(order, dtype=np.int64), np.array(keep, dtype=np.int64)
    participating = np.unique(np.concatenate([scope, eliminated, kept_variables]))
    renumbered = [np.searchsorted(participating, variables) for variables in (scope, eliminated, kept_variables)]
    plan = plan_flat(scope_start, renumbered[0], domains[participating], renumbered[1].tolist(), renumbered[2].tolist())
    return replace(
        plan,
        program=plan.program._replace(domains=domains, scope=participating[plan.program.scope], variable=eliminated),
    )


def rank_of(domains: Ints, order: Sequence[int], keep: Sequence[int]) -> Ints:
    """Return each variable's position in the elimination order: kept variables last, −1 for all others."""
    rank = np.full(domains.size, -1, dtype=np.int64)
    rank[np.array([*order, *keep], dtype=np.int64)] = np.arange(len(order) + len(keep))
    return rank


def kept_by_first_use(plan: EliminationPlan, keep: Sequence[int]) -> tuple[int, ...]:
    """Return the kept variables in the order in which buckets join them first: the best order of axes on a GPU.

    A message then begins with the variables of the message that it is made from, and ends with those that are new in
    its bucket. The kernel reads an entry of the older message once for all values of the new variables. In any other
    order it may read one for every joined cell, which takes several times as long if the older message is large.

    Parameters
    ----------
    plan
        A plan with the same buckets.
    keep
        The kept variables.

    Examples
    --------
    >>> plan = plan_elimination([(0, 1), (1, 2), (2, 3)], np.array([2, 2, 2, 2]), order=[2, 1], keep=[0, 3])
    >>> kept_by_first_use(plan, [0, 3])
    (3, 0)
    """
    first: dict[int, int] = {}
    for bucket in range(plan.buckets):
        for v in plan.scope(plan.output(bucket)):
            first.setdefault(v, bucket)
    return tuple(sorted(keep, key=lambda v: first.get(v, plan.buckets)))


def table_offsets(sizes: Ints) -> Ints:
    """Return the offset of each table if tables of these sizes lie one after another."""
    at = np.zeros(sizes.size, dtype=np.int64)
    np.cumsum(sizes[:-1], out=at[1:])
    return at


def check_memory(plan: EliminationPlan, arithmetic: Arithmetic, memory: int, what: str, remedy: str) -> None:
    """Raise :class:`ResourceError` if the tables of a plan exceed a memory limit; the message names the largest table.

    Parameters
    ----------
    memory
        Memory limit in bytes.
    what, remedy
        The beginning and the end of the message: what needs the memory, and what the user can do.
    """
    need = plan.entries * arithmetic.dtype.itemsize
    if need > memory:
        largest = int(plan.sizes.argmax())
        raise ResourceError(
            f"{what} needs {need:,} bytes (largest table: {len(plan.scope(largest))} variables,"
            f" {int(plan.sizes[largest]):,} entries) and budget.memory leaves it {memory:,}; {remedy}"
        )


@dataclass(frozen=True)
class EliminationQuery:
    """Maximise the sum of ``tables`` over the variables of ``order``, as a function of the variables in ``keep``.

    Attributes
    ----------
    tables : sequence of EncodedTable
        Encoded tables.
    domains : (variables,) int64
        Domain sizes of all variables of the problem.
    order : sequence of int
        The variables to eliminate, first to last.
    keep : sequence of int
        The variables that are not eliminated.
    arithmetic : Arithmetic
        The arithmetic in which the tables are encoded.
    plan : EliminationPlan or None
        The plan of exact elimination if the caller already has it.
    """

    tables: Sequence[EncodedTable]
    domains: Ints
    order: Sequence[int]
    keep: Sequence[int]
    arithmetic: Arithmetic
    plan: EliminationPlan | None = None

    @property
    def scopes(self) -> list[tuple[int, ...]]:
        """Scopes of the tables."""
        return [t.scope for t in self.tables]

    @property
    def exact(self) -> EliminationPlan:
        """The plan of exact elimination; computed if none was given."""
        return self.plan or plan_elimination(self.scopes, self.domains, self.order, self.keep)
