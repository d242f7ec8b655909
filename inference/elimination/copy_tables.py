"""Put the given tables into an elimination's arena, in pieces between which the time is looked at."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from dmcmc.inference.elimination.arena_kernels import place_inputs
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.types import Array

_LOOK = 1 << 22  # entries between two looks at the time


def place_tables(plan: Plan, arena: Array, flat: FlatTables, lowest: np.generic, stop: Stop = NO_STOP) -> None:
    """Copy the given tables to the front of the arena, axes in the plan's order.

    Raises
    ------
    OutOfTime
    """
    program = plan.program
    if stop is NO_STOP or flat.data.size < _LOOK:
        if stop is not NO_STOP:
            stop.check()
        place_inputs(program, arena, *flat, lowest)
        return
    sizes = np.diff(flat.at)
    cuts = np.unique([0, *(1 + np.flatnonzero(np.diff(np.cumsum(sizes) // _LOOK))).tolist(), flat.tables])
    for first, last in pairwise(cuts.tolist()):
        stop.check()
        if last == first + 1 and sizes[first] > _LOOK:
            _place_large(plan, arena, flat, first, stop)
            continue
        rest = program._replace(at=program.at[first:], scope_start=program.scope_start[first:])
        place_inputs(rest, arena, *flat.part(first, last), lowest)


def _place_large(plan: Plan, arena: Array, flat: FlatTables, t: int, stop: Stop) -> None:
    """Copy one table."""
    scope, into = flat.part(t, t + 1).scope.tolist(), plan.scope(t)
    sizes = plan.program.domains[scope].tolist()
    source = flat.data[flat.at[t] : flat.at[t + 1]].reshape(sizes).transpose([scope.index(v) for v in into])
    at = int(plan.program.at[t])
    target = arena[at : at + source.size].reshape(source.shape)
    for place in pieces_of(source.shape, _LOOK):
        stop.check()
        target[place] = source[place]


def pieces_of(shape: Sequence[int], entries: int) -> Iterator[tuple[int | slice, ...]]:
    """Yield places in an array that cover it, each of at most about so many entries: a few of its first axes fixed.

    >>> list(pieces_of((2, 3, 4), 12)) == [(0,), (1,)]
    True
    """
    fixed = 0
    while fixed < len(shape) and int(np.prod(shape[fixed:], dtype=np.int64)) > entries:
        fixed += 1
    yield from np.ndindex(*shape[:fixed])
