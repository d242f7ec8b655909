"""Decide the table size and the deadline of the next combination in a run with a time budget.

A combination is one cycle of UTIL and VALUE messages. With a time budget, tables are made only as large as the time
allows; ``RecombinationImprover`` may ask for larger ones if they are worth their cost.
"""

from dmcmc.anytime.scheduler.proposal import MeasuredGain
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.results.result import RECOMBINATION
from dmcmc.samplers.tuning import common
from dmcmc.solving.planning.combination_plan import relaxation_of, step_attempts
from dmcmc.solving.planning.setup import Setup
from dmcmc.tuning import anytime as tuning


class CombinationLimits:
    """The table size and the deadline of the next combination.

    An enlargement goes through these states: ``enlarge`` raises ``size_factor`` and sets ``enlarged_seconds``; the next
    combination is either completed (``finish``) or given up (``undo_enlargement``, which also excludes that size for
    the rest of the run). Both set ``enlarged_seconds`` to None.

    Attributes
    ----------
    size_factor : float
        Table size in the next combination, relative to the size that the time budget allows.
    enlarged_seconds : float or None
        Estimated seconds of the next combination if it is repeated with larger tables; None otherwise.
    """

    def __init__(self) -> None:
        self.size_factor, self._excluded_factor = 1.0, float("inf")
        self.enlarged_seconds: float | None = None

    def deadline(self, setup: Setup, start_time: float, previous_seconds: float) -> Deadline:
        """Return the deadline of a combination: that of the run, plus half a second and a small delay.

        The delay is the seconds of the previous combination, but at most 2 % of the time budget. A combination with
        larger tables is also given up after four times its estimated seconds (or half a second, if that is more).

        Parameters
        ----------
        setup
            The plan of the run.
        start_time
            Time at which the combination starts (``time.perf_counter``).
        previous_seconds
            Seconds that the previous combination took.
        """
        delay = min(previous_seconds, common.UNNOTICED_SHARE * (setup.config.budget.time or 0.0))
        stop = setup.backend.stop.later(common.GRACE_SECONDS, extension=delay)
        return (
            stop
            if self.enlarged_seconds is None
            else stop.by(start_time + tuning.TABLE_GROWTH_FACTOR * max(common.GRACE_SECONDS, self.enlarged_seconds))
        )

    def finish(self, seconds: float) -> list[MeasuredGain]:
        """End a completed combination; return its cost as a measured gain if it was made for larger tables."""
        estimated, self.enlarged_seconds = self.enlarged_seconds, None
        return [] if estimated is None else [MeasuredGain(RECOMBINATION, seconds, estimated)]

    def undo_enlargement(self, seconds: float) -> MeasuredGain:
        """Return to the table size of the last combination, because larger tables took too much time or memory."""
        assert self.enlarged_seconds is not None
        gain = MeasuredGain(RECOMBINATION, seconds, self.enlarged_seconds)
        self.size_factor, self.enlarged_seconds, self._excluded_factor = (
            self.size_factor / tuning.TABLE_GROWTH_FACTOR,
            None,
            self.size_factor,
        )
        return gain

    def enlarge(self, seconds: float) -> None:
        """Let the next combination have larger tables; it is estimated to take some seconds."""
        self.size_factor, self.enlarged_seconds = tuning.TABLE_GROWTH_FACTOR * self.size_factor, seconds

    def may_enlarge(self, setup: Setup) -> bool:
        """Return whether larger tables are possible and have not failed yet."""
        return (
            tuning.TABLE_GROWTH_FACTOR * self.size_factor < self._excluded_factor
            and len(step_attempts(setup, self.size_factor)) > 1
        )


def may_end_with_incumbent(setup: Setup, error: ResourceError) -> bool:
    """Return whether the run may end with the incumbent if its first combination fails; not if a fixed z was asked for.

    Tables that do not fit the memory are an error in a run without time budget: more time would not help.
    """
    relaxation = relaxation_of(setup.config.combine)
    z_is_free = relaxation.chooses_z or (setup.timed and relaxation.z is None)
    return isinstance(error, OutOfTime | OutOfMemory) or z_is_free
