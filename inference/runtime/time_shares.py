"""Some seconds for several parts of a work, one after the other: what one leaves, or takes too much, is the others'."""

import time
from collections.abc import Sequence


class Parts:
    """Some seconds, divided as planned, from now on.

    Parameters
    ----------
    planned
        Seconds of each part.
    """

    def __init__(self, planned: Sequence[float]) -> None:
        self._planned, self._next = planned, 0
        self._end, self._rest = time.perf_counter() + sum(planned), sum(planned)

    def next(self) -> float:
        """Return the seconds of the next part: of what is left, in proportion to the plan."""
        planned, left = self._planned[self._next], max(0.0, self._end - time.perf_counter())
        seconds = left * planned / self._rest if self._rest > 0 else 0.0
        self._next, self._rest = self._next + 1, self._rest - planned
        return seconds
