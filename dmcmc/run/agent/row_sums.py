"""Tables over parts of an interface, added up for every row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.inference.model.arithmetic import Arithmetic


def rows_of(
    tables: UtilMessage, interface: tuple[int, ...], sizes: NDArray[np.int64], arithmetic: Arithmetic
) -> NDArray[Any]:
    """Return the sum of encoded tables over parts of an interface as one array of its rows, flat.

    Parameters
    ----------
    sizes
        Domain sizes of all variables.
    """
    shape = [int(sizes[v]) for v in interface]
    total = np.zeros(shape, dtype=arithmetic.dtype)
    for table in tables:
        scope, values = table.scope, table.values
        order = sorted(range(len(scope)), key=lambda axis: interface.index(scope[axis]))
        wide = [shape[i] if v in scope else 1 for i, v in enumerate(interface)]
        total = arithmetic.add(total, values.transpose(order).reshape(wide))
    return total.reshape(-1)
