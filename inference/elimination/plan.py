"""What an elimination will do, before it does it: buckets, tables, cells and bytes.

Axes follow the elimination order, kept variables last. So the variable that a bucket eliminates is the first axis of
every table in it, and all of them end with the same variables, next to each other in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.elimination.plan_kernels import plan_buckets
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.compile import writable_once
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memo import digest
from dmcmc.inference.runtime.types import Ints

_MANY = 16  # times as many variables as take part: then the others are not looked at


class Program(NamedTuple):
    """A plan as compiled code reads it; all arrays int64. Tables: the inputs first, then one message a bucket.

    Attributes
    ----------
    domains : (variables,)
        Domain sizes.
    scope_start, scope
        Scope of table t in axis order: ``scope[scope_start[t]:scope_start[t + 1]]``.
    at : (tables,)
        Where each table starts in the arena.
    variable : (buckets,)
        What each bucket eliminates. Neighbouring buckets of one variable are its mini-buckets.
    input_start, inputs
        Tables of bucket b: ``inputs[input_start[b]:input_start[b + 1]]``. Its message is table
        ``tables − buckets + b``.
    cells : (buckets,)
        Of the joined table, which is never written.
    low : (buckets,)
        How many trailing separator variables make one row of the message, the unit of vectorised work.
    """

    domains: Ints
    scope_start: Ints
    scope: Ints
    at: Ints
    variable: Ints
    input_start: Ints
    inputs: Ints
    cells: Ints
    low: Ints


class Place(NamedTuple):
    """Where a table lies: its scope and shape, and where its entries begin and end in the arena."""

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Plan:
    """A program, and what it takes.

    Attributes
    ----------
    program : Program
    sizes : (tables,) int64
        Entries of each table.
    remaining : tuple of int
        Tables that no bucket takes: what is left over the kept variables.
    divided : dict
        How it is shared out between CPU and GPU, by where the limits are: worked out once.
    """

    program: Program
    sizes: Ints
    remaining: tuple[int, ...]
    divided: dict[tuple[int, int], Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def buckets(self) -> int:
        """Number of buckets."""
        return self.program.variable.size

    @property
    def tables(self) -> int:
        """Number of tables, messages included."""
        return self.sizes.size

    @cached_property
    def cells(self) -> int:
        """Σ joined cells over buckets, the work."""
        return sum(self.program.cells.tolist())

    @cached_property
    def entries(self) -> int:
        """Entries of all tables."""
        return sum(self.sizes.tolist())

    @cached_property
    def shape_key(self) -> bytes:
        """A few bytes that stand for all of it but the domain sizes of the problem's variables."""
        p = self.program
        return digest(p.scope_start, p.scope, p.variable, p.input_start, p.inputs, self.sizes)

    @cached_property
    def _asked(self) -> dict[int, Place]:
        """The places that somebody has asked for."""
        return {}

    def place(self, t: int) -> Place:
        """Return where a table lies; worked out once for those that are asked for."""
        found = self._asked.get(t)
        if found is None:
            begin = int(self.program.at[t])
            found = self._asked[t] = Place(self.scope(t), self.shape(t), begin, begin + int(self.sizes[t]))
        return found

    @property
    def width(self) -> int:
        """Induced width: the most variables in a message."""
        return int(np.diff(self.program.scope_start)[self.tables - self.buckets :].max(initial=0))

    def scope(self, t: int) -> tuple[int, ...]:
        """Return the scope of a table, in axis order."""
        start = self.program.scope_start
        return tuple(self.program.scope[start[t] : start[t + 1]].tolist())

    def shape(self, t: int) -> tuple[int, ...]:
        """Return the shape of a table."""
        return tuple(self.program.domains[list(self.scope(t))].tolist())

    def inputs(self, b: int) -> tuple[int, ...]:
        """Return the tables that a bucket joins."""
        start = self.program.input_start
        return tuple(self.program.inputs[start[b] : start[b + 1]].tolist())

    def output(self, b: int) -> int:
        """Return the table that a bucket writes."""
        return self.tables - self.buckets + b


def plan_elimination(
    scopes: Sequence[Sequence[int]], domains: Ints, order: Sequence[int], keep: Sequence[int] = ()
) -> Plan:
    """Plan the elimination of ``order`` from tables over ``scopes``; the variables in ``keep`` stay.

    Examples
    --------
    >>> plan = plan_elimination([(0, 1), (1, 2)], np.array([2, 3, 4]), order=[1], keep=[0, 2])
    >>> plan.scope(2), plan.cells, plan.shape(2)
    ((0, 2), 24, (2, 4))
    """
    start = np.array([0, *accumulate(map(len, scopes))], dtype=np.int64)
    return plan_flat(start, np.array([v for s in scopes for v in s], dtype=np.int64), domains, order, keep)


def plan_flat(scope_start: Ints, scope: Ints, domains: Ints, order: Sequence[int], keep: Sequence[int] = ()) -> Plan:
    """Plan as :func:`plan_elimination` does, from scopes laid out as in :class:`.FlatTables`.

    Where few of the problem's variables take part, as where an agent of many plans, the others are not looked at.
    """
    domains = writable_once(domains)
    if _MANY * (len(order) + len(keep)) < domains.size:
        return _plan_of_few(scope_start, scope, domains, order, keep)
    eliminated, rank = np.array(order, dtype=np.int64), rank_of(domains, order, keep)
    start, scopes, size, input_start, inputs, remaining, cells, low = plan_buckets(
        scope_start, scope, rank, eliminated, domains
    )
    program = Program(domains, start, scopes, places(size), eliminated, input_start, inputs, cells, low)
    return Plan(program, size, tuple(remaining.tolist()))


def _plan_of_few(scope_start: Ints, scope: Ints, domains: Ints, order: Sequence[int], keep: Sequence[int]) -> Plan:
    """Plan among the variables that take part, numbered in the same order."""
    eliminated, kept = np.array(order, dtype=np.int64), np.array(keep, dtype=np.int64)
    known = np.unique(np.concatenate([scope, eliminated, kept]))
    inner = [np.searchsorted(known, variables) for variables in (scope, eliminated, kept)]
    plan = plan_flat(scope_start, inner[0], domains[known], inner[1].tolist(), inner[2].tolist())
    return replace(
        plan, program=plan.program._replace(domains=domains, scope=known[plan.program.scope], variable=eliminated)
    )


def rank_of(domains: Ints, order: Sequence[int], keep: Sequence[int]) -> Ints:
    """Return each variable's position in the elimination order, kept variables last, −1 for the others."""
    rank = np.full(domains.size, -1, dtype=np.int64)
    rank[np.array([*order, *keep], dtype=np.int64)] = np.arange(len(order) + len(keep))
    return rank


def places(sizes: Ints) -> Ints:
    """Return where each table starts, one after another."""
    at = np.zeros(sizes.size, dtype=np.int64)
    np.cumsum(sizes[:-1], out=at[1:])
    return at


def check_memory(plan: Plan, arithmetic: Arithmetic, memory: int, what: str, remedy: str) -> None:
    """Raise :class:`ResourceError` if a plan's tables take more than ``memory`` bytes; names the largest table."""
    need = plan.entries * arithmetic.dtype.itemsize
    if need > memory:
        worst = int(plan.sizes.argmax())
        raise ResourceError(
            f"{what} needs {need:,} bytes (largest table: {len(plan.scope(worst))} variables,"
            f" {int(plan.sizes[worst]):,} entries) and budget.memory leaves it {memory:,}; {remedy}"
        )
