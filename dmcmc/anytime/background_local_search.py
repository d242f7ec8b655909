"""Turns of the local search in a background thread, on some of the cores, while other work is done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Event, Thread

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.deadline import CancellationToken
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.threads import lower_priority
from dmcmc.results.outcome import AssignmentQuality, quality_of
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.tuning import common
from dmcmc.tuning import anytime as tuning

Values = NDArray[np.int64]


class BackgroundTurns:
    """Turns of a local search in a separate thread.

    Parameters
    ----------
    search : LocalSearch
        The search; while the thread runs, its deadline, threads and priority are those of the background.
    best : (n,) int64
        The assignment from which it starts.
    report : callable
        Called at once with every better assignment.
    low_priority : bool
        Whether the search has a lower priority than other work.

    Attributes
    ----------
    best : (n,) int64
        The best assignment so far.
    """

    def __init__(
        self, search: LocalSearch, best: Values, report: Callable[[Values], object], low_priority: bool
    ) -> None:
        self.best, self._search, self._report, self._low_priority = best, search, report, low_priority
        self._ended = Event()

    def brief(self, seconds: float) -> None:
        """Search once for some seconds."""
        lower_priority()
        for limit in (0.0, seconds):  # the first call lays out the columns for the chains
            self.best = self._search.improve(self.best, limit, 0, self._report)

    def repeated(self, min_relative_gain: float) -> None:
        """Search in slices as long as all earlier ones; pause after a slice that was not worthwhile.

        It does not pause before a whole tournament round of the chains is finished.
        """
        search, spent, pause = self._search, 0.0, 5 * common.CHECK_SECONDS
        while not self._ended.wait(pause) and not search.stop.over:
            if self._low_priority and not spent:
                lower_priority()
            before, seconds, rounds_before = self.best, max(common.SLICE_SECONDS, spent), search.chains.rounds
            self.best = search.improve(before, seconds, 0, self._report)
            improved = search.better(self.best, before)
            if min_relative_gain and improved:
                improved = is_worthwhile(self._quality_of(before), self._quality_of(self.best), min_relative_gain)
            unfinished = search.chains.rounds == rounds_before
            spent, pause = spent + seconds, 0.0 if improved or unfinished else seconds

    def _quality_of(self, values: Values) -> AssignmentQuality:
        """Return violations and utility of an assignment."""
        return quality_of(self._search.original, self._search.original_values(values))

    @contextmanager
    def running(self, turns: Callable[[], None], threads: int) -> Iterator[None]:
        """Run the turns in a thread while the body works; end them at its end."""

        def run() -> None:
            with suppress(OutOfMemory):
                turns()

        search = self._search
        stop, usual_threads = search.stop, search.threads
        cancellation = CancellationToken(stop.cancellation.requested_at)
        thread = Thread(target=run, name="dmcmc search", daemon=True)
        search.stop, search.threads, search.behind = (
            replace(stop, cancellation=cancellation),
            threads,
            self._low_priority,
        )
        thread.start()
        try:
            yield
        finally:
            cancellation.request()
            self._ended.set()
            thread.join()
            search.stop, search.threads, search.behind = stop, usual_threads, False


def is_worthwhile(
    before: AssignmentQuality, after: AssignmentQuality, min_relative_gain: float = tuning.MIN_SLICE_GAIN
) -> bool:
    """Return whether the improvement from one assignment to another justifies more search.

    That is the case if hard constraints are or were violated, or if the relative gain in utility exceeds
    ``min_relative_gain``.
    """
    if after.negated_violation != before.negated_violation or after.negated_violation < 0:
        return True
    return float(after.utility - before.utility) > min_relative_gain * abs(float(before.utility))
