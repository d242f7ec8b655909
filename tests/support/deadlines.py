"""A deadline for tests that passes after a number of checks, so that interrupted work is deterministic."""

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime


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
