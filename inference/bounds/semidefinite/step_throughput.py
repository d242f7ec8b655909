"""Choose the number of descent steps per device call such that a call stays short even if the device becomes slow."""

import time
from collections.abc import Callable

from dmcmc.inference.bounds.semidefinite.descent import STEPS_PER_CHECK
from dmcmc.inference.runtime.deadline import MAX_CHECK_INTERVAL

_MAX_STEPS_PER_CHECK = 2 * STEPS_PER_CHECK  # steps between two readings of the clock


def step_allowance(seconds_left: Callable[[], float]) -> Callable[[int], int]:
    """Return a function that says how many steps to make next, given the number made so far; 0 ends the descent.

    The steps made so far have to be complete when the function is called. It divides the remaining time by the
    duration of the last steps. It allows no more steps than fit into ``MAX_CHECK_INTERVAL`` seconds, but at least one.

    Parameters
    ----------
    seconds_left : callable
        Returns the remaining seconds.
    """
    last_time, last_made = time.perf_counter(), 0

    def allowed_steps(steps_made: int) -> int:
        nonlocal last_time, last_made
        now, remaining = time.perf_counter(), seconds_left()
        if remaining <= 0:
            return 0
        if not steps_made:
            last_time = now
            return 1
        # 1e-9 seconds: avoids a division by zero
        step_seconds = max(1e-9, (now - last_time) / (steps_made - last_made))
        last_time, last_made = now, steps_made
        return int(min(remaining / step_seconds, _MAX_STEPS_PER_CHECK, max(1, int(MAX_CHECK_INTERVAL / step_seconds))))

    return allowed_steps
