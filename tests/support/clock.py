"""Clocks for tests: one that can be moved forward, and one that advances with each reading."""

import time


class MovableClock:
    """A clock that replaces ``time.perf_counter`` and can be moved forward.

    Parameters
    ----------
    count
        The underlying clock; by default the machine's.
    """

    def __init__(self, count=time.perf_counter):
        self._count, self._skipped = count, 0.0

    def __call__(self):
        return self._count() + self._skipped

    def skip(self, seconds):
        """Move the clock forward by some seconds."""
        self._skipped += max(0.0, seconds)


class CountingClock:
    """A clock that advances by a fixed step with each reading, so that timed work is deterministic."""

    def __init__(self, step):
        self._now, self._step = 0.0, step

    def __call__(self):
        self._now += self._step
        return self._now
