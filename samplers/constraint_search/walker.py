"""One annealing walk over the assignments of a problem with global constraints.

The walk makes cycles from a high to a low temperature. A cycle has a number of temperatures; the first cycle spends
equally many moves at each, later ones more where the standard deviation of the total, relative to the temperature, was
larger (adaptive cooling: Huang, Romeo and Sangiovanni-Vincentelli, ICCAD 1986). Constraints that are violated at the
end of a cycle get a larger weight (the breakout method: Morris, AAAI 1993).
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.constraint_search.move_kernels import (
    MAX_REBUILT,
    anneal,
    build_assignment,
    descend,
    has_followers,
    raise_weights,
    sample_changes,
)
from dmcmc.samplers.constraint_search.search_model import SearchModel
from dmcmc.samplers.constraint_search.state_kernels import DEGREE, SOFT, WalkState, load_assignment

Values = NDArray[np.int64]

_MAX_CHANGES = 256  # variables that one move changes, at most
_SAMPLES = 2000  # moves by which the changes of the soft cost are measured
_TEMPERATURES = 48  # temperatures of a cycle
_FIRST_CYCLE_MOVES = 50_000
_CYCLE_GROWTH = 1.5  # ratio of the moves of a cycle to those of the cycle before
_FOCUS = 0.5  # probability that a move starts from a violated constraint
_SMALL_QUANTILE = 0.05  # of the changes of the soft cost: the last temperature is a part of it
_LAST_TEMPERATURE_PART = 0.1
_FIRST_TEMPERATURE_PART = 0.5  # of the weight of a violation
_HARD_WEIGHT_FACTOR = 1.5  # weight of a violation, in largest changes of the soft cost by one move
_WEIGHT_GROWTH = 1.5  # of the weight of a constraint that is violated at the end of a cycle
_MIN_SHARE = 0.1  # least share of a temperature in the moves, relative to the largest
# Parts of the work for each kind of move: single, pair, swap, ejection chain, rebuild
_WORK_PARTS = np.array([0.4, 0.15, 0.15, 0.2, 0.1])
_EVALUATION_WORK = 0.3  # work of evaluating one value, in changes of a value
_MAX_SPREAD = 100.0  # limit on the standard deviation of the total, in temperatures
_MIN_MEASURED_MOVES = 100  # moves from which a standard deviation or a mean is computed
_FIRST_CHAIN_CHANGES = 8.0  # changes of an ejection chain, until they are measured


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
        n, rows = model.domains.size, model.constraints + model.factors
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
        self._changed, self._moved = np.zeros((2, _MAX_CHANGES), dtype=np.int64), np.full(n, -1, dtype=np.int64)
        self._counters, self._statistics = np.zeros(2, dtype=np.int64), np.zeros((3, 5))
        self._rng = np.random.default_rng(seed)
        self._mean_domain = float(model.domains.mean()) if n else 1.0
        self._temperatures = np.zeros(0)  # of a cycle, from the highest
        self._spread = np.ones(_TEMPERATURES)
        self._weight = 1.0  # first weight of a violation
        self._cycle_moves = _FIRST_CYCLE_MOVES
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
        load_assignment(model, state, np.full(model.domains.size, -1, dtype=np.int64))
        degrees = np.diff(model.items_start) + np.diff(model.start)
        noise = self._rng.random(model.domains.size)
        build_assignment(model, state, np.lexsort((noise, -degrees, model.domains)), 1e-9)
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
        found = np.zeros(_SAMPLES)
        sample_changes(self.model, self.state, _SAMPLES, found)
        changes = found[found > 0]
        self._weight = _HARD_WEIGHT_FACTOR * float(changes.max()) if changes.size else 1.0
        self.state.weight[:] = self._weight
        small = float(np.quantile(changes, _SMALL_QUANTILE)) if changes.size else self._weight
        last = _LAST_TEMPERATURE_PART * min(small, self._weight)
        self._temperatures = np.geomspace(_FIRST_TEMPERATURE_PART * self._weight, last, _TEMPERATURES)
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
                np.array([self._temperatures[k], _FOCUS, 1.0, *self._mix()]),
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
            raise_weights(self.state, _WEIGHT_GROWTH)
        if self._suggested is not None and self._suggested[1] < tuple(self.best_totals) and self._rng.integers(2):
            self.best[:], self.best_totals[:] = self._suggested
        load_assignment(self.model, self.state, self.best)
        widest = int(self._spread.argmax())
        first = int(self._rng.integers(widest + 1)) if self.best_totals[0] == 0 and self._statistics[0].any() else 0
        share = np.maximum(self._spread[first:], _MIN_SHARE * self._spread.max())
        counts = np.maximum(1, self._cycle_moves * share / share.sum()).astype(np.int64).tolist()
        self._plan = [(first + i, count) for i, count in enumerate(counts)][::-1]
        self._cycle_moves = int(_CYCLE_GROWTH * self._cycle_moves)

    def _measure_spread(self, k: int) -> None:
        """Update the standard deviation of the total at a temperature, relative to the temperature."""
        number, _, deviations = self._statistics[2, :3]
        if number >= _MIN_MEASURED_MOVES:
            spread = float(np.sqrt(max(0.0, deviations) / number)) / self._temperatures[k]
            self._spread[k] = 0.5 * (self._spread[k] + min(spread, _MAX_SPREAD))

    def _mix(self) -> NDArray[np.float64]:
        """Return the cumulative probabilities of the kinds of moves, so that each gets its part of the work."""
        made, changes = self._statistics[0], self._statistics[1]
        chain = changes[3] / made[3] if made[3] > _MIN_MEASURED_MOVES else _FIRST_CHAIN_CHANGES
        rebuilt = 0.5 * MAX_REBUILT
        work = np.array([_EVALUATION_WORK, 4.0, 4.0, 2.0 * max(1.0, chain), 0.0])
        work[4] = rebuilt * (3.0 + _EVALUATION_WORK * self._mean_domain)
        rates = _WORK_PARTS / work
        if not self._has_pairs:
            rates[1] = 0.0
        return np.asarray(np.cumsum(rates / rates.sum()))

    def _record(self) -> None:
        """Keep the present assignment if it is the best one."""
        totals = float(self.state.totals[DEGREE]), float(self.state.totals[SOFT])
        if totals < tuple(self.best_totals):
            self.best[:], self.best_totals[:] = self.state.z, totals
