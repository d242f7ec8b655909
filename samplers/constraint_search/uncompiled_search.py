"""Search for an assignment that violates no hard constraint, in NumPy: it needs no kernels.

A variable and its partner, for instance a start and its place, are one *unit*. The units are assigned one after
another, the one with the fewest combinations of values first, each the combination that violates least. Then units of
violated constraints get other combinations (min-conflicts: Minton et al., Artificial Intelligence 58, 1992). Where no
change lowers the violation, the weights of all violated constraints rise (the breakout method: Morris, AAAI 1993). A
repair that takes long is begun anew; units of constraints that were often violated are then assigned first (the
weighted degree: Boussemart et al., ECAI 2004).
"""

from collections.abc import Callable

import numpy as np

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.constraint_search.search_model import SearchModel
from dmcmc.samplers.constraint_search.uncompiled_state import Costs, UncompiledState, Unit, Values
from dmcmc.samplers.tuning import constraint_search as tuning

_TIE = 2.0**-40  # relative difference of two sums of float64 that rounding alone can explain


class UncompiledSearch:
    """An assignment under construction and repair.

    Parameters
    ----------
    model : SearchModel
        The problem.
    seed : int
        Seed of the random numbers.

    Attributes
    ----------
    state : UncompiledState
        The present assignment and its violations.
    """

    def __init__(self, model: SearchModel, seed: int) -> None:
        self.model, self._rng = model, np.random.default_rng(seed)
        self.state = UncompiledState(model)
        self._often_violated = np.ones(model.constraints + model.factors)  # sums of the weights of all repairs
        self._units = sorted({self._unit(v) for v in range(model.domains.size)})

    def search(
        self, stop: Deadline, ends: Callable[[], bool], report: Callable[[Values], object]
    ) -> tuple[Values, int]:
        """Construct assignments and repair them, until one violates no hard constraint; improve that one.

        Parameters
        ----------
        stop : Deadline
            Ends the search; variables that are not assigned yet then get their first values.
        ends : callable
            Returns whether to construct no further assignment.
        report : callable
            Called with each constructed assignment, and the repaired one, that violates less than all before.

        Returns
        -------
        values : (n,) int64
            The assignment with the least degree of violation.
        degree : int
            Its degree of violation.
        """
        best, least, steps = self.state.values, -1, tuning.FIRST_STEPS + 2 * len(self._units)
        while least and not (stop.over or (least > 0 and ends())):
            self.construct(stop)
            for step in range(steps):
                degree = self.state.degree
                if least < 0 or degree < least:
                    best, least = self.state.values.copy(), degree
                    if degree and not step:
                        report(np.maximum(best, 0))
                if not degree or stop.over:
                    break
                self._repair()
            self._often_violated += self.state.weight - 1
            self.state.weight[:] = 1
            steps = int(tuning.CYCLE_GROWTH * steps)
        if not least and not (best < 0).any():
            report(best)
            self.climb(stop)
            best = self.state.values
        return np.maximum(best, 0), least if (best >= 0).all() else -1

    def construct(self, stop: Deadline) -> None:
        """Assign all variables anew; those that are left when the deadline passes stay unassigned."""
        for unit in self._units:
            self.state.assign(unit, (-1,) * len(unit))
        rank = np.array([self._construction_rank(unit) for unit in self._units])
        for k in np.lexsort((self._rng.random(rank.size), rank)).tolist():
            if stop.over:
                return
            self.state.assign(self._units[k], self._cheapest(*self.state.costs(self._units[k])))

    def climb(self, stop: Deadline) -> None:
        """Give each unit once its best combination of values, in random order."""
        for k in self._rng.permutation(len(self._units)).tolist():
            if stop.over:
                return
            unit = self._units[k]
            now = self.state.assign(unit, (-1,) * len(unit))
            hard, soft = self.state.costs(unit)
            new = self._cheapest(hard, soft)
            is_better = (hard[new], soft[new] + _TIE * abs(soft[new])) < (hard[now], soft[now])
            self.state.assign(unit, new if is_better else now)

    def _construction_rank(self, unit: Unit) -> float:
        """Return the number of combinations of a unit, divided by the weights of what it can violate."""
        model = self.model
        constraints = {int(model.item_constraint[i]) for v in unit for i in self.state.items[v]}
        weight = sum(float(self._often_violated[c]) for c in constraints if model.hard[c])
        for v in unit:
            factors = model.factor[model.start[v] : model.start[v + 1]]
            weight += float(self._often_violated[model.constraints + factors].sum())
        return float(np.prod(model.domains[list(unit)])) / max(1.0, weight)

    def _unit(self, v: int) -> Unit:
        """Return the variables that change together with a variable."""
        other = int(self.model.partner[v])
        if other < 0 or self.model.domains[v] * self.model.domains[other] > tuning.MAX_COMBINATIONS:
            return (v,)
        return (v, other) if self.model.partner[other] == v and v < other else (other, v) if other < v else (v,)

    def _repair(self) -> None:
        """Change one unit of a violated constraint, or raise the weights of what is violated."""
        violated = sorted(self.state.violated)
        candidates = self._candidates(violated[int(self._rng.integers(len(violated)))])
        if candidates and self._rng.random() < tuning.NOISE:
            unit = candidates[0]
            self.state.assign(unit, tuple(self._rng.integers(self.model.domains[list(unit)]).tolist()))
            return
        best: tuple[float, Unit, tuple[int, ...]] | None = None
        for unit in candidates:
            now = self.state.assign(unit, (-1,) * len(unit))
            hard, soft = self.state.costs(unit)
            present = float(hard[now])
            hard[now] = np.inf
            chosen = self._cheapest(hard, soft)
            self.state.assign(unit, now)
            if np.isfinite(hard[chosen]) and (best is None or hard[chosen] - present < best[0]):
                best = float(hard[chosen]) - present, unit, chosen
        if best is None or best[0] >= 0:
            self.state.weight[violated] += 1
            if best is None or self._rng.random() >= tuning.SIDEWAYS_PROBABILITY:
                return
        self.state.assign(best[1], best[2])

    def _candidates(self, c: int) -> list[Unit]:
        """Return some units of a violated constraint, table or automaton; half the time only those in its bad cells."""
        state, model, constraints = self.state, self.model, self.model.constraints
        if c >= constraints:
            variables = model.scope[model.scope_start[c - constraints] : model.scope_start[c - constraints + 1]]
        else:
            items = np.arange(model.item_start[c], model.item_start[c + 1])
            if not model.counts_runs[c] and self._rng.random() < tuning.FOCUS:
                items = state.items_in_bad_cells(c)
            variables = model.item_variable[items, 0]
        units = sorted({self._unit(int(v)) for v in variables})
        order = self._rng.permutation(len(units))[: tuning.MAX_CANDIDATES]
        return [units[int(i)] for i in order]

    def _cheapest(self, hard: Costs, soft: Costs) -> tuple[int, ...]:
        """Return a random one of the combinations with the least violation and then the least soft cost."""
        soft = np.where(hard <= hard.min(), soft, np.inf)
        flat = np.flatnonzero(soft.reshape(-1) <= soft.min())
        index = int(flat[int(self._rng.integers(flat.size))])
        return tuple(int(i) for i in np.unravel_index(index, soft.shape))
