"""A clock that can be moved on: what takes for ever is over at once, on any machine."""

import time


class MovableClock:
    """The time that passes, and what is skipped of it: it stands in for ``time.perf_counter``.

    Parameters
    ----------
    count
        The clock itself; by default the machine's.
    """

    def __init__(self, count=time.perf_counter):
        self._count, self._skipped = count, 0.0

    def __call__(self):
        return self._count() + self._skipped

    def skip(self, seconds):
        """Let some seconds pass at once."""
        self._skipped += max(0.0, seconds)


class CountingClock:
    """A clock that only goes on when it is looked at, a little each time: work by the clock is fixed work."""

    def __init__(self, step):
        self._now, self._step = 0.0, step

    def __call__(self):
        self._now += self._step
        return self._now
