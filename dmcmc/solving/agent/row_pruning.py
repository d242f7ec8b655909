"""Track which of an agent's rows can still matter, and list them for the combination when they are few.

A row is one assignment of the agent's boundary variables (its interface).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.types import Number


@dataclass
class RowPruning:
    """Rows that cannot be part of a better solution than the incumbent, and the remaining ones.

    Rows are only ever added to ``pruned``. ``listing`` is None at first; ``list_rows`` sets it when at most half of the
    rows remain.

    Attributes
    ----------
    pruned : (rows,) bool or None
        Whether each row is pruned; None if no row has been examined.
    listing : (k,) int64 or None
        The remaining rows and the incumbent's row, if the combination works with these rows only.
    """

    pruned: NDArray[np.bool_] | None = None
    listing: NDArray[np.int64] | None = None

    @property
    def count(self) -> int:
        """Number of pruned rows."""
        return 0 if self.pruned is None else int(self.pruned.sum())

    @property
    def open_rows(self) -> NDArray[np.int64] | None:
        """The rows that can still matter, (k,) int64; None for all rows."""
        return None if self.pruned is None else np.flatnonzero(~self.pruned)

    def prune(self, upper: NDArray[Any], cutoffs: NDArray[Any]) -> None:
        """Prune the rows whose upper bounds do not exceed their cutoffs."""
        pruned = upper <= cutoffs
        self.pruned = pruned if self.pruned is None else self.pruned | pruned

    def list_rows(self, local: LocalProblem, best: NDArray[np.int64]) -> None:
        """List the rows that can still matter and the incumbent's row, if they are at most half of all rows."""
        if self.pruned is None or not local.interface:
            return
        listed = ~self.pruned
        values = [int(best[v]) for v in local.interface]
        listed[int(np.ravel_multi_index(values, local.interface_shape))] = True
        if 2 * int(listed.sum()) <= listed.size:
            self.listing = np.flatnonzero(listed)

    def listed_values(self, local: LocalProblem) -> NDArray[np.int64]:
        """Return the boundary values of the listed rows, (k, number of boundary variables) int64."""
        assert self.listing is not None
        return np.stack(np.unravel_index(self.listing, local.interface_shape), axis=1).astype(np.int64)


def row_cutoffs_of(outside: NDArray[Any], cutoff: Number, arithmetic: Arithmetic) -> NDArray[Any]:
    """Return the utility that each row has to exceed, (rows,): int64, or float64 if sums are floats.

    It is cutoff - outside. Where all other agents together violate a hard constraint, the row is impossible, and its
    cutoff is the largest number of the dtype (inf for floats).

    Parameters
    ----------
    outside : (rows,) encoded
        Upper bound on what all other agents can add to each row.
    cutoff
        Utility that a whole solution has to exceed to improve the incumbent.
    arithmetic
        Encoding of ``outside``.
    """
    cutoffs = outside.astype(np.int64 if arithmetic.exact else np.float64)
    infeasible = (outside < arithmetic.forbidden_below) | (outside == arithmetic.lowest)
    np.subtract(np.array(cutoff, dtype=cutoffs.dtype), cutoffs, out=cutoffs)
    cutoffs[infeasible] = np.iinfo(np.int64).max if arithmetic.exact else np.inf
    return cutoffs
