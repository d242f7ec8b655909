"""What reducing may take."""

from dataclasses import dataclass

from dmcmc.inference.runtime.deadline import NO_STOP, Stop

_TOUCH, _CELL = 4e-5, 8e-9  # seconds of one step on a table, and of each of its cells


@dataclass
class Limit:
    """Reducing ends when this is over, with what has been reduced by then.

    Attributes
    ----------
    seconds : float
        Counted by what is done, not by a clock: the same on every rank.
    stop : Stop
        When to end besides.
    """

    seconds: float = float("inf")
    stop: Stop = NO_STOP
    spent: float = 0.0

    def charge(self, tables: int, cells: int) -> None:
        """Take note of steps on so many tables of so many cells in all."""
        self.spent += _TOUCH * tables + _CELL * cells

    @property
    def over(self) -> bool:
        """Whether it is time to end."""
        return self.spent >= self.seconds or self.stop.over
