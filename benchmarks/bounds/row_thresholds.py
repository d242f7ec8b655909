"""Row thresholds: what an agent must add to a row for the whole problem to reach a target utility.

A row's threshold is the target minus an upper bound on what all other agents can add (the outside bound).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.eliminate import Elimination, eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.orders.best_order import best_order


def bound_of(tables: Sequence[EncodedTable], domains: NDArray[np.int64], arithmetic: Arithmetic) -> int | float:
    """Return the maximum of the sum of encoded tables, rounded up for floats; -inf if every assignment is forbidden."""
    total = _eliminated(tables, (), domains, arithmetic).total()
    return -math.inf if arithmetic.is_lowest(total) else arithmetic.outward(total, len(tables))


def row_thresholds(
    tables: Sequence[EncodedTable],
    interface: Sequence[int],
    domains: NDArray[np.int64],
    arithmetic: Arithmetic,
    target: int | float,
) -> NDArray[np.object_]:
    """Return, for each row of an agent, the utility that the agent must add for the whole problem to reach ``target``.

    Parameters
    ----------
    tables : sequence of EncodedTable
        Crossing factors (those that join several agents) and the bounds of all other agents, encoded.
    interface : sequence of int
        The agent's boundary variables. Rows are numbered in C order over them.
    domains : (variables,) int64
        Domain sizes.
    arithmetic : Arithmetic
        The number type and encoding of the tables.
    target : int or float
        A utility. With the best known utility plus 1 (for integers), assignments below the thresholds cannot improve
        on it.

    Returns
    -------
    (rows,) object
        Python numbers; inf for rows that the other agents forbid.
    """
    outside_tables = _eliminated(tables, interface, domains, arithmetic).remaining()
    shape = tuple(int(domains[v]) for v in interface)
    outside = np.zeros(shape, dtype=object)
    for scope, values in outside_tables:
        is_forbidden = (values < arithmetic.forbidden_below) | (values == arithmetic.lowest)
        numbers = np.array(values, dtype=object)
        numbers[is_forbidden] = -math.inf
        axes = sorted(range(len(scope)), key=lambda axis, scope=scope: interface.index(scope[axis]))  # type: ignore[misc]
        outside = np.asarray(
            outside + numbers.transpose(axes).reshape([int(domains[v]) if v in scope else 1 for v in interface]),
            dtype=object,
        )
    thresholds = np.empty(outside.size, dtype=object)
    for i, value in enumerate(outside.ravel().tolist()):
        thresholds[i] = math.inf if value == -math.inf else target - arithmetic.outward(value, len(tables))
    return thresholds


def _eliminated(
    tables: Sequence[EncodedTable], keep: Sequence[int], domains: NDArray[np.int64], arithmetic: Arithmetic
) -> Elimination:
    """Eliminate all variables except ``keep`` from the sum of the tables by maximisation."""
    scopes = [t.scope for t in tables]
    others = sorted({v for scope in scopes for v in scope}.difference(keep))
    order = best_order(scopes, domains, others, keep, budget=1_000_000).variables
    return eliminate(tables, plan_elimination(scopes, domains, order, keep), arithmetic)
