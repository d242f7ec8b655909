"""What a row must reach to matter: a good assignment minus the best that all others can add to the row."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.eliminate import Elimination, eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.orders.best_order import best_order


def bound_of(tables: Sequence[Table], domains: NDArray[np.int64], arithmetic: Arithmetic) -> int | float:
    """Return the maximum of the sum of encoded tables; an upper bound on it for floats."""
    total = _eliminated(tables, (), domains, arithmetic).total()
    return -math.inf if arithmetic.is_lowest(total) else arithmetic.outward(total, len(tables))


def row_thresholds(
    tables: Sequence[Table],
    interface: Sequence[int],
    domains: NDArray[np.int64],
    arithmetic: Arithmetic,
    target: int | float,
) -> NDArray[np.object_]:
    """Return for each row what an agent must add to it for the whole to reach ``target``: (rows,) Python numbers.

    Parameters
    ----------
    tables
        Everybody else's: crossing factors and the bounds of the other agents, encoded.
    interface
        Of the agent. Rows are numbered in C order over it.
    target
        A utility. With the best known one plus 1 (integers), all that is below the thresholds cannot improve on it.
    """
    left = _eliminated(tables, interface, domains, arithmetic).remaining()
    shape = tuple(int(domains[v]) for v in interface)
    best = np.zeros(shape, dtype=object)
    for scope, values in left:
        hard = (values < arithmetic.threshold) | (values == arithmetic.lowest)
        plain = np.array(values, dtype=object)
        plain[hard] = -math.inf
        axes = sorted(range(len(scope)), key=lambda axis, scope=scope: interface.index(scope[axis]))  # type: ignore[misc]
        best = np.asarray(
            best + plain.transpose(axes).reshape([int(domains[v]) if v in scope else 1 for v in interface]),
            dtype=object,
        )
    out = np.empty(best.size, dtype=object)
    for i, value in enumerate(best.ravel().tolist()):
        out[i] = math.inf if value == -math.inf else target - arithmetic.outward(value, len(tables))
    return out


def _eliminated(
    tables: Sequence[Table], keep: Sequence[int], domains: NDArray[np.int64], arithmetic: Arithmetic
) -> Elimination:
    scopes = [t.scope for t in tables]
    others = sorted({v for scope in scopes for v in scope}.difference(keep))
    order = best_order(scopes, domains, others, keep, budget=1_000_000).variables
    return eliminate(tables, plan_elimination(scopes, domains, order, keep), arithmetic)
