"""Waiting for other ranks without keeping a core from those that work: messages are waited for by asking."""

import time
from typing import Any

_TRIES, _FIRST, _LONGEST = 100, 2e-5, 1e-3  # looks without a rest; seconds of the first rest, and of the longest


class Rest:
    """Rests between two looks: none at first, then longer and longer ones.

    Parameters
    ----------
    longest
        Seconds of the longest.
    """

    def __init__(self, longest: float = _LONGEST) -> None:
        self._tries, self._seconds, self._longest = 0, _FIRST, longest

    def take(self) -> None:
        """Leave the core to others for a moment."""
        self._tries += 1
        if self._tries > _TRIES:
            time.sleep(self._seconds)
            self._seconds = min(self._longest, 1.2 * self._seconds)


def wait_for_all(comm: Any, longest: float = _LONGEST) -> None:
    """Wait until all ranks of a communicator are here; collective messages themselves would wait without a rest."""
    everyone, rest = comm.Ibarrier(), Rest(longest)
    while not everyone.Test():
        rest.take()
