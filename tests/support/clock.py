"""Clocks for tests, which move forward on request or with each reading, and a deadline that counts its checks."""

import time

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime


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


class ExpiresAfterChecks(Deadline):
    """A deadline that passes after a number of checks, whichever of its members they read.

    Parameters
    ----------
    checks
        The number of checks before the deadline passes.
    """

    def __init__(self, checks):
        super().__init__()
        object.__setattr__(self, "checks_left", checks)  # a deadline is immutable otherwise

    @property
    def over(self):
        object.__setattr__(self, "checks_left", self.checks_left - 1)
        return self.checks_left < 0

    @property
    def left(self):
        return 0.0 if self.over else float("inf")

    def check(self):
        if self.over:
            raise OutOfTime("out of time")
