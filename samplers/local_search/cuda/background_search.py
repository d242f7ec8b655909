"""A search of the whole assignment on the GPU beside other work: a thread that lets chains race, heat after heat.

What cools is the same as on the CPU, in many more lineages: half of the chains go on where the better half has ended,
the others begin at the best assignment that anybody has found, at half the temperature.
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

from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import CLAIMS, is_out_of_memory
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.samplers.local_search.cuda.chains import DeviceChains, Schedule
from dmcmc.samplers.local_search.graph_chain_kernels import typical_spread
from dmcmc.samplers.local_search.graph_kernels import weigh
from dmcmc.samplers.local_search.successive_halving import RANGES, STRICT, Race

_LOOK = 0.05  # seconds between two looks at what chains have found, and at whether they may go on
_END = 0.5  # seconds that the end waits for it
_FEWEST = 4  # sweeps of a heat, at least: where there is no time for them there is no other heat

Values = NDArray[np.int64]


@dataclass(frozen=True)
class Listener:
    """Whom the search talks to, from its own thread.

    Attributes
    ----------
    known : callable
        Returns the best known assignment, of the original variables.
    found : callable
        Called with every assignment that is better than that, as chains count.
    """

    known: Callable[[], Values]
    found: Callable[[Values], object]


@dataclass(frozen=True)
class _Ended:
    """A chain at the end of a heat."""

    end: tuple[float, float]
    values: NDArray[np.int32]

    def last(self) -> Values:
        """Return where it is."""
        return self.values.astype(np.int64)


class Beside:
    """A search that goes on in its own thread until the time is over, or it is not wanted any more.

    Parameters
    ----------
    make : callable
        Returns the chains; called in the thread. None where the device has no room for them.
    listener : Listener
    stop : Stop
        Looked at between launches.

    Attributes
    ----------
    seconds : float
        That the device has worked for it.
    heats : int
        That have been run to their ends.
    pace : float
        Seconds of a sweep of all chains in the last of them.
    failed : str
        Why it has ended, if that was an error.
    """

    def __init__(self, make: Callable[[], DeviceChains | None], listener: Listener, stop: Stop) -> None:
        self._make, self._listener, self._stop = make, listener, stop
        self._allowed, self._leave, self._ended = 0.0, threading.Event(), threading.Event()
        self.seconds, self.heats, self.failed, self.pace = 0.0, 0, "", 0.0
        self._race: Race | None = None
        self._thread = threading.Thread(target=self._run, name="dmcmc GPU search", daemon=True)
        self._thread.start()

    @property
    def on(self) -> bool:
        """Whether it may still bring something."""
        return not self._ended.is_set() and not self._leave.is_set()

    def allow(self, seconds: float) -> None:
        """Let it have so many seconds of the device from now on."""
        self._allowed = seconds

    def end(self) -> None:
        """End it; returns when its last launch is over, or soon where a large problem is still being laid out."""
        self._leave.set()
        self._thread.join(_END)

    @property
    def _over(self) -> bool:
        return self._leave.is_set() or self._stop.over

    def _run(self) -> None:
        try:
            with suppress(OutOfMemory):
                chains = self._make()
                while chains is not None and not self._over and self._heat(chains):
                    pass
        except Exception as error:  # the run goes on without it
            self.failed = "" if is_out_of_memory(error) else f"{type(error).__name__}: {error}"[:200]
        finally:
            self._ended.set()

    def _heat(self, chains: DeviceChains) -> bool:
        """Let all chains cool once; return whether there is time for another heat."""
        best, graph = self._listener.known(), chains.graph
        if self._race is None:
            hard = bool((graph.data == graph.never).any())
            spans = list(islice(cycle(RANGES + STRICT if hard else RANGES), chains.chains))
            self._race = Race(spans, max(1, chains.chains // 2))
        race = self._race
        fits = race.sweeps if not self.pace else int(min(self._stop.left, 1e9) / self.pace)
        if fits < _FEWEST:
            return False
        spans = list(dict.fromkeys(entry.span for entry in race.entries))
        spread = float(typical_spread(graph, best, np.zeros((3, graph.widest)))) or 1.0
        of_chain = np.array([spans.index(entry.span) for entry in race.entries])
        states, worths = self._starts(chains, best)
        known = tuple(worths[-1].tolist())
        chains.begin(states, worths[:-1], Schedule(spans, of_chain, spread, min(race.sweeps, fits)))
        begun, waited, told = time.perf_counter(), 0.0, time.perf_counter()
        while not chains.through:
            if self._over:
                return False
            if self._allowed <= 0 or CLAIMS.any:
                waited += _LOOK
                self._leave.wait(_LOOK)
                continue
            took = chains.advance()
            self.seconds += took
            self._allowed -= took
            if time.perf_counter() - told >= _LOOK or chains.through:
                told, known = time.perf_counter(), self._tell(chains, known)
        self.pace = max(1e-7, (time.perf_counter() - begun - waited) / min(race.sweeps, fits))
        self._go_on(chains, race)
        self.heats += 1
        return True

    def _starts(self, chains: DeviceChains, best: Values) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return where chains begin; what that is worth, and after it what the best is."""
        assert self._race is not None
        states = np.empty((chains.chains, chains.n), dtype=np.int32)
        worths = np.empty((chains.chains + 1, 2))
        weighed: dict[int, tuple[float, float]] = {}
        worths[-1] = self._weigh(chains, best)
        for i, entry in enumerate(self._race.entries):
            states[i] = best if entry.values is None else entry.values
            if entry.utility is not None:
                worths[i] = entry.utility
            elif entry.values is None:
                worths[i] = worths[-1]
            else:
                if id(entry.values) not in weighed:
                    weighed[id(entry.values)] = self._weigh(chains, entry.values)
                worths[i] = weighed[id(entry.values)]
        return states, worths

    def _weigh(self, chains: DeviceChains, values: Values) -> tuple[float, float]:
        """Return an assignment's violations, negated, and utility."""
        sums = np.zeros((3, 1))
        weigh(chains.graph, values, sums)
        return -float(sums[0, 0]), float(sums[1, 0] + sums[2, 0])

    def _tell(self, chains: DeviceChains, known: tuple[Any, ...]) -> tuple[Any, ...]:
        """Tell of the best that chains have found, if it is better than what was known; return what is known now."""
        bests = chains.bests()
        top = int(np.lexsort((bests[:, 1], bests[:, 0]))[-1])
        worth = tuple(bests[top].tolist())
        if worth <= known or not math.isfinite(worth[0]):
            return known
        self._listener.found(chains.best(top))
        return worth

    def _go_on(self, chains: DeviceChains, race: Race) -> None:
        """Let the race go on to its next heat."""
        states, worths = chains.ends()
        race.next(
            [_Ended((a, b), state) for (a, b), state in zip(worths.tolist(), states, strict=True)],
            chains.graph.domains,
        )
