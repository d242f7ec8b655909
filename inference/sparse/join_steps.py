"""How a bucket's rows are made: which table comes first, what is added then, and what bounds the rest at each step.

The largest incomplete table comes first, the others are joined with it, those that make fewest rows of one before the
others. Then the variables that are left are added one by one, those first that complete tables with many −∞. A dense
table is added when all of its variables are there. Until then, it bounds the rows together with what is outside of the
bucket's subtree: variables that are not there yet are eliminated from all these tables with mini-buckets, in the order
opposite to that of the steps, which gives the bounds of every step at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.sparse.lookups import Lookups, Partner, Place, lookups, partner
from dmcmc.inference.sparse.sparse_table import Grouped, Incomplete, bits_of, fields_of, grouped, size_of

Relax = Callable[[Sequence[Table], Sequence[int]], list[Table]]


@dataclass(frozen=True, eq=False)
class Input:
    """A table of a bucket; ``bounds`` are dense tables whose sum bounds an incomplete one, until it is joined."""

    table: Table | Incomplete
    bounds: tuple[Table, ...] = ()

    @property
    def scope(self) -> tuple[int, ...]:
        """Its variables."""
        return self.table.scope

    @property
    def dense(self) -> bool:
        """Whether all entries are there."""
        return isinstance(self.table, Table)

    @property
    def rows(self) -> int:
        """Rows of an incomplete table."""
        return self.table.rows if isinstance(self.table, Incomplete) else 0

    @property
    def standing_in(self) -> tuple[Table, ...]:
        """Dense tables that it is at most the sum of."""
        return (self.table,) if isinstance(self.table, Table) else self.bounds


@dataclass(frozen=True)
class Step:
    """One step of making rows.

    Attributes
    ----------
    look : Lookups
        What is added, and what bounds the rows then.
    table : Grouped or None
        Of the first step: the rows to begin with.
    partner : Partner or None
        What rows are joined with.
    size, bits : int
        Otherwise: the values of the variable that is added.
    """

    look: Lookups
    table: Grouped | None = None
    partner: Partner | None = None
    size: int = 1
    bits: int = 0


@dataclass(frozen=True)
class Bucket:
    """What is joined, and eliminated: ``variable`` from ``inputs``, to a message over ``separator``.

    ``outside`` are dense tables over parts of the separator: at most what all else can add.
    """

    variable: int
    separator: tuple[int, ...]
    inputs: Sequence[Input]
    outside: Sequence[Table]
    domains: Ints
    arithmetic: Arithmetic


@dataclass(frozen=True)
class _Part:
    """A step before its tables are laid out: an incomplete table or none, new variables, dense tables completed."""

    table: Input | None
    new: list[int]
    covered: list[Input]


def steps_of(bucket: Bucket, relax: Relax) -> tuple[tuple[int, ...], list[Step]]:
    """Return the scope of a bucket's message, in the order of its keys, and the steps that make its rows.

    Parameters
    ----------
    relax
        Returns tables whose sum is at least the maximum of others' over some variables.

    Raises
    ------
    TooWide
        If keys of that scope have no room.
    """
    fields_of(bucket.separator, bucket.domains)
    parts = _Choice(bucket).parts()
    bounds: list[list[Table]] = [list(bucket.outside)]
    for part in reversed(parts[1:]):
        joined = part.covered if part.table is None else [part.table, *part.covered]
        later = [*bounds[-1], *(table for one in joined for table in one.standing_in)]
        bounds.append(relax(later, part.new))
    scope, steps = list[int](), list[Step]()
    for part, rest in zip(parts, reversed(bounds), strict=True):
        before, scope = scope, [*scope, *part.new]
        added = part.new[0] if steps and part.table is None else None
        place = Place(scope if added is None else before, bucket.variable, added, bucket.domains)
        exact = [one.table for one in part.covered if isinstance(one.table, Table)]
        look = lookups(exact, rest, place, bucket.arithmetic)
        if not steps:
            steps.append(Step(look, table=_first(part, bucket)))
        elif part.table is not None and isinstance(part.table.table, Incomplete):
            other = partner(part.table.table, before, part.new, bucket.variable, bucket.domains)
            steps.append(Step(look, partner=other))
        else:
            size = int(bucket.domains[part.new[0]])
            steps.append(Step(look, size=size, bits=bits_of(size)))
    return tuple(scope), steps


def _first(part: _Part, bucket: Bucket) -> Grouped:
    """Return the rows to begin with: one of zeros where there is no incomplete table."""
    if part.table is not None and isinstance(part.table.table, Incomplete):
        return grouped(part.table.table, part.new, bucket.variable, bucket.domains)
    size = int(bucket.domains[bucket.variable])
    zeros = np.zeros(size, dtype=bucket.arithmetic.dtype)
    return Grouped(np.zeros(1, dtype=np.int64), np.array([0, size]), np.arange(size), zeros)


class _Choice:
    """The choice of a bucket's steps."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket, self.domains = bucket, bucket.domains
        self.scope: list[int] = []
        self.left = list(bucket.inputs)
        self.found: list[_Part] = []
        self.fill: dict[int, float] = {}

    def parts(self) -> list[_Part]:
        """Return all steps."""
        self._take(max(self._listed(), key=lambda one: one.rows, default=None))
        while listed := self._listed():
            self._take(min(listed, key=self._growth))
        rest = [v for v in self.bucket.separator if v not in self.scope]
        while rest:
            v = min(rest, key=self._growth_of)
            rest.remove(v)
            self._add(None, [v])
        return self.found

    def _listed(self) -> list[Input]:
        return [one for one in self.left if not one.dense]

    def _take(self, table: Input | None) -> None:
        """Join an incomplete table; None begins without one."""
        if table is not None:
            self.left.remove(table)
        inside = {*self.scope, self.bucket.variable}
        self._add(table, [] if table is None else [v for v in table.scope if v not in inside])

    def _add(self, table: Input | None, new: list[int]) -> None:
        self.scope += new
        inside = {*self.scope, self.bucket.variable}
        covered = [one for one in self.left if one.dense and inside.issuperset(one.scope)]
        self.left = [one for one in self.left if one not in covered]
        self.found.append(_Part(table, new, covered))

    def _growth(self, table: Input) -> float:
        """Return how many rows an incomplete table makes of one, about."""
        shared = [v for v in table.scope if v in self.scope or v == self.bucket.variable]
        return table.rows / size_of(shared, self.domains)

    def _growth_of(self, v: int) -> tuple[float, int]:
        """Return how many rows a variable makes of one, about, and minus how many tables it completes."""
        inside, growth, tables = {*self.scope, self.bucket.variable, v}, float(self.domains[v]), 0
        for table in (*(one.table for one in self.left), *self.bucket.outside):
            if isinstance(table, Table) and v in table.scope and inside.issuperset(table.scope):
                growth *= self._fill_of(table)
                tables += 1
        return growth, -tables

    def _fill_of(self, table: Table) -> float:
        """Return the part of a table's entries that are not −∞."""
        if id(table) not in self.fill:
            possible = table.values > self.bucket.arithmetic.threshold
            self.fill[id(table)] = float(np.count_nonzero(possible)) / max(1, table.values.size)
        return self.fill[id(table)]
