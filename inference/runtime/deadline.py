"""When work has to end: at a time, or soon after somebody asks for it (Ctrl-C).

Work hears of it in one of two ways. Work in pieces of at most :data:`PIECE` seconds looks between them
(:meth:`Stop.check`, or ``stop.over`` where what there is already is of use). A kernel that is not in pieces looks at a
flag, an array ``halt`` of one ``uint8``, every few milliseconds of its loops, and returns early when it is set:
:func:`dmcmc.inference.runtime.threads.run_watched` runs it beside the thread that sets it.
"""

import time
from dataclasses import dataclass, field

from dmcmc.inference.runtime.errors import OutOfTime

PIECE = 0.1  # seconds between two looks at the time, at most


@dataclass
class Wish:
    """Whether somebody wants the run to end: ``asked`` is when (``time.perf_counter``), inf if nobody does."""

    asked: float = float("inf")

    def ask(self) -> None:
        """Ask for the end."""
        self.asked = min(self.asked, time.perf_counter())


@dataclass(frozen=True)
class Stop:
    """What long work looks at between its parts.

    Attributes
    ----------
    until : float
        When to end (``time.perf_counter``).
    grace : float
        Seconds that this work may take beyond that, and beyond the moment when somebody asks.
    wish : Wish
        Shared by all that were made from the same one.
    """

    until: float = float("inf")
    grace: float = 0.0
    wish: Wish = field(default_factory=Wish)

    @property
    def over(self) -> bool:
        """Whether it is time to end."""
        return self.left <= 0

    @property
    def left(self) -> float:
        """Seconds until then; negative when it is over, inf without an end."""
        return min(self.until, self.wish.asked) + self.grace - time.perf_counter()

    @property
    def asked(self) -> bool:
        """Whether somebody wants the run to end."""
        return self.wish.asked < float("inf")

    def by(self, until: float) -> "Stop":
        """Return the same with an earlier end."""
        return self if until >= self.until else Stop(until, self.grace, self.wish)

    def later(self, grace: float, longer: float = 0.0) -> "Stop":
        """Return the same, so many seconds later; and the end by ``longer``, if nobody asks for it."""
        return Stop(self.until + longer, grace, self.wish)

    def check(self) -> None:
        """Raise :class:`OutOfTime` when it is time to end."""
        if self.over:
            raise OutOfTime("out of time")


NO_STOP = Stop()
