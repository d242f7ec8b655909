"""Wait for other ranks by polling with pauses, so that the cores stay free for ranks that work."""

import os
import time
from typing import Any

from dmcmc.mpi import tuning


class IdleWait:
    """Pauses between polls: at first another process may use the core in between, then the pauses get longer.

    Parameters
    ----------
    longest : float
        The longest pause, in seconds.
    """

    def __init__(self, longest: float = tuning.LONGEST_PAUSE_SECONDS) -> None:
        self._polls, self._seconds, self._longest = 0, tuning.LONGEST_PAUSE_SECONDS / 16, longest

    def take(self) -> None:
        """Pause for a moment; in the first polls only let another process run that waits for this core."""
        self._polls += 1
        if self._polls <= tuning.IMMEDIATE_POLLS:
            os.sched_yield()
        else:
            time.sleep(self._seconds)
            self._seconds = min(self._longest, 1.2 * self._seconds)  # 20 % longer each time


def wait_for(request: Any, longest: float = tuning.LONGEST_PAUSE_SECONDS) -> None:
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
