"""What has been combined so far, and how large tables are in the next combination: larger ones, where that pays."""

from collections.abc import Mapping
from typing import NamedTuple

from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.mpi.message_contents import Sent
from dmcmc.run.improvers.recombine import LARGER
from dmcmc.run.planning.combination_plan import attempts_of, relaxation_of
from dmcmc.run.planning.setup import Setup
from dmcmc.run.scheduler.proposal import COMBINE, Brought
from dmcmc.run.util_value_cycle import Cycle
from dmcmc.samplers.contract.protocol import SampledTable

_LATE = 0.02  # of the time budget that a combination may end later, besides
_GRACE = 0.5  # seconds beyond the deadline, and after Ctrl-C, for a combination of what has been found
_AMPLE = 4.0  # times what it should take, a combination with larger tables is given up


class Combined(NamedTuple):
    """What the last combination was of, and what came out."""

    tables: Mapping[int, SampledTable]
    cycle: Cycle


class Combining:
    """Combinations, one after the other.

    Attributes
    ----------
    last : Combined or None
        The last one that came to its end.
    larger : float
        Tables in the next one, times what the time budget says.
    again : float or None
        Seconds that the next one should take, if it is made for its larger tables.
    """

    def __init__(self) -> None:
        self.last: Combined | None = None
        self.larger, self._at_most = 1.0, float("inf")
        self.again: float | None = None
        self._first_sent: list[Mapping[int, Sent]] = []
        self._later_sent: list[Mapping[int, Sent]] = []

    def end(self, setup: Setup, begun: float, before: float) -> Stop:
        """Return when the next one has to end, which is begun now; the one before took ``before`` seconds."""
        longer = min(before, _LATE * (setup.config.budget.time or 0.0))
        stop = setup.backend.stop.later(_GRACE, longer=longer)
        return stop if self.again is None else stop.by(begun + _AMPLE * max(_GRACE, self.again))

    def take(self, made: Combined, seconds: float) -> list[Brought]:
        """Keep one that came to its end; return what larger tables are said to have brought."""
        (self._first_sent if self.last is None else self._later_sent).extend(made.cycle.sent)
        self.last, again, self.again = made, self.again, None
        return [] if again is None else [Brought(COMBINE, seconds, again)]

    def go_back(self, seconds: float) -> Brought:
        """Go on with tables as large as in the last one: larger ones took too much."""
        assert self.last is not None and self.again is not None
        brought = Brought(COMBINE, seconds, self.again)
        self.larger, self.again, self._at_most = self.larger / LARGER, None, self.larger
        return brought

    def enlarge(self, seconds: float) -> None:
        """Let the next one have larger tables, in about some seconds."""
        self.larger, self.again = LARGER * self.larger, seconds

    def may_enlarge(self, setup: Setup) -> bool:
        """Return whether larger tables are possible, and have not been too much."""
        return LARGER * self.larger < self._at_most and len(attempts_of(setup, self.larger)) > 1

    def sent_later(self, sent: Mapping[int, Sent]) -> None:
        """Keep what agents have sent beside combinations."""
        self._later_sent.append(sent)

    def sent_by(self, number: int) -> tuple[list[Sent], list[Sent]]:
        """Return what an agent has sent in the first combination, and later."""
        first, later = (
            [phase[number] for phase in phases if number in phase] for phases in (self._first_sent, self._later_sent)
        )
        return first, later


def may_end_by(setup: Setup, error: ResourceError) -> bool:
    """Return whether the incumbent will do where a first combination fails: not if its z was asked for.

    Tables that do not fit are an error where there is no time budget: more of it would be no remedy.
    """
    relaxation = relaxation_of(setup.config.combine)
    open_ended = relaxation.open or (setup.timed and relaxation.z is None)
    return isinstance(error, OutOfTime | OutOfMemory) or open_ended
