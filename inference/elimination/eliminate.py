"""Bucket elimination: carry out a plan, keep what VALUE needs, read an optimal assignment back.

Dechter's bucket elimination (GpuBE journal paper, §2.1) with the join and the projection of a bucket fused.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.arena_kernels import choose_rows, choose_values
from dmcmc.inference.elimination.copy_tables import place_tables
from dmcmc.inference.elimination.join_kernels import join, run_buckets, split_bucket
from dmcmc.inference.elimination.plan import Plan, plan_elimination
from dmcmc.inference.elimination.semirings import LOG_SUM, MAX_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.model.cuda.device_table import added
from dmcmc.inference.model.flat_tables import FlatTables, flatten
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.runtime.types import Array

_LARGE = 1 << 19  # joined cells of a bucket that is worth several threads
_TASK = 1 << 17  # joined cells of a thread's task, at least: starting one costs some 50 microseconds
_LOOK = 1 << 24  # joined cells between two looks at the time: 10 ms, or 100 where tables do not fit the caches
_MANY = 1 << 12  # cells that a bucket counts for at least: some microseconds


@dataclass(frozen=True)
class Elimination:
    """A finished elimination: every table it made, so that maximisers can be looked up.

    Attributes
    ----------
    plan : Plan
    arena : ndarray, shape (plan.entries,)
    arithmetic : Arithmetic
    semiring : Semiring
        By which the tables were made; min-plus tables in the arena are negated.
    apart : dict
        Tables over kept variables that do not lie in the arena: room for their entries.
    """

    plan: Plan
    arena: Array
    arithmetic: Arithmetic
    semiring: Semiring = field(default=MAX_PLUS, kw_only=True)
    apart: Mapping[int, Array] = field(default_factory=dict, kw_only=True)

    def table(self, t: int) -> Table:
        """Return table ``t`` of the plan as a view."""
        if t in self.apart:
            return Table(self.plan.scope(t), self.apart[t])
        place = self.plan.place(t)
        return Table(place.scope, self.arena[place.begin : place.end].reshape(place.shape))

    def remaining(self) -> tuple[Table, ...]:
        """Return the tables over kept variables, none's scope inside another's; their sum is the result."""
        left = tuple([self.table(t) for t in self.plan.remaining])
        if len(left) > 1:
            left = absorb(left, self.arithmetic)
        if self.semiring.sign > 0:
            return left
        return tuple(Table(scope, signed(values, self.semiring, self.arithmetic)) for scope, values in left)

    def total(self) -> int | float:
        """Return the sum of the remaining tables where no variable was kept (encoded)."""
        value: int | float = 0
        for t in self.plan.remaining:
            value = max(value + self.table(t).values.item(), self.arithmetic.lowest)
        return value if self.arithmetic.is_lowest(value) else self.semiring.sign * value

    def choose(self, values: NDArray[np.int64]) -> None:
        """Set the maximising value of every eliminated variable in ``values`` (variables,), which has the kept ones."""
        choose_values(self.plan.program, self.arena, values, self.arithmetic.least, 0, self.plan.buckets)

    def choose_all(self, values: NDArray[np.int64]) -> None:
        """Do :meth:`choose` for every row of ``values`` (rows, variables), in C order."""
        choose_rows(self.plan.program, self.arena, values, self.arithmetic.least, 0, self.plan.buckets)

    def maximise(self, values: MutableMapping[int, int]) -> None:
        """Add the maximising value of every eliminated variable to a mapping, which holds the kept ones.

        Buckets are walked last to first; ties go to the lowest value index. Reads one row of each table of a bucket.
        """
        vector = np.zeros(self.plan.program.domains.size, dtype=np.int64)
        for v, value in values.items():
            vector[v] = value
        self.choose(vector)
        eliminated = self.plan.program.variable
        values.update(zip(eliminated.tolist(), vector[eliminated].tolist(), strict=True))


def eliminate(
    tables: Sequence[Table] | FlatTables,
    plan: Plan,
    arithmetic: Arithmetic,
    threads: int = 1,
    semiring: Semiring = MAX_PLUS,
    stop: Stop = NO_STOP,
) -> Elimination:
    """Carry out a plan: eliminate its variables from the sum of ``tables``.

    Parameters
    ----------
    tables
        Encoded tables, one for each input of the plan.
    arithmetic
        What the tables are encoded in.
    threads
        How many threads the large buckets are spread over. The result does not depend on it.
    semiring
        By which operation; −∞ forbids an entry in all of them.
    stop
        When to give up.

    Raises
    ------
    OutOfTime
    """
    done = Elimination(plan, new_arena(plan, arithmetic), arithmetic, semiring=semiring)
    flat = flat_tables(tables, arithmetic, semiring)
    place_tables(plan, done.arena, flat, arithmetic.least, stop)
    del flat  # a copy of all inputs
    run_on_cpu(done, 0, plan.buckets, semiring, threads, stop)
    return done


def new_arena(plan: Plan, arithmetic: Arithmetic) -> Array:
    """Return room for all tables of a plan, contents undefined.

    Raises
    ------
    OutOfMemory
        If the run's budget has no room for it.
    """
    entries = max(1, plan.entries)
    ACCOUNT.claim(entries * arithmetic.dtype.itemsize, f"tables of {len(plan.program.variable)} buckets")
    return np.empty(entries, dtype=arithmetic.dtype)


def run_on_cpu(
    work: Elimination, first: int, last: int, semiring: Semiring, threads: int, stop: Stop = NO_STOP
) -> None:
    """Run buckets ``first`` to ``last`` - 1: the large ones on all threads, the others in between on one.

    Raises
    ------
    OutOfTime
        Between two buckets, or two ranges of rows of a large one.
    """
    program, lowest = work.plan.program, work.arithmetic.least
    if not work.apart and work.plan.cells + _MANY * work.plan.buckets < _LARGE:  # no bucket is large, nor are all
        if first < last:
            stop.check()
            run_buckets(program, work.arena, first, last, lowest, semiring.operation)
        return
    cells = program.cells[first:last]
    large = cells > (_LARGE if threads > 1 else _LOOK if stop is not NO_STOP else np.inf)
    for t in work.apart:
        large[t - work.plan.output(first)] = True
    by_rows = first + np.flatnonzero(large)
    ready = first
    for b in (*by_rows.tolist(), last):
        for begin, end in pairwise(_looks(program.cells, ready, b, stop)):
            stop.check()
            run_buckets(program, work.arena, begin, end, lowest, semiring.operation)
        if b < last and not run_parallel(_tasks(work, b, semiring, threads), threads, stop):
            stop.check()
        ready = b + 1


def _looks(cells: NDArray[np.int64], first: int, last: int, stop: Stop) -> list[int]:
    """Return where buckets ``first`` to ``last`` - 1, all small, are cut for looks at the time."""
    if stop is NO_STOP:
        return [first, last]
    count = np.cumsum(np.maximum(cells[first:last], _MANY)) // _LOOK
    return [first, *(first + 1 + np.flatnonzero(np.diff(count))).tolist(), last]


def flat_tables(
    tables: Sequence[Table] | FlatTables, arithmetic: Arithmetic, semiring: Semiring = MAX_PLUS
) -> FlatTables:
    """Return encoded tables in one array, as the kernels of a semiring want them; sums of exponentials want floats."""
    if semiring.operation == LOG_SUM and arithmetic.exact:
        raise ValueError(f"{semiring.name} needs float64 tables, not {arithmetic.dtype}")
    if not isinstance(tables, FlatTables):
        tables = flatten([t.scope for t in tables], [t.values for t in tables], arithmetic.dtype)
    return tables if semiring.sign > 0 else tables._replace(data=signed(tables.data, semiring, arithmetic))


def signed(values: Array, semiring: Semiring, arithmetic: Arithmetic) -> Array:
    """Return encoded numbers, negated for min-plus; −∞ stays."""
    if semiring.sign > 0:
        return values
    lowest = arithmetic.dtype.type(arithmetic.lowest)
    hard = (values == lowest) | (values < arithmetic.threshold)
    return np.where(hard, lowest, -values)


def run_rows(
    work: Elimination, b: int, semiring: Semiring, threads: int, entries: tuple[int, int], stop: Stop = NO_STOP
) -> None:
    """Fill the entries from the first to before the second of one bucket's message; :class:`OutOfTime` as usual."""
    if not run_parallel(_tasks(work, b, semiring, threads, *entries), threads, stop):
        stop.check()


