"""Search by moves that repair constraints.

Local search over the whole assignment of a problem with global constraints: several annealing walks at once.

One annealing walk over the assignments of a problem with global constraints.

The walk makes cycles from a high to a low temperature. A cycle has a number of temperatures; the first cycle spends
equally many moves at each, later ones more where the standard deviation of the total, relative to the temperature, was
larger (adaptive cooling: Huang, Romeo and Sangiovanni-Vincentelli, ICCAD 1986). Constraints that are violated at the
end of a cycle get a larger weight (the breakout method: Morris, AAAI 1993).
"""

import time
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.samplers.constraint_search.move_kernels import (
    MAX_REBUILT,
    anneal,
    build_assignment,
    descend,
    has_followers,
    raise_weights,
    sample_changes,
)
from dmcmc.samplers.constraint_search.search_model import SearchModel, search_model
from dmcmc.samplers.constraint_search.state_kernels import DEGREE, SOFT, WalkState, load_assignment
from dmcmc.samplers.constraint_search.uncompiled_search import UncompiledSearch
from dmcmc.samplers.contract import tuning

Values = NDArray[np.int64]


class Walker:
    """A walk of one thread.

    Parameters
    ----------
    model : SearchModel
        The problem.
    seed : int
        Seed of the random numbers.

    Attributes
    ----------
    state : WalkState
        The present assignment, and what follows from it.
    best : (n,) int64
        The best assignment since it was last set.
    best_totals : (2,) float64
        Its degree of violation and its soft cost.
    """

    def __init__(self, model: SearchModel, seed: int) -> None:
        self.model = model
        n, rows = model.graph.domains.size, model.constraints + model.factors
        self.state = WalkState(
            z=np.full(n, -1, dtype=np.int64),
            load=np.zeros(int(model.cell_start[-1]) + 1, dtype=np.int64),
            runs=np.zeros(model.constraints, dtype=np.int64),
            degree=np.zeros(rows, dtype=np.int64),
            offset=np.zeros(model.factors, dtype=np.int64),
            missing=np.zeros(model.factors, dtype=np.int64),
            value=np.zeros(model.factors),
            weight=np.ones(rows),
            violated=np.zeros(rows, dtype=np.int64),
            place=np.full(rows, -1, dtype=np.int64),
            totals=np.zeros(4),
            random=np.array([seed % 2**64], dtype=np.uint64),
        )
        self.best, self.best_totals = np.zeros(n, dtype=np.int64), np.full(2, np.inf)
        self._changed, self._moved = np.zeros((2, tuning.MAX_CHANGES), dtype=np.int64), np.full(n, -1, dtype=np.int64)
        self._counters, self._statistics = np.zeros(2, dtype=np.int64), np.zeros((3, 5))
        self._rng = np.random.default_rng(seed)
        self._mean_domain = float(model.graph.domains.mean()) if n else 1.0
        self._temperatures = np.zeros(0)  # of a cycle, from the highest
        self._spread = np.ones(tuning.TEMPERATURES)
        self._weight = 1.0  # first weight of a violation
        self._cycle_moves = tuning.FIRST_MOVES
        self._suggested: tuple[Values, tuple[float, float]] | None = None
        self._plan: list[tuple[int, int]] = []  # (temperature, moves) that are left of this cycle, in reverse order

    @cached_property
    def _has_pairs(self) -> bool:
        """Whether variables change together; found by a kernel, which is not compiled before the walk begins."""
        return bool((self.model.partner >= 0).any()) or has_followers(self.model)

    @property
    def moves(self) -> int:
        """The number of moves so far."""
        return int(self._counters[0])

    @property
    def planned_moves(self) -> int:
        """The number of moves that are left of this cycle."""
        return sum(moves for _, moves in self._plan)

    def construct(self) -> None:
        """Assign the variables one after another, smallest domain first, each the value with the least violation."""
        model, state = self.model, self.state
        graph = model.graph
        load_assignment(model, state, np.full(graph.domains.size, -1, dtype=np.int64))
        degrees = np.diff(model.items_start) + np.diff(graph.start)
        noise = self._rng.random(graph.domains.size)
        build_assignment(model, state, np.lexsort((noise, -degrees, graph.domains)), 1e-9)
        self._record()

    def start_from(self, values: Values) -> None:
        """Go to an assignment; it becomes the best one if it is better."""
        load_assignment(self.model, self.state, values)
        self._record()

    def descend(self, halt: NDArray[np.uint8]) -> None:
        """Change single variables of the present assignment until no change improves it."""
        if not self._temperatures.size:
            self.measure()
        descend(self.model, self.state, 1.0, halt)
        self._record()

    def measure(self) -> None:
        """Set the weights of violations and the temperatures by the changes of the soft cost near the present state."""
        found = np.zeros(tuning.SAMPLED_MOVES)
        sample_changes(self.model, self.state, tuning.SAMPLED_MOVES, found)
        changes = found[found > 0]
        self._weight = tuning.CYCLE_GROWTH * float(changes.max()) if changes.size else 1.0
        self.state.weight[:] = self._weight
        small = float(np.quantile(changes, tuning.SMALL_QUANTILE)) if changes.size else self._weight
        last = tuning.LEAST_RATIO * min(small, self._weight)
        self._temperatures = np.geomspace(0.5 * self._weight, last, tuning.TEMPERATURES)
        load_assignment(self.model, self.state, self.state.z.copy())

    def run(self, moves: int, halt: NDArray[np.uint8]) -> None:
        """Make a number of moves, or fewer if ``halt`` is set."""
        if not self._temperatures.size:
            self.measure()
        until = self.moves + moves
        while self.moves < until and not halt[0]:
            if not self._plan:
                self._begin_cycle()
            k, left = self._plan.pop()
            before = self.moves
            self._counters[1] = min(left, until - before)
            anneal(
                self.model,
                self.state,
                np.array([self._temperatures[k], tuning.FOCUS, 1.0, *self._mix()]),
                self._changed,
                self._moved,
                self._counters,
                self.best,
                self.best_totals,
                self._statistics,
                halt,
            )
            made = self.moves - before
            self._measure_spread(k)
            if made < left:
                self._plan.append((k, left - made))

    def suggest(self, values: Values, totals: tuple[float, float]) -> None:
        """Suggest an assignment with its degree and soft cost as the start of later cycles."""
        self._suggested = values.copy(), totals

    def shorten_cycle(self, moves: int) -> None:
        """Scale the rest of this cycle to a number of moves, so that it ends in time."""
        planned = self.planned_moves
        if planned > moves > 0:
            self._plan = [(k, max(1, left * moves // planned)) for k, left in self._plan]

    def _begin_cycle(self) -> None:
        """Raise the weights of what is violated, return to the best assignment, and divide the moves of a cycle."""
        if self.state.totals[DEGREE] > 0:
            raise_weights(self.state, tuning.CYCLE_GROWTH)
        if self._suggested is not None and self._suggested[1] < tuple(self.best_totals) and self._rng.integers(2):
            self.best[:], self.best_totals[:] = self._suggested
        load_assignment(self.model, self.state, self.best)
        widest = int(self._spread.argmax())
        first = int(self._rng.integers(widest + 1)) if self.best_totals[0] == 0 and self._statistics[0].any() else 0
        share = np.maximum(self._spread[first:], tuning.LEAST_RATIO * self._spread.max())
        counts = np.maximum(1, self._cycle_moves * share / share.sum()).astype(np.int64).tolist()
        self._plan = [(first + i, count) for i, count in enumerate(counts)][::-1]
        self._cycle_moves = int(tuning.CYCLE_GROWTH * self._cycle_moves)

    def _measure_spread(self, k: int) -> None:
        """Update the standard deviation of the total at a temperature, relative to the temperature."""
        number, _, deviations = self._statistics[2, :3]
        if number >= tuning.MIN_MEASURED_MOVES:
            spread = float(np.sqrt(max(0.0, deviations) / number)) / self._temperatures[k]
            self._spread[k] = 0.5 * (self._spread[k] + min(spread, tuning.MAX_SPREAD))

    def _mix(self) -> NDArray[np.float64]:
        """Return the cumulative probabilities of the kinds of moves, so that each gets its part of the work."""
        made, changes = self._statistics[0], self._statistics[1]
        chain = changes[3] / made[3] if made[3] > tuning.MIN_MEASURED_MOVES else MAX_REBUILT
        rebuilt = 0.5 * MAX_REBUILT
        work = np.array([tuning.EVALUATION_WORK, 4.0, 4.0, 2.0 * max(1.0, chain), 0.0])
        work[4] = rebuilt * (3.0 + tuning.EVALUATION_WORK * self._mean_domain)
        rates = tuning.WORK_PARTS / work
        if not self._has_pairs:
            rates[1] = 0.0
        return np.asarray(np.cumsum(rates / rates.sum()))

    def _record(self) -> None:
        """Keep the present assignment if it is the best one."""
        totals = float(self.state.totals[DEGREE]), float(self.state.totals[SOFT])
        if totals < tuple(self.best_totals):
            self.best[:], self.best_totals[:] = self.state.z, totals


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
        if self.model.graph.domains.size <= tuning.MAX_UNCOMPILED_VARIABLES or not is_ready():
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
            end = stop.by(min(until, begun + tuning.SLICE_SECONDS))
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
