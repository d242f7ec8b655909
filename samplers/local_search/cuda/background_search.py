"""Local search over complete assignments on the GPU, in a background thread that runs tournament rounds of chains.

The chains are annealed Gibbs chains as on the CPU, but there are many more of them. A tournament compares temperature
ranges over several rounds, each with twice the sweeps (passes over all variables) of the one before. After the first
round the better half of the chains continue where they ended. As many others begin every round at the best known
assignment, at half the temperature.

An assignment's *score* is (violations, negated; utility), compared lexicographically.
"""

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import GPU_CLAIMS, gpu_fault, is_out_of_memory
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.local_search.cuda.chains import AnnealingSchedule, DeviceAnnealingChains
from dmcmc.samplers.local_search.graph_kernels import evaluate_graph, typical_spread
from dmcmc.samplers.local_search.tournament_search import (
    HARD_CONSTRAINT_RANGES,
    TEMPERATURE_RANGES,
    CandidateResult,
    SuccessiveHalving,
)

Values = NDArray[np.int64]


@dataclass(frozen=True)
class IncumbentObserver:
    """Callbacks of the search, called in its thread.

    Attributes
    ----------
    known : callable
        Returns the best known assignment of the original variables, (n,) int64.
    found : callable
        Called with an assignment, (n,) int64, that the chains score higher than the best known one at the begin of the
        round and those reported in it.
    """

    known: Callable[[], Values]
    found: Callable[[Values], object]


