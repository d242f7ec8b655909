"""The rows of a branch and bound: which are opened, their thresholds and cutoffs, and bounds of their closed nodes.

All numbers are int64 in the agent's integer scale; see :mod:`.frontier`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.bounder import JOB_ROW, JOB_SOURCE, JOB_THRESHOLD
from dmcmc.inference.bounds.branch_and_bound.open_nodes import OpenNodes
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY, Scale
from dmcmc.inference.runtime.types import Ints


class SearchedRows:
    """The state of each row in a search, besides its open nodes.

    Parameters
    ----------
    bounds : (rows,) int64
        Upper bounds of the rows.
    scale : Scale
        The agent's scale.

    Attributes
    ----------
    initial_bounds : (rows,) int64
        Upper bounds of the rows before the search.
    thresholds : (rows,) int64
        Nodes whose upper bound is below their row's threshold are closed.
    cutoffs : (rows,) int64
        Utilities that rows have to exceed.
    """

    def __init__(self, bounds: Ints, scale: Scale) -> None:
        self._scale, self.initial_bounds = scale, bounds.copy()
        self.thresholds = np.full(bounds.size, MINUS_INFINITY, dtype=np.int64)
        self.cutoffs = self.thresholds.copy()
        self._closed_bounds = self.thresholds.copy()  # upper bound on the closed nodes of each row
        self._opened, self._branched = np.zeros(bounds.size, dtype=np.bool_), np.zeros(bounds.size, dtype=np.bool_)

    def begin(self, bounds: Ints, rows: Ints, thresholds: Ints, cutoffs: Ints) -> Ints:
        """Raise thresholds, and open the given rows that are new; return those. The parameters are the frontier's."""
        irrelevant = np.ones(bounds.size, dtype=np.bool_)
        irrelevant[rows] = False
        np.maximum.at(self.thresholds, rows, thresholds)
        self.thresholds[irrelevant] = -MINUS_INFINITY  # plus infinity: closes all nodes of these rows
        self.cutoffs[rows] = cutoffs
        self.initial_bounds = bounds.copy()
        new = rows[~self._opened[rows] & (bounds[rows] >= self.thresholds[rows])]
        self._opened[new] = True
        return new

    def reopen(self, rows: Ints, thresholds: Ints) -> NDArray[np.bool_]:
        """Reset the thresholds, and forget the rows whose closed nodes may reach the given ones.

        Returns
        -------
        (all rows,) bool
            Whether each row is forgotten.
        """
        self._closed_bounds[self._closed_bounds > MINUS_INFINITY] += self._scale.threshold_error
        again = np.zeros(self.thresholds.size, dtype=np.bool_)
        again[rows] = self._closed_bounds[rows] >= thresholds
        self.thresholds[:] = MINUS_INFINITY
        self._closed_bounds[again] = MINUS_INFINITY
        self._opened &= ~again
        self._branched &= ~again
        return again

    def open_all(self) -> None:
        """Mark all rows as opened: another search opens them."""
        self._opened[:] = True

    def close(self, rows: Ints, bounds: Ints) -> None:
        """Record the upper bounds of closed nodes of some rows."""
        np.maximum.at(self._closed_bounds, rows, bounds)

    def attain(self, rows: Ints, utilities: Ints) -> None:
        """Raise the thresholds of rows above the utilities that leaves of these rows attain.

        If all utilities are integers, the next utility that matters is 1 higher: 2^shift in the agent's scale.
        """
        # one utility in the scale; 1 if utilities are not integers
        step = 1 << max(0, self._scale.shift) if self._scale.integral else 1
        np.maximum.at(self.thresholds, rows, (utilities // step + 1) * step)

    def record(self, jobs: Ints, final_rows: Ints, final_bounds: Ints) -> None:
        """Record what jobs show of their rows.

        Parameters
        ----------
        jobs : (k, JOB_FIELDS) int64
            The jobs that created nodes. Those that did not start from the row have branched it.
        final_rows, final_bounds : (m,) int64
            Rows and upper bounds of the new nodes that are not branched any more.
        """
        self._branched[jobs[jobs[:, JOB_SOURCE] >= 0, JOB_ROW]] = True
        # Values below the threshold are removed without their bound, so the row may still attain anything below it.
        self.close(jobs[:, JOB_ROW], jobs[:, JOB_THRESHOLD] - 1)
        self.close(final_rows, final_bounds)

    def are_branched(self, nodes: OpenNodes) -> bool:
        """Return whether the rows of some nodes have been branched."""
        return bool(self._branched[nodes.row].all())

    def bounds(self, nodes: OpenNodes) -> tuple[Ints, Ints]:
        """Return the opened rows and their upper bounds, given all open nodes."""
        row_bounds = self._closed_bounds.copy()
        np.maximum.at(row_bounds, nodes.row, nodes.bound)
        rows = np.flatnonzero(self._opened)
        return rows, row_bounds[rows]

    def excesses(self, nodes: OpenNodes) -> Ints:
        """Return each node's bound minus its row's cutoff: the amount by which it raises the whole problem's bound."""
        excess: Ints = nodes.bound - self.cutoffs[nodes.row]
        return excess

    def largest_excess(self, nodes: OpenNodes) -> float:
        """Return the largest excess of some nodes, in utility; 0 if it is negative or there is no node."""
        if not nodes.row.size:
            return 0.0
        return max(0.0, math.ldexp(float(self.excesses(nodes).max()), -self._scale.shift))
