"""Add up an agent's tables, each over a part of its interface (boundary variables), into one number for every row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.agent_step import UtilMessage
from dmcmc.inference.model.arithmetic import Arithmetic


def rows_of(
    tables: UtilMessage, interface: tuple[int, ...], sizes: NDArray[np.int64], arithmetic: Arithmetic
) -> NDArray[Any]:
    """Return the sum of encoded tables over parts of an interface for every row, (rows,) in the arithmetic's dtype.

    A row is an assignment of the interface, in C order.

    Parameters
    ----------
    tables
        Tables whose scopes are subsets of the interface.
    interface
        The variables of the rows.
    sizes : (n,) int64
        Domain sizes of all variables.
    arithmetic
        Encoding of the tables, which defines their sums.
    """
    shape = [int(sizes[v]) for v in interface]
    total = np.zeros(shape, dtype=arithmetic.dtype)
    for table in tables:
        scope, values = table.scope, table.values
        axes = sorted(range(len(scope)), key=lambda axis: interface.index(scope[axis]))
        broadcast_shape = [shape[i] if v in scope else 1 for i, v in enumerate(interface)]
        total = arithmetic.add(total, values.transpose(axes).reshape(broadcast_shape))
    return total.reshape(-1)
