"""Keep an agent's lower table: its rows, the chains that continue to sample it, and the choice of rows to sample."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.samplers.contract.protocol import Resumable

_PROMISING_DIVISOR = 4  # every fourth row is sampled further, and at least four rows


@dataclass
class LowerTable:
    """The source of an agent's lower table.

    Attributes
    ----------
    local : LocalProblem
        Problem whose rows the table has: the agent's problem, or the same with a list of rows as its interface.
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
    """Return the rows to sample further, in ascending order: the most promising ones of those that can still matter.

    Parameters
    ----------
    rows : (k,) int64
        All rows.
    pruned : (rows,) bool or None
        Rows that cannot matter.
    worth : (rows,) or None
        Estimated utility of the whole solution with each row.
    """
    if pruned is not None:
        rows = rows[~pruned]
    if utility is None or rows.size <= _PROMISING_DIVISOR:
        return rows
    best = rows[np.argsort(-utility[rows], kind="stable")]
    return np.sort(best[: max(_PROMISING_DIVISOR, -(-rows.size // _PROMISING_DIVISOR))])
