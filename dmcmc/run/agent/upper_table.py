"""An agent's table from above: a provider's bound, and what is wanted of it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds import registry
from dmcmc.inference.bounds.branch_and_bound.row_search import SWEEPS, Request, RowSearch
from dmcmc.inference.bounds.branch_and_bound_rows import row_search
from dmcmc.inference.bounds.contract.protocol import BoundRequest, BoundState, PruningState
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.rounding import roundings
from dmcmc.inference.bounds.semidefinite.relaxation import Lift, LiftRequest, follows_search
from dmcmc.inference.bounds.semidefinite_rows import lift_of, worth_lifting
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, Table

_MOST = np.iinfo(np.int64).max
_MOST_ROWS = 1 << 16  # that are searched in: all of them are nodes at first
_NODES = 4  # a row should have: with fewer, ascent on all of them brings more


@dataclass
class UpperTable:
    """What a table from above comes from.

    Attributes
    ----------
    state : BoundState or None
        The provider's, None where there is no bound.
    searched : RowSearch or None
        The search in its rows, None before there is one.
    slow : bool
        Whether a search would be too slow to close rows.
    begun : float or None
        The agent's part of the gap when the search began, utility.
    stalls : bool or None
        Whether most of that is still open after some nodes a row (:mod:`..kinds.branch`): then a lift may follow. None
        before that is known.
    lifted : Lift or None
        The semidefinite lift of its rows, None before there is one.
    unlifted : bool
        Whether there will be none: there is no time to see what it brings.
    owed : float
        Seconds of a lift that nobody can judge yet.
    """

    state: BoundState | None = None
    searched: RowSearch | None = None
    slow: bool = False
    begun: float | None = None
    stalls: bool | None = None
    lifted: Lift | None = None
    unlifted: bool = False
    owed: float = 0.0

    @property
    def exhausted(self) -> bool:
        """Whether no time would make the bound tighter."""
        return self.state is None or self.state.exhausted

    def start(self, provider: str, local: LocalProblem, backend: Backend) -> None:
        """Make the bound, sound already."""
        self.state = registry.get(provider).start(local, backend)

    def tables(self, arithmetic: Arithmetic) -> tuple[Table, ...]:
        """Return the bound as it is, encoded."""
        assert self.state is not None
        return self.state.tables(arithmetic)

    def roundings(self, seed: int) -> Iterator[NDArray[np.int64]]:
        """Yield assignments that a dual ascent's shares say are good, hidden variables first; none without shares."""
        return iter(()) if self.dual is None else roundings(self.dual, seed)

    @property
    def dual(self) -> DualState | None:
        """The dual ascent that the bound comes from; None without one."""
        state = getattr(self.state, "dual", self.state)
        return state if isinstance(state, DualState) else None

    def request(
        self, rows: NDArray[np.int64] | None, limits: NDArray[Any] | None, attained: NDArray[Any] | None = None
    ) -> BoundRequest:
        """Return what is wanted of the bound: for the rows that can still matter, beyond their limits.

        Parameters
        ----------
        attained : (rows,) or None
            What rows are worth at least. Whole numbers up to that are of no use either.
        """
        assert self.state is not None
        if limits is None or not isinstance(self.state, PruningState):
            return BoundRequest(self.state, rows)
        # Whole utilities beat a limit from the next whole number on; a limit may be none where others are floats.
        return BoundRequest(self.state, rows, beyond(_higher(limits, attained)) if self.state.whole else limits)

    def searchable(self, rows: int) -> bool:
        """Return whether there is a search in so many rows, or may be one."""
        dual = self.dual
        if dual is None or dual.exhausted or not dual.enumerated or rows > _MOST_ROWS or self.slow:
            return False
        return self.searched is None or not self.searched.exhausted

    def liftable(self, local: LocalProblem) -> bool:
        """Return whether a semidefinite lift may lower its rows' bounds; a search may go first, until it stalls."""
        dual = self.dual
        if dual is None or self.unlifted:
            return False
        if follows_search(local) and self.searchable(local.rows) and not self.stalls:
            return False
        if self.lifted is None:
            self.lifted = lift_of(local, dual, getattr(self.state, "lift", None))
            self.unlifted = self.lifted is None
        return self.lifted is not None and not self.lifted.exhausted

    def lift_follows(self, local: LocalProblem) -> bool:
        """Return whether a lift follows once the search in its rows turns out to stall; that is not known yet."""
        if self.stalls is not None or self.unlifted or self.dual is None or not follows_search(local):
            return False
        return worth_lifting(local, self.dual.backend)

    def quick_to_lift(self, seconds: float) -> bool:
        """Return whether so many seconds of one core show what a lift brings; if not, there is none."""
        assert self.lifted is not None
        self.unlifted = self.unlifted or self.lifted.trial_seconds > seconds
        return not self.unlifted

    def pay(self, seconds: float, brought: bool) -> float:
        """Take note of seconds of a lift; return those that can be held against what it has brought.

        None at first, as long as it has not brought anything: others wait for squares of rows' own, which would stay
        small if they had little time for having brought nothing yet.
        """
        assert self.lifted is not None
        self.owed += seconds
        if (self.lifted.unknown or self.lifted.own.young) and not brought:
            return 0.0
        paid, self.owed = self.owed, 0.0
        return paid

    def lift_request(self, rows: NDArray[np.int64] | None, limits: NDArray[Any] | None) -> LiftRequest:
        """Return what is wanted of a lift of the rows that can still matter, beyond their limits."""
        assert self.lifted is not None
        return LiftRequest(self.lifted, rows, limits)

    def quick_enough(self, rows: int, seconds: float) -> bool:
        """Return whether a search could close so many rows in so many seconds of one core; if not, there is none.

        One that has begun goes on: what it gets is decided by what it has earned.
        """
        assert self.dual is not None
        if self.searched is None:
            self.slow = self.slow or SWEEPS * self.dual.pace * _NODES * rows > seconds
        return not self.slow

    def leaves(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Return rows and hidden values of theirs that the search in them has come to since this was last asked."""
        return None if self.searched is None else self.searched.leaves()

    def search(
        self, rows: NDArray[np.int64] | None, limits: NDArray[Any], attained: NDArray[Any], seconds: float, room: int
    ) -> Request:
        """Return what is wanted of a search in the rows that can still matter.

        Parameters
        ----------
        limits, attained : (rows,)
            What each has to exceed, and what it is worth at least.
        seconds
            That searches of all agents may take: whether that is worth the way to a GPU.
        room
            Bytes for the nodes' tables, in memory.
        """
        dual = self.dual
        assert dual is not None
        if self.searched is None:
            self.searched = row_search(dual, room, seconds)
        if dual.whole:
            thresholds = beyond(_higher(limits, attained))
        else:  # rounded down, one less is what a row is left with: no less than what it is worth
            thresholds = _higher(limits, attained + 2 * math.ldexp(1.0, -dual.layout.scale.shift))
        return Request(self.searched, thresholds, limits, rows)


def _higher(limits: NDArray[Any], attained: NDArray[Any] | None) -> NDArray[Any]:
    """Return the larger of two numbers for each row."""
    return limits if attained is None else np.maximum(limits, attained.astype(limits.dtype))


def beyond(limits: NDArray[Any]) -> NDArray[Any]:
    """Return the least whole numbers above limits; the largest number that there is stays.

    >>> beyond(np.array([3, 2**63 - 1])).tolist(), beyond(np.array([3.4, -0.5, np.inf])).tolist()
    ([4, 9223372036854775807], [4.0, 0.0, inf])
    """
    above: NDArray[Any] = np.floor(limits) + 1 if limits.dtype.kind == "f" else limits + (limits < _MOST)
    return above
