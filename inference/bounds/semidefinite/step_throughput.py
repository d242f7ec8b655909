"""How many steps are asked for at a time: nothing says beforehand that a device has become slow."""

import time
from collections.abc import Callable

from dmcmc.inference.bounds.semidefinite.descent import LOOK
from dmcmc.inference.runtime.deadline import PIECE

_MOST_STEPS = 2 * LOOK  # between two looks at the time


def as_long_as(left: Callable[[], float]) -> Callable[[int], int]:
    """Return what allows steps while seconds are left: no more at a time than take a moment, by the last ones' pace.

    It is told how many steps have been made, which have been waited for; none end them.
    """
    last, before = time.perf_counter(), 0

    def more(made: int) -> int:
        nonlocal last, before
        now, there = time.perf_counter(), left()
        if there <= 0:
            return 0
        if not made:
            last = now
            return 1
        pace = max(1e-9, (now - last) / (made - before))
        last, before = now, made
        return int(min(there / pace, _MOST_STEPS, max(1, int(PIECE / pace))))

    return more
