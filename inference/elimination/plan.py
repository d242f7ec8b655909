"""Plan an elimination before it runs: buckets, tables, joined cells and memory.

A bucket joins all tables that contain the variable it eliminates; its message, a table over the other variables (the
separator), goes to the bucket of the next of them. A joined cell is one entry of this join, the unit of work. All
tables of a plan lie in one array, the arena.

The axes of every table follow the elimination order; kept variables come last. The variable that a bucket eliminates is
therefore the first axis of each of its tables, and all its tables end with the same variables, contiguous in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.elimination.plan_kernels import plan_buckets
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.compile import writable_once
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memo import Memo, digest
from dmcmc.inference.runtime.types import Ints

_CONTIGUOUS = (-1, -1)  # key of the contiguous plan in ``EliminationPlan.derived_plans``


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

    @property
    def buckets(self) -> int:
        """Number of buckets."""
        return self.program.variable.size

    @property
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
    def _locations(self) -> dict[int, TableLocation]:
        """Cache of the locations that :meth:`location` computed."""
        return {}

    def location(self, t: int) -> TableLocation:
        """Return the location of table ``t``; computed once per table."""
        found = self._locations.get(t)
        if found is None:
            begin = int(self.program.at[t])
            found = self._locations[t] = TableLocation(self.scope(t), self.shape(t), begin, begin + int(self.sizes[t]))
        return found

    @property
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


class MergedPlan(NamedTuple):
    """A plan made of several plans.

    Attributes
    ----------
    plan : EliminationPlan
        The merged plan: inputs of the first plan, of the second, ...; buckets likewise.
    numbers : list of (tables,) int64
        The number in the merged plan of each table, for each plan.
    bucket_start : (plans + 1,) int64
        First bucket of each plan in the merged plan.
    entry_start : list of int
        Arena offset of each plan's tables in :meth:`contiguous_plan`, and the end of the last plan's.
    """

    plan: EliminationPlan
    numbers: list[Ints]
    bucket_start: Ints
    entry_start: list[int]

    def contiguous_plan(self, plans: Sequence[EliminationPlan]) -> EliminationPlan:
        """Return the merged plan with each plan's tables contiguous in the arena, in the layout of the plan itself.

        The result is cached.
        """
        found: EliminationPlan | None = self.plan.derived_plans.get(_CONTIGUOUS)
        if found is None:
            at = np.empty_like(self.plan.program.at)
            for numbers, start, plan in zip(self.numbers, self.entry_start[:-1], plans, strict=True):
                at[numbers] = start + plan.program.at
            found = EliminationPlan(self.plan.program._replace(at=at), self.plan.sizes, self.plan.remaining)
            self.plan.derived_plans[_CONTIGUOUS] = found
        return found


_MERGED = Memo[MergedPlan].for_shapes()  # the merged plans of this process


def mergeable(plans: Sequence[EliminationPlan]) -> bool:
    """Return whether the plans have the same domain array and no variable in common."""
    if not plans:
        return False
    domains = plans[0].program.domains
    used = np.zeros(domains.size, dtype=np.bool_)
    for program in (plan.program for plan in plans):
        if program.domains is not domains and not np.array_equal(program.domains, domains):
            return False
        if used[program.scope].any() or used[program.variable].any():
            return False
        used[program.scope] = True
        used[program.variable] = True
    return True


def merge_plans_cached(plans: Sequence[EliminationPlan]) -> MergedPlan | None:
    """Return the merged plan, cached for equal plans; None if the plans cannot be merged.

    Plans derived from the merged plan (``divide_work``) are cached with it.
    """
    if not plans or sum(plan.tables for plan in plans) > tuning.MAX_CACHED_PLANS:
        return merge_plans(plans) if mergeable(plans) else None
    domains = plans[0].program.domains  # plans may hold copies of it
    if not all(plan.program.domains is domains or np.array_equal(plan.program.domains, domains) for plan in plans):
        return None
    key = tuple(plan.shape_key for plan in plans), digest(domains)
    found = _MERGED.find(key)
    if found is None and mergeable(plans):
        found = merge_plans(plans)
        _MERGED.put(key, found)
    return found


def merge_plans(plans: Sequence[EliminationPlan]) -> MergedPlan:
    """Merge plans; :func:`mergeable` must hold."""
    programs = [plan.program for plan in plans]
    n_inputs = [plan.tables - plan.buckets for plan in plans]
    input_at = np.cumsum([0, *n_inputs])
    bucket_start = np.cumsum([0, *(plan.buckets for plan in plans)])
    message_at = input_at[-1] + bucket_start
    numbers = [
        np.concatenate([np.arange(input_at[i], input_at[i + 1]), np.arange(message_at[i], message_at[i + 1])])
        for i in range(len(plans))
    ]

    def inputs_first(pieces: Sequence[Ints], edges: Sequence[int]) -> Ints:
        """Return the parts that belong to the inputs of all plans, then those that belong to their messages."""
        heads = [piece[:edge] for piece, edge in zip(pieces, edges, strict=True)]
        return np.concatenate(heads + [piece[edge:] for piece, edge in zip(pieces, edges, strict=True)])

    lengths = inputs_first([np.diff(p.scope_start) for p in programs], n_inputs)
    sizes = inputs_first([plan.sizes for plan in plans], n_inputs)
    edges = [int(p.scope_start[g]) for p, g in zip(programs, n_inputs, strict=True)]
    program = BucketProgram(
        domains=programs[0].domains,
        scope_start=np.concatenate([[0], np.cumsum(lengths)]),
        scope=inputs_first([p.scope for p in programs], edges),
        at=table_offsets(sizes),
        variable=np.concatenate([p.variable for p in programs]),
        input_start=np.cumsum(np.concatenate([[0], *(np.diff(p.input_start) for p in programs)])),
        inputs=np.concatenate([number[p.inputs] for number, p in zip(numbers, programs, strict=True)]),
        cells=np.concatenate([p.cells for p in programs]),
        row_axes=np.concatenate([p.row_axes for p in programs]),
    )
    remaining = [number[t] for number, plan in zip(numbers, plans, strict=True) for t in plan.remaining]
    plan = EliminationPlan(program, sizes, tuple(map(int, remaining)))
    return MergedPlan(plan, numbers, bucket_start, [0, *accumulate(plan.entries for plan in plans)])
