"""What an elimination will do, before it does it: buckets, tables, cells and bytes.

All tables of one elimination live in one flat array, the arena: the inputs first, then the message of each bucket,
then scratch. Axes follow the elimination order, kept variables last. So the variable that a bucket eliminates is the
first axis of every table in it, and all of them end with the same variables, next to each other in memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.arithmetic import Arithmetic
from dmcmc.inference.errors import ResourceError

_ROW = 128  # cells of the innermost loop that amortise what surrounds it
_BASE = 1 << 16  # entries of a table that is read once for every row: should stay in the cache
_EXPAND = 16  # a table may be repeated along missing axes if it stays this much smaller than the joined one


@dataclass(frozen=True)
class Bucket:
    """One elimination step: join ``inputs``, maximise over ``variable``, write table ``output`` over ``separator``.

    The last ``low`` separator variables make one row of the output, the unit of vectorised work; ``scratch`` entries
    hold the input tables that must be repeated along a row.
    """

    variable: int
    inputs: tuple[int, ...]
    separator: tuple[int, ...]
    output: int
    cells: int
    low: int
    scratch: int


@dataclass(frozen=True)
class Plan:
    """Every bucket and table of an elimination.

    Attributes
    ----------
    buckets : tuple of Bucket
        In the order of elimination.
    scopes, shapes : tuple of tuple of int
        Of each table, in axis order: the inputs, then one message a bucket.
    offsets : tuple of int
        Where each starts in the arena.
    entries : int
        Entries of all tables; scratch starts here.
    scratch : int
        The largest scratch that a bucket needs.
    remaining : tuple of int
        Tables that no bucket takes: what is left over the kept variables.
    cells : int
        Σ joined cells over buckets, the work.
    """

    buckets: tuple[Bucket, ...]
    scopes: tuple[tuple[int, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    entries: int
    scratch: int
    remaining: tuple[int, ...]
    cells: int

    @property
    def arena(self) -> int:
        """Entries that the elimination allocates."""
        return self.entries + self.scratch


def plan_elimination(
    scopes: Sequence[Sequence[int]], domains: NDArray[np.int64], order: Sequence[int], keep: Sequence[int]
) -> Plan:
    """Plan the elimination of ``order`` from tables over ``scopes``; the variables in ``keep`` stay.

    Examples
    --------
    >>> plan = plan_elimination([(0, 1), (1, 2)], np.array([2, 3, 4]), order=[1], keep=[0, 2])
    >>> plan.buckets[0].separator, plan.cells, plan.shapes[-1]
    ((0, 2), 24, (2, 4))
    """
    rank = {v: i for i, v in enumerate((*order, *keep))}
    size = {v: int(domains[v]) for v in rank}
    tables = [tuple(sorted(scope, key=rank.__getitem__)) for scope in scopes]
    waiting: dict[int, list[int]] = {v: [] for v in order}  # tables by the variable that takes them
    remaining: list[int] = []

    def hand_on(table: int) -> None:
        scope = tables[table]
        (waiting.get(scope[0], remaining) if scope else remaining).append(table)

    for t in range(len(tables)):
        hand_on(t)
    buckets = []
    for v in order:
        inputs = tuple(waiting[v])
        separator = tuple(sorted({u for t in inputs for u in tables[t]} - {v}, key=rank.__getitem__))
        low, scratch = _row_of(v, [tables[t] for t in inputs], separator, size)
        cells = prod(size[u] for u in separator) * size[v]
        buckets.append(Bucket(v, inputs, separator, len(tables), cells, low, scratch))
        tables.append(separator)
        hand_on(len(tables) - 1)
    shapes = tuple(tuple(size[v] for v in scope) for scope in tables)
    offsets = [0]
    for shape in shapes:
        offsets.append(offsets[-1] + prod(shape))
    return Plan(
        buckets=tuple(buckets),
        scopes=tuple(tables),
        shapes=shapes,
        offsets=tuple(offsets[:-1]),
        entries=offsets[-1],
        scratch=max((b.scratch for b in buckets), default=0),
        remaining=tuple(remaining),
        cells=sum(b.cells for b in buckets),
    )


def check_memory(plan: Plan, arithmetic: Arithmetic, memory: int, what: str, remedy: str) -> None:
    """Raise :class:`ResourceError` if a plan's tables take more than ``memory`` bytes; names the largest bucket."""
    need = plan.arena * arithmetic.dtype.itemsize
    if need > memory:
        worst = max(plan.buckets, key=lambda b: b.cells, default=None)
        largest = f" (largest bucket: {len(worst.separator) + 1} variables, {worst.cells:,} cells)" if worst else ""
        raise ResourceError(f"{what} needs {need:,} bytes{largest} and budget.memory allows {memory:,}; {remedy}")


def is_partial(scope: Sequence[int], high: Sequence[int], low: Sequence[int]) -> bool:
    """Return whether a table varies with high variables and with some but not all of the low ones."""
    inside = sum(v in scope for v in low)
    return 0 < inside < len(low) and any(v in scope for v in high)


def _row_of(
    variable: int, scopes: Sequence[Sequence[int]], separator: Sequence[int], size: Mapping[int, int]
) -> tuple[int, int]:
    """Choose how many trailing separator variables make a row, and the scratch that this needs.

    The shortest row of at least ``_ROW`` cells whose partial tables are cheap to repeat, else the longest.
    """
    chosen = (0, 0)
    cells = size[variable] * prod(size[v] for v in separator)
    row = 1
    for low in range(1, len(separator) + 1):
        row *= size[separator[-low]]
        if low > 1 and row * size[variable] > _BASE:
            break
        high, trailing = separator[:-low], separator[-low:]
        scratch = sum(
            prod(size[v] for v in scope if v not in trailing) * row
            for scope in scopes
            if is_partial(scope, high, trailing)
        )
        if scratch * _EXPAND > cells:
            continue
        chosen = (low, scratch)
        if row >= _ROW:
            break
    return chosen
