"""An agent's table from below: what it is over, the chains that go on sampling it, and which rows they take on."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.samplers.contract.protocol import Resumable

_FOCUS = 4  # rows that are sampled on: one in so many, the most promising ones


@dataclass
class LowerTable:
    """What a table from below comes from.

    Attributes
    ----------
    local : LocalProblem
        What the table is over: the agent's problem, or the same with a list of rows as its interface.
    chains : Resumable or None
        Its sampling, to go on with.
    """

    local: LocalProblem
    chains: Resumable | None = None

    @property
    def exhausted(self) -> bool:
        """Whether no time would make the table better."""
        return self.chains is None or self.chains.exhausted


def promising(
    rows: NDArray[np.int64], pruned: NDArray[np.bool_] | None, worth: NDArray[Any] | None
) -> NDArray[np.int64]:
    """Return the rows to sample on: those that can still matter, of these the most promising ones, ascending.

    Parameters
    ----------
    rows
        All of them.
    pruned : (rows,) or None
        Those that cannot matter.
    worth : (rows,) or None
        About what the whole is worth with each row.
    """
    if pruned is not None:
        rows = rows[~pruned]
    if worth is None or rows.size <= _FOCUS:
        return rows
    best = rows[np.argsort(-worth[rows], kind="stable")]
    return np.sort(best[: max(_FOCUS, -(-rows.size // _FOCUS))])
