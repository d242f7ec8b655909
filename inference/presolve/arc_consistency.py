"""Generalised arc consistency: remove values without support in a table, or in a matching of an all-different group."""

from collections.abc import Sequence

import numpy as np

from dmcmc.inference.constraints.matching import supported_values
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.presolve.tuning import MAX_CONSISTENCY_PASSES
from dmcmc.inference.presolve.working_problem import Infeasible, WorkingProblem


def enforce_arc_consistency(working: WorkingProblem, groups: Sequence[tuple[int, ...]] = ()) -> int:
    """Remove values without support until all have some; return the number of removed values.

    A table is read again after a variable of it has lost a value. Automata that were expanded to chains of tables
    (:mod:`dmcmc.inference.model.densify`) become fully consistent this way: their hypergraph has no cycles.

    Parameters
    ----------
    working
        The problem; changed in place.
    groups
        Groups of variables that must all take different values (as value indices of the problem).

    Raises
    ------
    Infeasible
        If a variable has lost all its values, or a group has too few: a proof of infeasibility.
    """
    remaining_cells, removed = (
        MAX_CONSISTENCY_PASSES * sum(working.tables[scope].size for scope in working.consistency_pending),
        0,
    )
    value_counts = [-1] * len(groups)  # remaining values of each group's variables at its last revision
    while remaining_cells > 0 and not working.limit.over:
        if working.consistency_pending:
            scope = next(iter(working.consistency_pending))
            remaining_cells -= working.tables[scope].size
            removed += _revise(working, scope)
            continue
        changed = [i for i, group in enumerate(groups) if _remaining_values(working, group) != value_counts[i]]
        if not changed:
            break
        for i in changed:
            removed += _revise_group(working, groups[i])
            value_counts[i] = _remaining_values(working, groups[i])
    return removed


def _revise(working: WorkingProblem, scope: tuple[int, ...]) -> int:
    """Remove the values that one table does not support; return their number."""
    table, removed = working.tables[scope], 0
    working.limit.charge(1, table.size)
    allowed = ~forbidden(table)
    if not allowed.all():
        for axis, v in enumerate(scope):
            keeps = np.asarray(allowed.any(axis=tuple(i for i in range(len(scope)) if i != axis)))
            if not keeps.all():
                removed += working.keep(v, keeps)
                allowed = np.compress(keeps, allowed, axis=axis)
    del working.consistency_pending[scope]  # what remains of the table supports all remaining values
    return removed


def _remaining_values(working: WorkingProblem, group: tuple[int, ...]) -> int:
    """Return the number of remaining values of a group's variables."""
    return sum(len(working.remaining[v]) for v in group)


def _revise_group(working: WorkingProblem, group: tuple[int, ...]) -> int:
    """Remove the values of a group that no assignment of different values uses; return their number."""
    working.limit.charge(len(group), _remaining_values(working, group))
    keeps = supported_values([working.remaining[v].tolist() for v in group])
    if keeps is None:
        raise Infeasible
    return sum(working.keep(v, np.array(keep)) for v, keep in zip(group, keeps, strict=True) if not all(keep))
