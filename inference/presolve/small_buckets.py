"""Eliminate variables exactly where that makes the problem no larger (bucket elimination of small buckets)."""

import heapq
from math import prod

import numpy as np

from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.presolve.working_problem import EliminatedVariable, WorkingProblem, add_tables, broadcast_table
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import SMALL_STEP_CELLS


def eliminate_small(working: WorkingProblem) -> int:
    """Maximise out variables whose tables have a small join, if the result is no larger; return their number.

    A variable is eliminated only if an elimination order may begin with it: its neighbours form a clique, or all but
    one do, or there are at most two. An optimal order of the remaining variables then extends to a near-optimal one
    of all variables (Bodlaender, Koster & van den Eijkhof 2005). A variable is eliminated only if all its neighbours
    belong to its agent: private information stays with the agent.

    The queue may hold outdated entries: an entry counts only if its cells are still those of the variable's join.
    """
    queue = [(_joined_cells(working, v), v) for v in sorted(working.elimination_pending) if working.touching[v]]
    working.elimination_pending = set()
    heapq.heapify(queue)
    count = 0
    while queue and not working.limit.over:
        cells, v = heapq.heappop(queue)
        if not working.touching[v] or cells != (current := _joined_cells(working, v)):
            if working.touching[v] and current < SMALL_STEP_CELLS:
                heapq.heappush(queue, (current, v))
            continue
        if cells > SMALL_STEP_CELLS:
            break
        if not may_eliminate(working, v):
            continue
        _eliminate(working, v, _neighbours(working, v))
        count += 1
        for u in sorted(working.elimination_pending):
            if working.touching[u]:
                heapq.heappush(queue, (_joined_cells(working, u), u))
        working.elimination_pending = set()
    return count


def _neighbours(working: WorkingProblem, v: int) -> tuple[int, ...]:
    """Return the variables that share a table with ``v``, ascending."""
    return tuple(sorted({u for scope in working.touching[v] for u in scope} - {v}))


def _cells(working: WorkingProblem, variables: tuple[int, ...]) -> int:
    """Return the number of assignments of some variables."""
    return prod(len(working.remaining[u]) for u in variables)


def _joined_cells(working: WorkingProblem, v: int) -> int:
    """Return the cells of the join of a variable's tables."""
    return _cells(working, (*_neighbours(working, v), v))


def may_eliminate(working: WorkingProblem, v: int) -> bool:
    """Return whether a variable may be eliminated: it is private to its agent, and the result has no more cells."""
    neighbours = _neighbours(working, v)
    if not working.private[v] or len(neighbours) > SMALL_STEP_CELLS.bit_length():
        return False
    if _cells(working, neighbours) > sum(working.tables[scope].size for scope in working.touching[v]):
        return False
    return len(neighbours) <= 2 or _almost_clique(working, neighbours)


def _almost_clique(working: WorkingProblem, variables: tuple[int, ...]) -> bool:
    """Return whether each two of some variables share a table, possibly after removal of one variable."""
    missing_neighbours = []
    for u in variables:
        adjacent = {w for scope in working.touching[u] for w in scope}
        missing_neighbours.append({w for w in variables if w not in adjacent})
    return not any(missing_neighbours) or any(
        all(u == w or missing <= {u} for w, missing in zip(variables, missing_neighbours, strict=True))
        for u in variables
    )


def _eliminate(working: WorkingProblem, v: int, neighbours: tuple[int, ...]) -> None:
    """Replace a variable's tables by their joint maximum over it."""
    joint_scope = (*neighbours, v)
    joined: Array | None = None
    for scope in list(working.touching[v]):
        table = working.take(scope)
        axis = scope.index(v)
        table = np.moveaxis(table, axis, -1)
        addend = broadcast_table(table, (*scope[:axis], *scope[axis + 1 :], v), joint_scope)
        joined = addend if joined is None else add_tables(joined, addend)
    assert joined is not None
    joined = np.broadcast_to(joined, tuple(len(working.remaining[u]) for u in joint_scope))
    best = joined.argmax(axis=-1)
    message = np.take_along_axis(joined, best[..., None], axis=-1)[..., 0]
    working.eliminated.append(
        EliminatedVariable(v, neighbours, tuple(working.remaining[u] for u in neighbours), working.remaining[v][best])
    )
    if not neighbours or (message != message.flat[0]).any() or message.flat[0] == forbidden_value(message.dtype):
        working.add(neighbours, message)
    else:
        working.add((), message.reshape(-1)[0].reshape(()))
