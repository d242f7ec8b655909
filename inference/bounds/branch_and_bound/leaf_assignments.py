"""Complete assignments that a branch and bound has found: leaves, where every hidden variable has one value left."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Ints


class LeafAssignments:
    """Collects the best assignment of each row that was added since the last call of ``pop_all``."""

    def __init__(self) -> None:
        self._best: dict[int, tuple[int, NDArray[Any]]] = {}

    def add(self, rows: Ints, bounds: Ints, masks: NDArray[np.bool_]) -> None:
        """Add leaves; of several leaves of a row, the one with the largest utility is retained.

        Parameters
        ----------
        rows : (k,) int64
            Row of each leaf.
        bounds : (k,) int64
            Utility of each leaf in the agent's integer scale; its upper bound is exact.
        masks : (k, n, W) bool
            Remaining values of each hidden variable, exactly one per variable.
        """
        values = masks.argmax(axis=2)
        for row, bound, values_of_row in zip(rows.tolist(), bounds.tolist(), values, strict=True):
            if row not in self._best or bound > self._best[row][0]:
                self._best[row] = bound, values_of_row

    def pop_all(self) -> tuple[Ints, Ints] | None:
        """Return and remove the assignments: rows (k,) and hidden values (k, n); None if there are none."""
        best, self._best = self._best, {}
        if not best:
            return None
        rows = np.array(sorted(best), dtype=np.int64)
        return rows, np.array([best[row][1] for row in rows.tolist()], dtype=np.int64)
