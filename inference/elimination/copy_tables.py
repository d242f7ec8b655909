"""Copy the input tables into the arena of an elimination, in parts between which the deadline is checked.

The arena is the array that holds the entries of all tables of the plan; the input tables come first.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from dmcmc.inference.elimination.arena_kernels import place_inputs
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Array

_ENTRIES_PER_CHECK = 1 << 22  # entries between two checks of the deadline


def place_tables(
    plan: EliminationPlan, arena: Array, flat: FlatTables, lowest: np.generic, stop: Deadline = NO_DEADLINE
) -> None:
    """Copy the input tables to the front of the arena, with axes in the plan's order.

    Parameters
    ----------
    plan
        The plan of the elimination.
    arena : (plan.entries,)
        Memory of all tables, in the dtype of ``flat``.
    flat
        The encoded input tables.
    lowest
        The −∞ of the arithmetic.
    stop
        The deadline.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    program = plan.program
    if stop is NO_DEADLINE or flat.data.size < _ENTRIES_PER_CHECK:
        if stop is not NO_DEADLINE:
            stop.check()
        place_inputs(program, arena, *flat, lowest)
        return
    sizes = np.diff(flat.at)
    cuts = np.unique([0, *(1 + np.flatnonzero(np.diff(np.cumsum(sizes) // _ENTRIES_PER_CHECK))).tolist(), flat.tables])
    for first, last in pairwise(cuts.tolist()):
        stop.check()
        if last == first + 1 and sizes[first] > _ENTRIES_PER_CHECK:
            _place_large(plan, arena, flat, first, stop)
            continue
        program_part = program._replace(at=program.at[first:], scope_start=program.scope_start[first:])
        place_inputs(program_part, arena, *flat.table_range(first, last), lowest)


def _place_large(plan: EliminationPlan, arena: Array, flat: FlatTables, t: int, stop: Deadline) -> None:
    """Copy one large table in parts of limited size."""
    scope, target_scope = flat.table_range(t, t + 1).scope.tolist(), plan.scope(t)
    sizes = plan.program.domains[scope].tolist()
    source = flat.data[flat.at[t] : flat.at[t + 1]].reshape(sizes).transpose([scope.index(v) for v in target_scope])
    at = int(plan.program.at[t])
    target = arena[at : at + source.size].reshape(source.shape)
    for index in pieces_of(source.shape, _ENTRIES_PER_CHECK):
        stop.check()
        target[index] = source[index]


def pieces_of(shape: Sequence[int], entries: int) -> Iterator[tuple[int | slice, ...]]:
    """Yield indices that cover an array in parts of at most about ``entries`` entries; each fixes the first few axes.

    >>> list(pieces_of((2, 3, 4), 12)) == [(0,), (1,)]
    True
    """
    fixed = 0
    while fixed < len(shape) and int(np.prod(shape[fixed:], dtype=np.int64)) > entries:
        fixed += 1
    yield from np.ndindex(*shape[:fixed])