class BackgroundChains:
    """A search in a background thread until the deadline passes or ``end`` is called.

    It waits while it has no device time left or another caller claims the whole device. The thread starts at once, but
    makes no launch before ``set_device_time`` gives it time. It ends (``_done``) when it is asked to (``_leave``), at
    the deadline, when the time left is too short for a round, or on an error; a new object is needed to search again.

    Parameters
    ----------
    make : callable
        Returns the chains, or None if the device has too little memory; called in the thread.
    observer : IncumbentObserver
        Callbacks.
    stop : Deadline
        Checked between launches.

    Attributes
    ----------
    seconds : float
        Device time used so far.
    rounds : int
        Number of completed rounds.
    seconds_per_sweep : float
        Time of a sweep of all chains in the last round; 0 before the first round has ended.
    failed : str
        Why the search ended, if by an error; else empty, also if the device has failed or its memory was too small.
    _allowed : float
        Device time left, in seconds; set by ``set_device_time`` and reduced by each launch.
    _tournament : SuccessiveHalving or None
        Start and temperatures of each chain in the next round; None before the first round.
    """

    def __init__(
        self, make: Callable[[], DeviceAnnealingChains | None], observer: IncumbentObserver, stop: Deadline
    ) -> None:
        self._make, self._observer, self._stop = make, observer, stop
        self._allowed, self._leave, self._done = 0.0, threading.Event(), threading.Event()
        self.seconds, self.rounds, self.failed, self.seconds_per_sweep = 0.0, 0, "", 0.0
        self._tournament: SuccessiveHalving | None = None
        self._thread = threading.Thread(target=self._run, name="dmcmc GPU search", daemon=True)
        self._thread.start()

    @property
    def on(self) -> bool:
        """Whether the search may still find better assignments."""
        return not self._done.is_set() and not self._leave.is_set()

    def set_device_time(self, seconds: float) -> None:
        """Set the device time that the search may use from now on, seconds."""
        self._allowed = seconds

    def end(self) -> None:
        """Stop the search; return after the last launch, or after half a second if the thread is busy."""
        self._leave.set()
        self._thread.join(tuning.GRACE_SECONDS)

    @property
    def _over(self) -> bool:
        """Whether the search has to end."""
        return self._leave.is_set() or self._stop.over

    def _run(self) -> None:
        """Create the chains and run rounds; runs in the thread."""
        try:
            with suppress(OutOfMemory):
                chains = self._make()
                while chains is not None and not self._over and self._run_round(chains):
                    pass
        except Exception as error:  # the run continues without it
            if not is_out_of_memory(error) and gpu_fault(error) is None:
                self.failed = f"{type(error).__name__}: {error}"[:200]
        finally:
            self._done.set()

    def _run_round(self, chains: DeviceAnnealingChains) -> bool:
        """Run one round of all chains; return whether there may be another round.

        The result is False if the search has to end, or if the time left is too short for a round. A round that is cut
        off does not count. On the first call the chains get their temperature ranges in turn; those for hard
        constraints only if the problem has forbidden entries.
        """
        best, graph = self._observer.known(), chains.graph
        if self._tournament is None:
            hard = bool((graph.data == graph.forbidden_entry).any())
            spans = list(
                islice(
                    cycle(TEMPERATURE_RANGES + HARD_CONSTRAINT_RANGES if hard else TEMPERATURE_RANGES), chains.chains
                )
            )
            self._tournament = SuccessiveHalving(spans, max(1, chains.chains // 2))
        tournament = self._tournament
        affordable_sweeps = (  # 1e9 s: no deadline
            tournament.sweeps if not self.seconds_per_sweep else int(min(self._stop.left, 1e9) / self.seconds_per_sweep)
        )
        if affordable_sweeps < tuning.GRAPH_DESCENT_SWEEPS + 1:
            return False
        spans = list(dict.fromkeys(entry.span for entry in tournament.entries))
        spread = float(typical_spread(graph, best, np.zeros((3, graph.widest)))) or 1.0
        of_chain = np.array([spans.index(entry.span) for entry in tournament.entries])
        states, scores = self._starts(chains, best)
        known = tuple(scores[-1].tolist())
        chains.begin(
            states, scores[:-1], AnnealingSchedule(spans, of_chain, spread, min(tournament.sweeps, affordable_sweeps))
        )
        begun, waited, reported = time.perf_counter(), 0.0, time.perf_counter()
        while not chains.finished:
            if self._over:
                return False
            if self._allowed <= 0 or GPU_CLAIMS.is_claimed:
                waited += tuning.CHECK_SECONDS
                self._leave.wait(tuning.CHECK_SECONDS)
                continue
            used = chains.advance()
            self.seconds += used
            self._allowed -= used
            if time.perf_counter() - reported >= tuning.CHECK_SECONDS or chains.finished:
                reported, known = time.perf_counter(), self._report(chains, known)
        self.seconds_per_sweep = max(  # at least 1e-7 s: it is a divisor
            1e-7, (time.perf_counter() - begun - waited) / min(tournament.sweeps, affordable_sweeps)
        )
        self._advance(chains, tournament)
        self.rounds += 1
        return True

    def _starts(self, chains: DeviceAnnealingChains, best: Values) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the chains' start states, (chains, n), and their scores followed by that of ``best``, (chains + 1, 2).

        Chains that begin at the same array share one evaluation.
        """
        assert self._tournament is not None
        states = np.empty((chains.chains, chains.n), dtype=np.int32)
        scores = np.empty((chains.chains + 1, 2))
        scored: dict[int, tuple[float, float]] = {}
        scores[-1] = self._score(chains, best)
        for i, entry in enumerate(self._tournament.entries):
            states[i] = best if entry.values is None else entry.values
            if entry.utility is not None:
                scores[i] = entry.utility
            elif entry.values is None:
                scores[i] = scores[-1]
            else:
                if id(entry.values) not in scored:
                    scored[id(entry.values)] = self._score(chains, entry.values)
                scores[i] = scored[id(entry.values)]
        return states, scores

    def _score(self, chains: DeviceAnnealingChains, values: Values) -> tuple[float, float]:
        """Return an assignment's violations, negated, and utility."""
        sums = np.zeros((3, 1))
        evaluate_graph(chains.graph, values, sums)
        return -float(sums[0, 0]), float(sums[1, 0] + sums[2, 0])

    def _report(self, chains: DeviceAnnealingChains, known: tuple[Any, ...]) -> tuple[Any, ...]:
        """Report the best state of the chains if it is better than ``known``; return the best score reported or known.

        A chain without a best state yet has an infinite score.
        """
        bests = chains.bests()
        top = int(np.lexsort((bests[:, 1], bests[:, 0]))[-1])
        score = tuple(bests[top].tolist())
        if score <= known or not math.isfinite(score[0]):
            return known
        self._observer.found(chains.best(top))
        return score

    def _advance(self, chains: DeviceAnnealingChains, tournament: SuccessiveHalving) -> None:
        """Advance the tournament to its next round."""
        states, scores = chains.ends()
        tournament.next_round(
            [CandidateResult(None, tuple(score), None, z) for score, z in zip(scores.tolist(), states, strict=True)],
            chains.graph.domains,
        )
