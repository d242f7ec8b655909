"""Local search over the whole assignment of a problem with global constraints: several annealing walks at once."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.samplers.constraint_search.search_model import SearchModel, search_model
from dmcmc.samplers.constraint_search.uncompiled_search import UncompiledSearch
from dmcmc.samplers.constraint_search.walker import Walker
from dmcmc.samplers.tuning import common
from dmcmc.samplers.tuning import constraint_search as tuning

Values = NDArray[np.int64]

_ENDLESS = 1 << 40  # moves of a walk that ends by the clock


class ConstraintSearch:
    """Annealing walks on a problem, one per thread.

    Parameters
    ----------
    problem : Problem
        The problem.
    seed, place : int
        Seed of the random numbers, and the number of this rank.
    stop : Deadline
        When to give up making the model with ``OutOfTime``.

    Attributes
    ----------
    model : SearchModel
        The problem in flat arrays.
    """

    def __init__(self, problem: Problem, seed: int, place: int = 0, stop: Deadline = NO_DEADLINE) -> None:
        self.problem, self._seed, self._place = problem, seed, place
        self.model: SearchModel = search_model(problem, stop)
        self._walkers: list[Walker] = []
        self._rate = 0.0  # moves per second and walk

    def walker(self, number: int) -> Walker:
        """Return a walk, which is made if it does not exist yet."""
        while len(self._walkers) <= number:
            entropy = [self._seed % 2**64, self._seed >> 64 & 2**64 - 1, self._place, len(self._walkers)]
            state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
            self._walkers.append(Walker(self.model, int(state[0])))
        return self._walkers[number]

    def first(
        self,
        stop: Deadline,
        is_ready: Callable[[], bool] = lambda: True,
        report: Callable[[Values], object] = lambda values: None,
    ) -> Values:
        """Return an assignment that violates few hard constraints, if possible none.

        A search in NumPy constructs and repairs assignments until the kernels are compiled, but at least once. Large
        problems are constructed by the kernels if they are there. :meth:`repair` continues.

        Parameters
        ----------
        stop : Deadline
            Ends the search.
        is_ready : callable
            Returns whether the kernels are compiled.
        report : callable
            Called with each assignment that violates less than all before.
        """
        if self.model.domains.size <= tuning.MAX_UNCOMPILED_VARIABLES or not is_ready():
            return UncompiledSearch(self.model, self._seed).search(stop, is_ready, report)[0]
        walker = self.walker(0)
        walker.construct()
        report(walker.best.copy())
        return walker.best.copy()

    def repair(self, values: Values, stop: Deadline) -> Values:
        """Return an assignment that violates no hard constraint, if a walk of limited length from ``values`` finds one.

        Parameters
        ----------
        values : (n,) int64
            The assignment.
        stop : Deadline
            Ends the walk.
        """
        walker, halt = self.walker(0), np.zeros(1, dtype=np.uint8)
        _taken_over([walker], values)
        for _ in range(tuning.MAX_FIRST_CALLS):
            if not walker.best_totals[0] or stop.over:
                break
            run_until_deadline([partial(walker.run, tuning.FIRST_MOVES, halt)], 1, stop, halt)
        return walker.best.copy()

    def climb(self, values: Values, stop: Deadline) -> Values:
        """Return an assignment that no change of a single variable improves, or the last one before the deadline."""
        walker, halt = Walker(self.model, 0), np.zeros(1, dtype=np.uint8)
        walker.start_from(values)
        run_until_deadline([partial(walker.descend, halt)], 1, stop, halt)
        return walker.best

    def improve(
        self, values: Values, seconds: float, threads: int, stop: Deadline, on_better: Callable[[Values], object]
    ) -> None:
        """Search for some seconds.

        Parameters
        ----------
        values : (n,) int64
            The best assignment known.
        seconds : float
            Seconds of the search. A cycle that is interrupted is continued by the next call.
        threads : int
            Number of walks.
        stop : Deadline
            Deadline of the run; the last cycle is shortened so that it ends before.
        on_better : callable
            Called with each assignment that is better than all before, and than ``values``.
        """
        walkers = [self.walker(i) for i in range(max(1, threads))]
        best = _taken_over(walkers, values)
        until = time.perf_counter() + seconds
        while not stop.over and (begun := time.perf_counter()) < until:
            if self._rate and stop.until < np.inf:
                for walker in walkers:
                    walker.shorten_cycle(int(self._rate * (stop.until - begun)))
            halt, before = np.zeros(1, dtype=np.uint8), sum(walker.moves for walker in walkers)
            end = stop.by(min(until, begun + common.SLICE_SECONDS))
            run_until_deadline([partial(walker.run, _ENDLESS, halt) for walker in walkers], threads, end, halt)
            moves = sum(walker.moves for walker in walkers) - before
            self._rate = moves / len(walkers) / max(1e-3, time.perf_counter() - begun)
            best = self._share(walkers, best, on_better)

    def improve_by_moves(self, values: Values, moves: int, stop: Deadline) -> Values:
        """Make a number of moves in one walk; return the best assignment of it and of ``values``."""
        walker, halt = self.walker(0), np.zeros(1, dtype=np.uint8)
        _taken_over([walker], values)
        run_until_deadline([partial(walker.run, moves, halt)], 1, stop, halt)
        return walker.best.copy()

    def _share(
        self, walkers: list[Walker], best: tuple[float, ...], on_better: Callable[[Values], object]
    ) -> tuple[float, ...]:
        """Report the best assignment of all walks if it is new, suggest it to all; return its degree and soft cost."""
        leader = min(walkers, key=lambda walker: tuple(walker.best_totals))
        totals = float(leader.best_totals[0]), float(leader.best_totals[1])
        if totals >= best:
            return best
        for walker in walkers:
            walker.suggest(leader.best, totals)
        on_better(leader.best.copy())
        return totals


def _taken_over(walkers: list[Walker], values: Values) -> tuple[float, ...]:
    """Give walks without an assignment, or with a worse one, the given assignment; return its degree and soft cost."""
    known = Walker(walkers[0].model, 0)
    known.start_from(values)
    totals = float(known.best_totals[0]), float(known.best_totals[1])
    for walker in walkers:
        if not np.isfinite(walker.best_totals[0]):
            walker.start_from(values)
        elif totals < tuple(walker.best_totals):
            walker.suggest(values, totals)
    return totals
