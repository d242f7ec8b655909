"""Run local searches from random states, again and again, until the time is over.

    python -m benchmarks.baselines.search FILE [--searches ascent dsa-b dsa-c mgm2] [--seconds 5] [--seed 0]

Prints one JSON line per search, with the seconds, objective and violations of each improvement.
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
from dmcmc.algorithms.layout import ColumnLayout, build_layout
from dmcmc.inference.runtime.threads import cores, run_parallel

PROBABILITIES = (0.3, 0.5, 0.7, 0.9)  # probabilities of DSA's moves; they alternate from start to start
CYCLES = 300  # cycles of one start of DSA
OFFER_PROBABILITY = 0.5  # probability with which a variable makes an offer in MGM2
_SLICE_SECONDS = 0.02  # seconds of the starts between two readings of the clock

Starts = Callable[[ColumnLayout, int, int, int, NDArray[np.int64]], int]


def _dsa(sideways: int) -> Starts:
    """Return a function that runs DSA; ``sideways`` is that of ``search_kernels.dsa``."""

    def run(layout: ColumnLayout, seed: int, first: int, count: int, best: NDArray[np.int64]) -> int:
        how = (CYCLES, np.array(PROBABILITIES), sideways)
        score: int = kernels.dsas(layout, seed, first, count, best, how)
        return score

    return run


def _mgm2(layout: ColumnLayout, seed: int, first: int, count: int, best: NDArray[np.int64]) -> int:
    """Run MGM2 from some random states."""
    score: int = kernels.mgm2s(layout, seed, first, count, best, OFFER_PROBABILITY)
    return score


SEARCHES: dict[str, Starts] = {"ascent": kernels.ascents, "dsa-b": _dsa(1), "dsa-c": _dsa(2), "mgm2": _mgm2}


class BaselinePoint(NamedTuple):
    """The best assignment at a time.

    Attributes
    ----------
    seconds : float
        Wall-clock seconds since the start.
    objective : int or float
        In the problem's own sense.
    violation : int
        Number of violated hard constraints.
    """

    seconds: float
    objective: int | float
    violation: int


class BaselineResult(NamedTuple):
    """The result of a search.

    Attributes
    ----------
    values : ndarray of int64, shape (variables,)
        The best assignment.
    trace : list of BaselinePoint
        All improvements.
    starts : int
        Number of random states that it started from.
    """

    values: NDArray[np.int64]
    trace: list[BaselinePoint]
    starts: int


def search(problem: Problem, name: str, seconds: float, seed: int = 0, threads: int | None = None) -> BaselineResult:
    """Search for some seconds on all cores, after laying out the tables and compiling the kernels.

    Parameters
    ----------
    problem : Problem
        A problem of dense tables.
    name : str
        One of ``SEARCHES``.
    seconds : float
        Wall-clock seconds. Each thread makes at least one start, and finishes its last slice.
    seed : int
        Starts are numbered and keyed by (seed, number): more time or threads only add starts.
    threads : int, optional
        Number of threads; all cores by default.
    """
    layout, starts = build_layout(problem), SEARCHES[name]
    starts(layout, seed, 0, 1, np.zeros(problem.n_variables, dtype=np.int64))  # compiles
    best = _SharedBest(problem, time.perf_counter())
    numbers = itertools.count()
    work = partial(_search_until, best, numbers, partial(starts, layout, seed), best.start + seconds)
    threads = threads or cores()
    run_parallel([work] * threads, threads)
    return BaselineResult(best.values, best.trace, best.starts)


class _SharedBest:
    """The best assignment of all threads."""

    def __init__(self, problem: Problem, start: float) -> None:
        self.problem, self.start = problem, start
        self.values = np.zeros(problem.n_variables, dtype=np.int64)
        self.score, self.starts = -(2**62), 0
        self.trace: list[BaselinePoint] = []
        self.lock = threading.Lock()

    def record(self, score: int, values: NDArray[np.int64], starts: int) -> None:
        """Count the starts of a thread, and record its best assignment if it is an improvement."""
        with self.lock:
            self.starts += starts
            if score > self.score:
                self.score, self.values = score, values.copy()
                found = self.problem.evaluate(self.values)
                self.trace.append(BaselinePoint(time.perf_counter() - self.start, found.objective, found.violation))


def _search_until(
    best: _SharedBest, numbers: Any, run_starts: Callable[[int, int, NDArray[np.int64]], int], end: float
) -> None:
    """Make starts in slices of some milliseconds until the time is over."""
    values, count = np.zeros_like(best.values), 1
    while True:
        first = next(numbers) << 20  # each slice has its own range of start numbers
        start = time.perf_counter()
        score = run_starts(first, count, values)
        now = time.perf_counter()
        best.record(score, values, count)
        if now >= end:
            return
        count = max(1, min(2 * count, int(count * min(_SLICE_SECONDS, end - now) / max(now - start, 1e-6)), 1 << 20))


def main() -> None:
    """Search, and print the traces."""
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
