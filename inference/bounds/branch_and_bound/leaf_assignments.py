"""The assignments that a search in rows comes to: where every variable has one value left."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Ints


class Leaves:
    """The best one of each row, until it is asked for."""

    def __init__(self) -> None:
        self._best: dict[int, tuple[int, NDArray[Any]]] = {}

    def add(self, rows: Ints, bounds: Ints, masks: NDArray[np.bool_]) -> None:
        """Add some.

        Parameters
        ----------
        rows, bounds : (k,)
            Whose they are, and what they are worth.
        masks : (k, n, W) bool
            Values that are live, one of each variable.
        """
        values = masks.argmax(axis=2)
        for row, bound, own in zip(rows.tolist(), bounds.tolist(), values, strict=True):
            if row not in self._best or bound > self._best[row][0]:
                self._best[row] = bound, own

    def taken(self) -> tuple[Ints, Ints] | None:
        """Return rows, (k,), and their hidden values, (k, n), that have been added since this was last asked."""
        best, self._best = self._best, {}
        if not best:
            return None
        rows = np.array(sorted(best), dtype=np.int64)
        return rows, np.array([best[row][1] for row in rows.tolist()], dtype=np.int64)
