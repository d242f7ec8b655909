"""The search for constraints without compiled code.

Search for an assignment that violates no hard constraint, in NumPy: it needs no kernels.

A variable and its partner, for instance a start and its place, are one *unit*. The units are assigned one after
another, the one with the fewest combinations of values first, each the combination that violates least. Then units of
violated constraints get other combinations (min-conflicts: Minton et al., Artificial Intelligence 58, 1992). Where no
change lowers the violation, the weights of all violated constraints rise (the breakout method: Morris, AAAI 1993). A
repair that takes long is begun anew; units of constraints that were often violated are then assigned first (the
weighted degree: Boussemart et al., ECAI 2004).

An assignment and the violations of its constraints, kept up to date in NumPy: it needs no kernels.

The violation of all combinations of values of some variables is computed at once, by prefix sums over the cells of each
constraint.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.constraint_search.search_model import SearchModel
from dmcmc.samplers.contract import tuning

Values = NDArray[np.int64]
Costs = NDArray[np.float64]
Unit = tuple[int, ...]


class UncompiledState:
    """An assignment, of which some variables may be unassigned, and what it violates.

    Parameters
    ----------
    model : SearchModel
        The problem.

    Attributes
    ----------
    values : (n,) int64
        The present assignment; −1 for an unassigned variable.
    weight : (constraints + factors,) float64
        The weight of each constraint, and then of each table or automaton, in weighted violations.
    violated : set of int
        The violated constraints, tables and automata, in the same numbering.
    items : list of list of int
        The items of each variable.
    """

    def __init__(self, model: SearchModel) -> None:
        self.model, n, constraints = model, model.graph.domains.size, model.constraints
        self.values = np.full(n, -1, dtype=np.int64)
        self.weight, self.violated = np.ones(constraints + model.factors), set[int]()
        self._load = np.zeros(int(model.cell_start[-1]), dtype=np.int64)
        self._degree = np.zeros(constraints + model.factors, dtype=np.int64)
        self.items = [model.items[model.items_start[v] : model.items_start[v + 1]].tolist() for v in range(n)]
        for c in np.flatnonzero(model.hard).tolist():  # a degree can be positive without any load
            self._set_degree(c, self._constraint_degree(c))

    @property
    def degree(self) -> int:
        """The degree of violation of all hard constraints, tables and automata."""
        return int(self._degree[sorted(self.violated)].sum())

    def assign(self, unit: Unit, new: tuple[int, ...]) -> tuple[int, ...]:
        """Give the variables of a unit new values (−1: none), and update what depends on them; return the old ones."""
        model, old = self.model, tuple(self.values[list(unit)].tolist())
        items = list(dict.fromkeys(i for v in unit for i in self.items[v]))
        for sign in (-1, 1):
            for item in items:
                self._load[slice(*self._cells(item))] += sign * int(model.item_weight[item])
            if sign < 0:
                self.values[list(unit)] = new
        for c in dict.fromkeys(model.item_constraint[items].tolist()):
            if model.hard[c]:
                self._set_degree(c, self._constraint_degree(c))
        for f in self._factors(unit):
            entry = self._entries((), f)
            self._set_degree(model.constraints + f, int(entry is not None and bool(entry == np.inf)))
        return old

    def costs(self, unit: Unit) -> tuple[Costs, Costs]:
        """Return the weighted violation and the soft cost that each combination of values of an unassigned unit adds.

        Tables with other unassigned variables count nothing; of constraints the best value of the other variable does.
        Several items of the unit in one constraint are counted one by one, as if the others were not there.
        """
        model = self.model
        shape = tuple(model.graph.domains[list(unit)].tolist())
        hard, soft = np.zeros(shape), np.zeros(shape)
        for item in dict.fromkeys(i for v in unit for i in self.items[v]):
            c = int(model.item_constraint[item])
            if model.hard[c]:
                hard += self.weight[c] * self._item_costs(unit, item)
            else:
                soft += model.unit_cost[c] * self._item_costs(unit, item)
        for f in self._factors(unit):
            entry = self._entries(unit, f)
            if entry is not None:
                forbidden = entry == np.inf
                hard += self.weight[model.constraints + f] * forbidden
                soft += np.where(forbidden, 0.0, entry)
        return hard, soft

    def _factors(self, unit: Unit) -> Iterable[int]:
        """Return the tables and automata of the variables of a unit."""
        return dict.fromkeys(f for v in unit for f in self.model.graph.factors_of(v).tolist())

    def _item_costs(self, unit: Unit, item: int) -> Costs:
        """Return the degree that an item adds, in an array that fits the combinations of a unit."""
        model = self.model
        a, b = model.item_variable[item].tolist()
        start, sizes = int(model.item_first[item]), [int(model.graph.domains[v]) for v in (a, b) if v >= 0]
        first, end = (cells[start : start + int(np.prod(sizes))].reshape(sizes) for cells in (model.first, model.end))
        added = self._placing_costs(int(model.item_constraint[item]), item, first, end)
        axes: list[int] = []
        for axis, v in reversed(list(enumerate((a, b)[: len(sizes)]))):
            if v in unit:
                axes.insert(0, unit.index(v))
            else:
                known = int(self.values[v])
                added = np.asarray(added.min(axis=axis) if known < 0 else added.take(known, axis=axis))
        if axes != sorted(axes):
            added = added.T
        return added.reshape([int(model.graph.domains[v]) if i in axes else 1 for i, v in enumerate(unit)])

    def _placing_costs(self, c: int, item: int, first: NDArray[np.int64], end: NDArray[np.int64]) -> Costs:
        """Return the degree that an item adds to a constraint for each range of cells; 0 for an empty one."""
        model, cells = self.model, slice(int(self.model.cell_start[c]), int(self.model.cell_start[c + 1]))
        load, penalty, is_none = self._load[cells], self._penalties(c), first >= end
        at, until = (np.where(is_none, 0, cell - cells.start) for cell in (first, end))
        if model.counts_runs[c]:
            occupied = np.concatenate([[False], load > 0, [False]])  # shifted by one cell
            starts = np.concatenate([[0, 0], np.cumsum(occupied[1:] & ~occupied[:-1])])
            runs = int(starts[-1])
            touched = occupied[at] + starts[until + 2] - starts[at + 1]  # runs next to and inside the range
            added = penalty.take(runs + 1 - touched, mode="clip") - penalty[runs]
        else:
            # Cells that the item cannot reach may be full; their differences cancel out.
            rise = penalty.take(load + int(model.item_weight[item]), mode="clip") - penalty[load]
            sums = np.concatenate([[0], np.cumsum(model.cell_width[cells] * rise)])
            added = sums[until] - sums[at]
        return np.where(is_none, 0, added).astype(np.float64)

    def _penalties(self, c: int) -> NDArray[np.int64]:
        """Return the penalties of a constraint, and of all that follow."""
        return self.model.penalty[int(self.model.penalty_start[c]) :]

    def _entries(self, unit: Unit, f: int) -> Costs | None:
        """Return the costs of a table or an automaton; None if a variable outside the unit is not assigned."""
        graph = self.model.graph
        scope = range(int(graph.scope_start[f]), int(graph.scope_start[f + 1]))
        chosen: list[Values] = []
        for s in scope:
            v = int(graph.scope[s])
            if v in unit:
                shape = [1] * len(unit)
                shape[unit.index(v)] = -1
                chosen.append(np.arange(graph.domains[v]).reshape(shape))
            elif self.values[v] < 0:
                return None
            else:
                chosen.append(self.values[v : v + 1].reshape([1] * len(unit)))
        if f < graph.dense:
            offsets = sum(x * int(graph.stride[s]) for s, x in zip(scope, chosen, strict=True))
            return graph.data[int(graph.table_start[f]) + offsets]
        state, total = np.zeros([1] * len(unit), dtype=np.int64), np.zeros([1] * len(unit))
        for s, x in zip(scope, chosen, strict=True):
            transition = int(graph.stride[s]) + state * int(graph.domains[graph.scope[s]]) + x
            total = total + graph.data[graph.first_step + transition]
            state = graph.following[transition].astype(np.int64)
        return total

    def _cells(self, item: int) -> tuple[int, int]:
        """Return the first cell that an item occupies, and the cell after the last one; 0 and 0 for none."""
        index = 0
        for v in self.model.item_variable[item].tolist():
            if v >= 0:
                if self.values[v] < 0:
                    return 0, 0
                index = index * int(self.model.graph.domains[v]) + int(self.values[v])
        index += int(self.model.item_first[item])
        return int(self.model.first[index]), int(self.model.end[index])

    def _constraint_degree(self, c: int) -> int:
        """Return the degree of violation of a constraint by its loads."""
        begin, end = int(self.model.cell_start[c]), int(self.model.cell_start[c + 1])
        load, penalty = self._load[begin:end], self._penalties(c)
        if not self.model.counts_runs[c]:
            return int((self.model.cell_width[begin:end] * penalty[load]).sum())
        occupied = load > 0
        return int(penalty[np.count_nonzero(occupied[1:] & ~occupied[:-1]) + int(occupied[:1].any())])

    def _set_degree(self, c: int, degree: int) -> None:
        """Set the degree of a constraint, table or automaton."""
        self._degree[c] = degree
        (self.violated.add if degree else self.violated.discard)(c)

    def items_in_bad_cells(self, c: int) -> NDArray[np.int64]:
        """Return the items of a constraint that occupy a cell with a penalty; all its items if there are none."""
        model, items = self.model, np.arange(self.model.item_start[c], self.model.item_start[c + 1])
        cells = slice(int(model.cell_start[c]), int(model.cell_start[c + 1]))
        bad = np.concatenate([[0], np.cumsum(self._penalties(c)[self._load[cells]] > 0)])
        begin, end = np.array([self._cells(i) for i in items.tolist()], dtype=np.int64).reshape(-1, 2).T - cells.start
        inside = bad[np.maximum(end, 0)] > bad[np.maximum(begin, 0)]
        return items[inside] if inside.any() else items


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
        self._units = sorted({self._unit(v) for v in range(model.graph.domains.size)})

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
        model, graph = self.model, self.model.graph
        constraints = {int(model.item_constraint[i]) for v in unit for i in self.state.items[v]}
        weight = sum(float(self._often_violated[c]) for c in constraints if model.hard[c])
        for v in unit:
            factors = graph.factors_of(v)
            weight += float(self._often_violated[model.constraints + factors].sum())
        return float(np.prod(graph.domains[list(unit)])) / max(1.0, weight)

    def _unit(self, v: int) -> Unit:
        """Return the variables that change together with a variable."""
        other = int(self.model.partner[v])
        if other < 0 or self.model.graph.domains[v] * self.model.graph.domains[other] > tuning.MAX_COMBINATIONS:
            return (v,)
        return (v, other) if self.model.partner[other] == v and v < other else (other, v) if other < v else (v,)

    def _repair(self) -> None:
        """Change one unit of a violated constraint, or raise the weights of what is violated."""
        violated = sorted(self.state.violated)
        candidates = self._candidates(violated[int(self._rng.integers(len(violated)))])
        if candidates and self._rng.random() < tuning.NOISE:
            unit = candidates[0]
            self.state.assign(unit, tuple(self._rng.integers(self.model.graph.domains[list(unit)]).tolist()))
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
            variables = model.graph.scope_of(c - constraints)
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
