"""Variables whose buckets are small, and what presolve would gain.

Eliminate variables exactly where that makes the problem no larger (bucket elimination of small buckets).

Estimate from a sample of variables whether presolve is worth its time.
"""

import heapq
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.presolve.working_problem import (
    EliminatedVariable,
    PresolveLimit,
    WorkingProblem,
    add_tables,
    broadcast_table,
)
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import MAX_RIVALS, SAMPLE_SIZE, SMALL_STEP_CELLS


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


_MAX_INT32_MAGNITUDE = 1 << 30  # differences of smaller entries fit 32 bits


def estimate_presolve_gain(problem: Problem) -> float:
    """Return the estimated share of the variables and values of a problem of dense tables that presolve would remove.

    No entry may be forbidden. An evenly spaced sample of the private variables is examined (those that share factors
    only within their agent): how many may be eliminated, and how many of their values are dominated. Consequences of
    these removals are not considered.
    """
    return problem.facts.get_or_compute("promise", lambda: _estimate(problem))


class _Sample(NamedTuple):
    """A sample of private variables, for all problems of one structure.

    Attributes
    ----------
    private, eliminated : int
        The number of private variables, and of sampled variables that may be eliminated.
    size : int
        The number of sampled variables.
    nearby_factors : list of int
        Indices of the factors over sampled variables.
    not_eliminable : list of int
        The sampled variables that may not be eliminated.
    """

    private: int
    eliminated: int
    size: int
    nearby_factors: list[int]
    not_eliminable: list[int]


def _estimate(problem: Problem) -> float:
    """Compute the estimated share of removed variables and values."""
    sample = problem.shape_facts.get_or_compute("sample", lambda: _draw_sample(problem))
    if not sample.private:
        return 0.0
    removed = sample.eliminated + _dominated(problem, sample.nearby_factors, sample.not_eliminable)
    return removed / sample.size * sample.private / problem.n_variables


def _draw_sample(problem: Problem) -> _Sample:
    """Draw a sample of private variables and find those that may be eliminated."""
    scope, lengths = problem.flat.scope, np.diff(problem.flat.scope_start)
    table = np.repeat(np.arange(lengths.size), lengths)  # table of each entry of ``scope``
    first = problem.flat.scope_start[table]
    crossing = np.zeros(lengths.size, dtype=np.bool_)
    crossing[table[problem.owner[scope] != problem.owner[scope[first]]]] = True
    private = np.ones(problem.n_variables, dtype=np.bool_)
    private[scope[crossing[table]]] = False
    private_variables = np.flatnonzero(private)
    if not private_variables.size:
        return _Sample(0, 0, 0, [], [])
    sampled = private_variables[
        np.linspace(0, private_variables.size - 1, min(SAMPLE_SIZE, private_variables.size)).astype(np.int64)
    ].tolist()
    nearby_factors = np.unique(table[np.isin(scope, sampled)]).tolist()
    eliminable = _eliminable(problem, nearby_factors, sampled)
    remaining = [v for v, may_go in zip(sampled, eliminable, strict=True) if not may_go]
    return _Sample(private_variables.size, len(sampled) - len(remaining), len(sampled), nearby_factors, remaining)


def _eliminable(problem: Problem, nearby_factors: Sequence[int], sample: Sequence[int]) -> list[bool]:
    """Return which variables may be eliminated, judged by the scopes of the factors near them."""
    factors = [problem.factors[t] for t in nearby_factors]
    empty_factors = tuple(Factor(factor.scope, np.zeros(factor.shape, dtype=np.int32)) for factor in factors)
    working = WorkingProblem.of(replace(problem, factors=empty_factors), PresolveLimit())
    assert working is not None
    return [may_eliminate(working, v) or not working.touching[v] for v in sample]


def _dominated(problem: Problem, nearby_factors: Sequence[int], variables: Sequence[int]) -> float:
    """Return the sum over variables of the share of their values that are dominated; no entry may be forbidden.

    The criterion is that of ``dominance.remove_dominated_values``, applied to all variables at once: value x is
    dominated by y if Σ_f min over the other variables of f(y, ·) − f(x, ·) ≥ 0. Only the ``MAX_RIVALS`` values with the
    largest mean utility are tried as y. Each variable sees the values of the others as they were at the start.
    """
    tables: dict[tuple[int, int], list[tuple[int, Array]]] = {}
    position = {v: i for i, v in enumerate(variables)}
    for t in nearby_factors:
        factor = problem.factors[t]
        for axis, v in enumerate(factor.scope):
            if v in position:  # the variable's axis last: all further operations run over long rows
                table = factor.table.swapaxes(axis, -1).reshape(-1, factor.table.shape[axis])
                tables.setdefault(table.shape, []).append((position[v], table))
    max_size, count = int(problem.domains[list(variables)].max(initial=1)), len(variables)
    sizes, indices = problem.domains[list(variables)], np.arange(count)
    remaining = np.arange(max_size) < sizes[:, None]
    mean_utilities = np.where(remaining, 0.0, -np.inf)
    data, stacks = problem.flat.data, list[tuple[NDArray[np.int64], Array]]()
    small = data.dtype == np.int32 and bool(data.size) and max(-int(data.min()), int(data.max())) < _MAX_INT32_MAGNITUDE
    for (contexts, size), same_shape_tables in tables.items():
        rows = np.array([row for row, _ in same_shape_tables])
        stack: Array = np.empty((contexts, len(same_shape_tables), size), np.dtype(np.int32 if small else np.float64))
        for k, (_, table) in enumerate(same_shape_tables):
            stack[:, k] = table
        stacks.append((rows, stack))
        np.add.at(mean_utilities[:, :size], rows, stack.sum(axis=0, dtype=np.float64) / max(1, contexts))
    rivals = np.argsort(-mean_utilities, axis=1, kind="stable")[:, 0]
    for _ in range(MAX_RIVALS):
        advantage = np.zeros((count, max_size))
        for rows, stack in stacks:
            best = stack[:, np.arange(rows.size), rivals[rows]]
            np.add.at(advantage[:, : stack.shape[2]], rows, (best[:, :, None] - stack).min(axis=0))
        dominated = remaining & (advantage >= 0)
        dominated[indices, rivals] = False
        remaining &= ~dominated
        candidates = np.where(remaining, mean_utilities, -np.inf)
        candidates[indices, rivals] = -np.inf
        rivals = np.where(candidates.max(axis=1) > -np.inf, candidates.argmax(axis=1), rivals)
    return float(((sizes - remaining.sum(axis=1)) / sizes).sum())
