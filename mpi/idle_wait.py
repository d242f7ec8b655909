"""Wait for other ranks by polling with pauses, so that the cores stay free for ranks that work."""

import os
import time
from typing import Any

_IMMEDIATE_POLLS = 20  # polls without a pause; more of them delay ranks that share cores with other work
_FIRST_PAUSE = 2e-5  # seconds
LONGEST_PAUSE = 2.5e-4  # seconds; a message passes a waiting rank after half of it, and a poll takes 5 µs


class IdleWait:
    """Pauses between polls: at first another process may use the core in between, then the pauses get longer.

    Parameters
    ----------
    longest : float
        The longest pause, in seconds.
    """

    def __init__(self, longest: float = LONGEST_PAUSE) -> None:
        self._polls, self._seconds, self._longest = 0, _FIRST_PAUSE, longest

    def take(self) -> None:
        """Pause for a moment; in the first polls only let another process run that waits for this core."""
        self._polls += 1
        if self._polls <= _IMMEDIATE_POLLS:
            os.sched_yield()
        else:
            time.sleep(self._seconds)
            self._seconds = min(self._longest, 1.2 * self._seconds)  # 20 % longer each time


def wait_for(request: Any, longest: float = LONGEST_PAUSE) -> None:
    """Wait until a request of MPI is complete; a blocking call would wait without a pause.

    Parameters
    ----------
    request : mpi4py request
        The request, of a collective call or a message.
    longest : float
        The longest pause between polls, in seconds.
    """
    idle = IdleWait(longest)
    while not request.Test():
        idle.take()
