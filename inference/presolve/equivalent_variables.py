"""Merge equivalent variables: a variable that determines another one, and is determined by it, replaces it.

Several agents that have to agree (PEAV: each participant has a variable for a meeting's time) share one decision by
hard equalities. A search that changes one variable at a time cannot move any of them; it can move the merged
variable.
"""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.presolve.working_problem import EliminatedVariable, WorkingProblem


def merge_equivalent_variables(working: WorkingProblem) -> int:
    """Replace each variable by one that it is equivalent to, whoever owns them; return the number of removed variables.

    Two variables are equivalent if a table over just these two allows each value of one with exactly one value of the
    other.
    """
    count = 0
    for scope in [scope for scope in working.tables if len(scope) == 2]:
        if scope not in working.tables or working.limit.over:  # an earlier merge may have removed the table
            continue
        allowed = ~forbidden(working.tables[scope])
        if (allowed.sum(axis=0) == 1).all() and (allowed.sum(axis=1) == 1).all():
            _merge(working, *scope, allowed.argmax(axis=1))
            count += 1
    return count


def _merge(working: WorkingProblem, kept: int, copy: int, image: NDArray[np.int64]) -> None:
    """Replace the variable ``copy`` by ``kept``.

    ``image`` (values of ``kept``,) int64 holds the copy's value for each value of the kept variable.
    """
    remaining = working.remaining
    working.eliminated.append(EliminatedVariable(copy, (kept,), (remaining[kept],), remaining[copy][image]))
    working.private[kept] &= working.private[copy]
    for scope in list(working.touching[copy]):
        table, axis = working.take(scope), scope.index(copy)
        table = table.take(image, axis=axis)
        if kept in scope:
            table = np.diagonal(table, axis1=scope.index(kept), axis2=axis)  # the common axis comes last
            new_scope = (*(v for v in scope if v not in (kept, copy)), kept)
        else:
            new_scope = tuple(kept if v == copy else v for v in scope)
        order = np.argsort(new_scope, kind="stable").tolist()
        working.add(tuple(new_scope[i] for i in order), np.ascontiguousarray(table.transpose(order)))
