"""Split a time budget over several consecutive steps."""

import time
from collections.abc import Sequence


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
