"""Retain the bound of a sampled agent, its open nodes and the best values of its rows for the next run.

The bound of an unchanged local problem continues where it stopped, with the open nodes of its branch and bound. If
factors have changed, the new bound takes over the dual variables of the others, and the rows' bounds plus what the
change can add to them (:mod:`dmcmc.inference.bounds.continued_bound`). Sampling begins with the best values that each
row had.
"""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearch
from dmcmc.inference.bounds.contract.protocol import BoundState
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.dpop.division import LocalProblem


@dataclass(frozen=True)
class RetainedBound:
    """The bound of an agent, and the best hidden values of its rows, after a run.

    Attributes
    ----------
    local : LocalProblem
        The agent's problem in that run.
    provider : str
        Name of the bound provider.
    state : BoundState
        The bound.
    search : BoundarySearch or None
        Its branch and bound, if that holds all open nodes.
    states : (rows, hidden) integers, or None
        The best hidden values of each row; None if not all rows were sampled.
    """

    local: LocalProblem
    provider: str
    state: BoundState
    search: BoundarySearch | None
    states: NDArray[Any] | None

    @property
    def dual(self) -> DualState | None:
        """The dual ascent that the bound comes from; None without one."""
        state = getattr(self.state, "dual", self.state)
        return state if isinstance(state, DualState) else None
