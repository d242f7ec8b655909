"""Deadlines, and shares of the time.

Deadlines and cancellation: work ends at a time, or soon after somebody requests it (Ctrl-C).

Work checks its deadline in one of two ways. Work that is done in pieces of at most ``MAX_CHECK_INTERVAL`` seconds
(``inference/tuning.py``) checks between them: with ``Deadline.check``, or with ``deadline.over`` if its intermediate
results are useful. A long kernel reads a flag, an array ``halt`` of one ``uint8``, every few milliseconds of its loops
and returns early when it is set; ``dmcmc.inference.runtime.threads.run_until_deadline`` runs the kernel and sets the
flag from another thread.

Split a time budget over several consecutive steps.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from dmcmc.inference.runtime.errors import OutOfTime


@dataclass
class CancellationToken:
    """Whether the user or the run has requested an early end.

    Attributes
    ----------
    requested_at : float
        Time of the request (``time.perf_counter``), infinity if there is none.
    """

    requested_at: float = float("inf")

    def request(self) -> None:
        """Request an early end; a repeated request keeps the first time."""
        self.requested_at = min(self.requested_at, time.perf_counter())


@dataclass(frozen=True)
class Deadline:
    """The time at which a piece of work has to end.

    Attributes
    ----------
    until : float
        When to end (``time.perf_counter``).
    grace : float
        Seconds that this work may take after ``until`` or after a cancellation.
    cancellation : CancellationToken
        Shared by all deadlines that were derived from the same one.
    """

    until: float = float("inf")
    grace: float = 0.0
    cancellation: CancellationToken = field(default_factory=CancellationToken)

    @property
    def over(self) -> bool:
        """Whether the deadline has passed."""
        return self.left <= 0

    @property
    def left(self) -> float:
        """The seconds until the deadline: negative after it, infinity if there is none."""
        return min(self.until, self.cancellation.requested_at) + self.grace - time.perf_counter()

    @property
    def is_cancelled(self) -> bool:
        """Whether an early end was requested."""
        return self.cancellation.requested_at < float("inf")

    def by(self, until: float) -> "Deadline":
        """Return this deadline, or an earlier one if ``until`` is earlier."""
        return self if until >= self.until else Deadline(until, self.grace, self.cancellation)

    def later(self, grace: float, extension: float = 0.0) -> "Deadline":
        """Return this deadline with another grace period, and with ``extension`` seconds added to ``until``."""
        return Deadline(self.until + extension, grace, self.cancellation)

    def check(self) -> None:
        """Raise ``OutOfTime`` if the deadline has passed."""
        if min(self.until, self.cancellation.requested_at) + self.grace <= time.perf_counter():
            raise OutOfTime("out of time")


NO_DEADLINE = Deadline()


class TimeShares:
    """Seconds for consecutive steps in the planned proportions, starting now.

    Unused or overdrawn time of a step is carried over to the remaining steps.

    Parameters
    ----------
    planned : sequence of float
        Planned seconds of each step.
    """

    def __init__(self, planned: Sequence[float]) -> None:
        self._planned, self._next = planned, 0
        self._end, self._planned_left = time.perf_counter() + sum(planned), sum(planned)

    def next(self) -> float:
        """Return the seconds for the next step: its share of the remaining time, in proportion to the plan."""
        planned, remaining = self._planned[self._next], max(0.0, self._end - time.perf_counter())
        seconds = remaining * planned / self._planned_left if self._planned_left > 0 else 0.0
        self._next, self._planned_left = self._next + 1, self._planned_left - planned
        return seconds
