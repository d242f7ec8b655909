"""An assignment and the violations of its constraints, kept up to date in NumPy: it needs no kernels.

The violation of all combinations of values of some variables is computed at once, by prefix sums over the cells of each
constraint.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.constraint_search.search_model import SearchModel

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
        self.model, n, constraints = model, model.domains.size, model.constraints
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
        shape = tuple(model.domains[list(unit)].tolist())
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
        model = self.model
        return dict.fromkeys(f for v in unit for f in model.factor[model.start[v] : model.start[v + 1]].tolist())

    def _item_costs(self, unit: Unit, item: int) -> Costs:
        """Return the degree that an item adds, in an array that fits the combinations of a unit."""
        model = self.model
        a, b = model.item_variable[item].tolist()
        start, sizes = int(model.item_first[item]), [int(model.domains[v]) for v in (a, b) if v >= 0]
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
        return added.reshape([int(model.domains[v]) if i in axes else 1 for i, v in enumerate(unit)])

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
        model = self.model
        scope = range(int(model.scope_start[f]), int(model.scope_start[f + 1]))
        chosen: list[Values] = []
        for s in scope:
            v = int(model.scope[s])
            if v in unit:
                shape = [1] * len(unit)
                shape[unit.index(v)] = -1
                chosen.append(np.arange(model.domains[v]).reshape(shape))
            elif self.values[v] < 0:
                return None
            else:
                chosen.append(self.values[v : v + 1].reshape([1] * len(unit)))
        if f < model.dense:
            offsets = sum(x * int(model.stride[s]) for s, x in zip(scope, chosen, strict=True))
            return model.cost[int(model.table_start[f]) + offsets]
        state, total = np.zeros([1] * len(unit), dtype=np.int64), np.zeros([1] * len(unit))
        for s, x in zip(scope, chosen, strict=True):
            transition = int(model.stride[s]) + state * int(model.domains[model.scope[s]]) + x
            total = total + model.cost[model.first_step + transition]
            state = model.following[transition].astype(np.int64)
        return total

    def _cells(self, item: int) -> tuple[int, int]:
        """Return the first cell that an item occupies, and the cell after the last one; 0 and 0 for none."""
        index = 0
        for v in self.model.item_variable[item].tolist():
            if v >= 0:
                if self.values[v] < 0:
                    return 0, 0
                index = index * int(self.model.domains[v]) + int(self.values[v])
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
