"""An agent's lower table: its rows, the chains that continue to sample it, and the choice of rows to sample.

A row is an assignment of the agent's boundary variables (its interface).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.samplers.contract.protocol import Resumable
from dmcmc.solving.tuning import PROMISING_DIVISOR


@dataclass
class LowerTable:
    """How an agent's lower table was computed, and how its sampling can continue.

    Attributes
    ----------
    local : LocalProblem
        The problem whose rows the table has. It is the agent's problem. If the agent has too many rows to sample all,
        it is that problem with one interface variable, whose values are the sampled rows.
    chains : Resumable or None
        The sampling, to be continued; None if the table is final.
    """

    local: LocalProblem
    chains: Resumable | None = None

    @property
    def exhausted(self) -> bool:
        """Whether more sampling would not improve the table."""
        return self.chains is None or self.chains.exhausted


def promising_rows(
    rows: NDArray[np.int64], pruned: NDArray[np.bool_] | None, utility: NDArray[Any] | None
) -> NDArray[np.int64]:
    """Return the rows to sample further, in ascending order: the unpruned rows of the highest utility.

    Parameters
    ----------
    rows : (rows,) int64
        All rows, ascending.
    pruned : (rows,) bool or None
        Whether a row is pruned: it cannot improve the incumbent.
    utility : (rows,) or None
        Estimated utility of the whole solution with each row; None selects all unpruned rows.
    """
    if pruned is not None:
        rows = rows[~pruned]
    if utility is None or rows.size <= PROMISING_DIVISOR:
        return rows
    by_utility = rows[np.argsort(-utility[rows], kind="stable")]
    return np.sort(by_utility[: max(PROMISING_DIVISOR, -(-rows.size // PROMISING_DIVISOR))])