def compile_joins(arithmetic: Arithmetic) -> None:
    """Compile what large buckets are joined by, a range of rows at a time, or read it from the disk."""
    plan = plan_elimination([(0, 1)], np.full(2, 2), [0], [1])
    work = eliminate([Table((0, 1), np.zeros((2, 2), dtype=arithmetic.dtype))], plan, arithmetic)
    run_rows(work, 0, MAX_PLUS, 1, (0, 2))


def _tasks(
    work: Elimination, b: int, semiring: Semiring, threads: int, begin: int = 0, end: int | None = None
) -> list[Callable[[], None]]:
    """Prepare one large bucket and return the tasks that fill its message, a range of rows each."""
    plan = work.plan
    lowest = work.arithmetic.least
    parts = split_bucket(plan.program, b)
    message = work.table(plan.output(b)).values.reshape(-1)
    whole = message.size if end is None else end
    if begin % parts[1] or whole % parts[1]:  # a piece that is no whole rows: make rows of one entry
        parts = split_bucket(plan.program._replace(low=np.zeros_like(plan.program.low)), b)
    out = message.reshape(-1, parts[1])
    first, last = begin // parts[1], whole // parts[1]
    kernel = partial(cast(Callable[..., None], join), work.arena, out, *parts, lowest, semiring.operation)
    cells = (last - first) * parts[1] * parts[2]
    pieces = max(1, min(last - first, max(4 * threads, cells // _LOOK), cells // _TASK))
    bounds = [first + (last - first) * i // pieces for i in range(pieces + 1)]
    return [partial(kernel, a, b) for a, b in pairwise(bounds)]


def absorb(tables: Sequence[Table], arithmetic: Arithmetic) -> tuple[Table, ...]:
    """Add every table whose scope lies inside another's to that one; the sum stays the same, the tables get fewer.

    A table that nothing is added to is returned as it is, any other is new: large ones are copied once.
    """
    kept: list[Table] = []
    new = set[int]()
    for table in sorted(tables, key=lambda t: -len(t.scope)):
        scope = table.scope
        home = next((i for i, t in enumerate(kept) if set(scope) <= set(t.scope)), None)
        if home is None:
            kept.append(table)
            continue
        into = kept[home]
        there = added(into, table, arithmetic, home in new)
        if there is not None:
            kept[home] = there
            new.add(home)
            continue
        order = sorted(range(len(scope)), key=lambda axis: into.scope.index(scope[axis]))
        shape = [into.values.shape[i] if v in scope else 1 for i, v in enumerate(into.scope)]
        values = table.values.transpose(order).reshape(shape)
        kept[home] = Table(into.scope, arithmetic.add(into.values, values, into.values if home in new else None))
        new.add(home)
    return tuple(kept)
