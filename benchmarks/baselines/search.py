"""Run one of the local searches from random states, again and again, until the time is over.

    python -m benchmarks.baselines.search FILE [--searches ascent dsa-b dsa-c mgm2] [--seconds 5] [--seed 0]

A JSON line for each says when each better assignment was found: seconds, objective, violations.
"""

import itertools
import json
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines import search_kernels as kernels
from benchmarks.harness import options
from dmcmc import Problem, load
from dmcmc.algorithms.layout import Layout, lay_out
from dmcmc.inference.runtime.threads import cores, run_parallel

PROBABILITIES = (0.3, 0.5, 0.7, 0.9)  # of DSA's moves, from start to start
CYCLES = 300  # of one start of DSA
OFFERS = 0.5  # the probability with which MGM2's variables make an offer
_SLICE = 0.02  # seconds of starts between two looks at the clock

Starts = Callable[[Layout, int, int, int, NDArray[np.int64]], int]


def _dsa(sideways: int) -> Starts:
    def run(layout: Layout, seed: int, first: int, count: int, best: NDArray[np.int64]) -> int:
        how = (CYCLES, np.array(PROBABILITIES), sideways)
        worth: int = kernels.dsas(layout, seed, first, count, best, how)
        return worth

    return run


def _mgm2(layout: Layout, seed: int, first: int, count: int, best: NDArray[np.int64]) -> int:
    worth: int = kernels.mgm2s(layout, seed, first, count, best, OFFERS)
    return worth


SEARCHES: dict[str, Starts] = {"ascent": kernels.ascents, "dsa-b": _dsa(1), "dsa-c": _dsa(2), "mgm2": _mgm2}


class Point(NamedTuple):
    """What was best at a time."""

    seconds: float
    objective: int | float
    violation: int


class Found(NamedTuple):
    """What a search found: the best assignment, when each better one was found, and from how many states it began."""

    values: NDArray[np.int64]
    trace: list[Point]
    starts: int


def search(problem: Problem, name: str, seconds: float, seed: int = 0, threads: int | None = None) -> Found:
    """Search for some seconds on all cores, tables laid out and kernels compiled before.

    Parameters
    ----------
    problem
        Of dense tables.
    name
        One of :data:`SEARCHES`.
    seconds
        Of the wall clock. Each thread makes at least one start and ends the slice that it is in.
    seed, threads
        Starts are numbered and keyed by (seed, number): more time or threads only add to them.
    """
    layout, starts = lay_out(problem), SEARCHES[name]
    starts(layout, seed, 0, 1, np.zeros(problem.n_variables, dtype=np.int64))  # compiles
    best = _Best(problem, time.perf_counter())
    numbers = itertools.count()
    work = partial(_until, best, numbers, partial(starts, layout, seed), best.begun + seconds)
    threads = threads or cores()
    run_parallel([work] * threads, threads)
    return Found(best.values, best.trace, best.starts)


class _Best:
    """The best of all threads."""

    def __init__(self, problem: Problem, begun: float) -> None:
        self.problem, self.begun = problem, begun
        self.values = np.zeros(problem.n_variables, dtype=np.int64)
        self.worth, self.starts = -(2**62), 0
        self.trace: list[Point] = []
        self.lock = threading.Lock()

    def take(self, worth: int, values: NDArray[np.int64], starts: int) -> None:
        """Count what a thread found, and keep it if it is better."""
        with self.lock:
            self.starts += starts
            if worth > self.worth:
                self.worth, self.values = worth, values.copy()
                found = self.problem.evaluate(self.values)
                self.trace.append(Point(time.perf_counter() - self.begun, found.objective, found.violation))


def _until(best: _Best, numbers: Any, starts: Callable[[int, int, NDArray[np.int64]], int], end: float) -> None:
    """Make starts in slices of some milliseconds until the time is over."""
    values, count = np.zeros_like(best.values), 1
    while True:
        first = next(numbers) << 20  # each slice has numbers of its own
        begun = time.perf_counter()
        worth = starts(first, count, values)
        now = time.perf_counter()
        best.take(worth, values, count)
        if now >= end:
            return
        count = max(1, min(2 * count, int(count * min(_SLICE, end - now) / max(now - begun, 1e-6)), 1 << 20))


def main() -> None:
    """Search, and say what was found."""
    parser = options(__file__, __doc__)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    problem = load(given.file)
    for name in given.searches:
        found = search(problem, name, given.seconds, given.seed)
        print(json.dumps({"search": name, "starts": found.starts, "trace": found.trace}), flush=True)


if __name__ == "__main__":
    main()
