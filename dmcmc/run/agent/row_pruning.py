"""Which of an agent's rows can still matter, and the list of them that the combination works with when they are few."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.types import Number


@dataclass
class Pruning:
    """Rows that cannot be in a better solution than the best known one, and the others.

    Attributes
    ----------
    pruned : (rows,) bool or None
        None as long as nothing is known.
    listing : (k,) int64 or None
        The rows that can still matter and the best solution's, where the combination works with them alone.
    """

    pruned: NDArray[np.bool_] | None = None
    listing: NDArray[np.int64] | None = None

    @property
    def count(self) -> int:
        """How many rows have been pruned."""
        return 0 if self.pruned is None else int(self.pruned.sum())

    @property
    def open_rows(self) -> NDArray[np.int64] | None:
        """The rows that can still matter; None for all."""
        return None if self.pruned is None else np.flatnonzero(~self.pruned)

    def prune(self, upper: NDArray[Any], limits: NDArray[Any]) -> None:
        """Take out the rows whose bounds do not exceed their limits."""
        pruned = upper <= limits
        self.pruned = pruned if self.pruned is None else self.pruned | pruned

    def list_rows(self, local: LocalProblem, best: NDArray[np.int64]) -> None:
        """List the rows that can still matter, and that of the best assignment known, if they are much fewer."""
        if self.pruned is None or not local.interface:
            return
        keep = ~self.pruned
        values = [int(best[v]) for v in local.interface]
        keep[int(np.ravel_multi_index(values, local.interface_shape))] = True
        if 2 * int(keep.sum()) <= keep.size:
            self.listing = np.flatnonzero(keep)

    def listed_values(self, local: LocalProblem) -> NDArray[np.int64]:
        """Return the interface values of the listed rows, (k, |B_i|)."""
        assert self.listing is not None
        return np.stack(np.unravel_index(self.listing, local.interface_shape), axis=1).astype(np.int64)


def limits_of(outside: NDArray[Any], threshold: Number, arithmetic: Arithmetic) -> NDArray[Any]:
    """Return what each row has to exceed: int64, or float64 where sums are floats.

    Where all others together are impossible, it is the largest number that there is.

    Parameters
    ----------
    outside : (rows,) encoded
        At most what all other agents add to each row.
    threshold
        What the whole has to exceed to be better than the best known.
    """
    limits = outside.astype(np.int64 if arithmetic.exact else np.float64)
    hard = (outside < arithmetic.threshold) | (outside == arithmetic.lowest)
    np.subtract(np.array(threshold, dtype=limits.dtype), limits, out=limits)
    limits[hard] = np.iinfo(np.int64).max if arithmetic.exact else np.inf
    return limits
