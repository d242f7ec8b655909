"""A problem in the flat arrays that the kernels of the constraint search read.

Global constraints whose degree is a function of loads of cells keep this form
(:mod:`dmcmc.inference.constraints.global_constraint`); all other factors are tables or automata of a factor graph.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import CellItem, CellLoads, GlobalConstraint
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.factor_graph import FactorGraph, build_graph
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.samplers.contract import tuning


class SearchModel(NamedTuple):
    """A problem in flat arrays. Costs are minimised: they are negated utilities.

    A *soft cost* is what assignments cost in addition to violations. A *degree* is a degree of violation.

    Attributes
    ----------
    graph : FactorGraph
        Tables and automata. Its ``data`` are costs, float64; inf forbids an entry.
    hard : (constraints,) bool
        Whether each constraint is hard.
    unit_cost : (constraints,) float64
        Soft cost per degree; 0 for a hard constraint.
    counts_runs : (constraints,) bool
        Whether the degree is ``penalty[number of runs]``, otherwise it is Σ ``width · penalty[load]`` over the cells.
    cell_start : (constraints + 1,) int64
        The cells of constraint c are ``cell_start[c]`` to ``cell_start[c + 1]`` − 1.
    cell_width : (cells,) int64
        How often each cell counts.
    penalty_start : (constraints,) int64
        Offset of each constraint's penalties in ``penalty``.
    penalty : (penalties,) int64
        Degrees.
    item_start : (constraints + 1,) int64
        The items of constraint c are ``item_start[c]`` to ``item_start[c + 1]`` − 1.
    item_constraint : (items,) int64
        The constraint of each item.
    item_variable : (items, 2) int64
        The one or two variables on whose values the cells depend; −1 for no second variable.
    item_first : (items,) int64
        Offset of the item's first cells in ``first``; values of the second variable change fastest.
    item_weight : (items,) int64
        What an item adds to the load of each of its cells.
    first, end : (combinations,) int64
        First cell for each combination of values, among all cells, and the cell after the last one; 0 and 0 for none.
    items_start, items : (n + 1,) and (entries,) int64
        The items of each variable (compressed sparse rows).
    value_start : (n + 1,) int64
        Offset of each variable's values in ``label``.
    label : (values,) int64
        Number of each value's label, equal for equal labels.
    value_of : (n, labels) int32, or (0, 0)
        The value of each variable with a label; −1 if it has none. Empty if it would be too large.
    partner : (n,) int64
        A variable with which the variable shares an item of two variables; −1 for none.
    """

    graph: FactorGraph
    hard: NDArray[np.bool_]
    unit_cost: NDArray[np.float64]
    counts_runs: NDArray[np.bool_]
    cell_start: NDArray[np.int64]
    cell_width: NDArray[np.int64]
    penalty_start: NDArray[np.int64]
    penalty: NDArray[np.int64]
    item_start: NDArray[np.int64]
    item_constraint: NDArray[np.int64]
    item_variable: NDArray[np.int64]
    item_first: NDArray[np.int64]
    item_weight: NDArray[np.int64]
    first: NDArray[np.int64]
    end: NDArray[np.int64]
    items_start: NDArray[np.int64]
    items: NDArray[np.int64]
    value_start: NDArray[np.int64]
    label: NDArray[np.int64]
    value_of: NDArray[np.int32]
    partner: NDArray[np.int64]

    @property
    def factors(self) -> int:
        """The number of tables and automata."""
        return self.graph.factors

    @property
    def constraints(self) -> int:
        """The number of constraints with cells."""
        return self.hard.size


def search_model(problem: Problem, stop: Deadline = NO_DEADLINE) -> SearchModel:
    """Return a problem in the flat arrays of the constraint search.

    Parameters
    ----------
    problem : Problem
        The problem. Constraints that have neither cells nor a small decomposition are left out.
    stop : Deadline
        When to give up with ``OutOfTime``.
    """
    loaded: list[tuple[GlobalConstraint, CellLoads]] = []
    others: list[Factor] = []
    for factor in problem.factors:
        stop.check()
        loads = factor.cell_loads() if isinstance(factor, GlobalConstraint) else None
        if loads is None or not isinstance(factor, GlobalConstraint):
            others.append(factor)
        else:
            loaded.append((factor, loads))
    graph = build_graph(replace(problem, factors=tuple(others)), stop)
    cost = graph.data.astype(np.float64)
    if graph.low.size:
        cost += graph.low
    np.negative(cost, out=cost)
    cost[graph.data == graph.forbidden_entry] = np.inf
    return SearchModel(
        graph=graph._replace(data=cost, low=np.zeros(0), forbidden_entry=np.float64(np.inf)),
        **_constraint_arrays(loaded),
        **_item_arrays(loaded, problem.domains),
        **_label_arrays(problem),
    )


def _constraint_arrays(loaded: Sequence[tuple[GlobalConstraint, CellLoads]]) -> dict[str, Any]:
    """Return the arrays with one entry per constraint, and the penalties."""
    sizes = [loads.penalty.size for _, loads in loaded]
    return {
        "hard": np.array([c.cost is None for c, _ in loaded], dtype=np.bool_),
        "unit_cost": np.array([0.0 if c.cost is None else float(c.cost) for c, _ in loaded]),
        "counts_runs": np.array([loads.counts_runs for _, loads in loaded], dtype=np.bool_),
        "cell_start": np.cumsum([0, *(loads.cells for _, loads in loaded)], dtype=np.int64),
        "cell_width": np.concatenate([np.zeros(0, dtype=np.int64), *(loads.width for _, loads in loaded)]),
        "penalty_start": np.cumsum([0, *sizes], dtype=np.int64)[:-1],
        "penalty": np.concatenate([np.zeros(0, dtype=np.int64), *(loads.penalty for _, loads in loaded)]),
        "item_start": np.cumsum([0, *(len(loads.items) for _, loads in loaded)], dtype=np.int64),
    }


def _item_arrays(loaded: Sequence[tuple[GlobalConstraint, CellLoads]], domains: NDArray[np.int64]) -> dict[str, Any]:
    """Return the arrays with one entry per item, and the items of each variable."""
    every: list[tuple[int, GlobalConstraint, CellItem]] = [
        (number, constraint, item) for number, (constraint, loads) in enumerate(loaded) for item in loads.items
    ]
    cells = np.cumsum([0, *(loads.cells for _, loads in loaded)])
    variables = np.full((len(every), 2), -1, dtype=np.int64)
    firsts, ends = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    partner = np.full(domains.size, -1, dtype=np.int64)
    for row, (number, constraint, item) in enumerate(every):
        scope = [constraint.scope[i] for i in item.positions]
        variables[row, : len(scope)] = scope
        is_none = item.first.reshape(-1) < 0
        for found, given in ((firsts, item.first), (ends, item.end)):
            found.append(np.where(is_none, 0, given.reshape(-1) + cells[number]))
        if len(scope) == 2:
            partner[scope[0]], partner[scope[1]] = scope[1], scope[0]
    flat_variables = variables.reshape(-1)
    order = np.argsort(flat_variables, kind="stable")
    order = order[flat_variables[order] >= 0]
    counts = np.bincount(flat_variables[order], minlength=domains.size)
    return {
        "item_constraint": np.array([number for number, _, _ in every], dtype=np.int64),
        "item_variable": variables,
        "item_first": np.cumsum([0, *(array.size for array in firsts[1:])], dtype=np.int64)[:-1],
        "item_weight": np.array([item.weight for _, _, item in every], dtype=np.int64),
        "first": np.concatenate(firsts),
        "end": np.concatenate(ends),
        "items_start": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "items": (order // 2).astype(np.int64),
        "partner": partner,
    }


def _label_arrays(problem: Problem) -> dict[str, Any]:
    """Return the numbers of the labels of all values, and the value of each variable with each label."""
    number: dict[Any, int] = {}
    labels = [
        number.setdefault(label, len(number))
        for size, names in zip(problem.domains.tolist(), problem.labels, strict=True)
        for label in (range(size) if names is None else names)
    ]
    start = np.concatenate([[0], np.cumsum(problem.domains)]).astype(np.int64)
    label = np.array(labels, dtype=np.int64)
    value_of = np.zeros((0, 0), dtype=np.int32)
    if problem.n_variables * len(number) <= tuning.MAX_COPIED_ENTRIES:
        value_of = np.full((problem.n_variables, len(number)), -1, dtype=np.int32)
        variable = np.repeat(np.arange(problem.n_variables), problem.domains)
        value_of[variable, label] = np.arange(label.size) - start[variable]
    return {"value_start": start, "label": label, "value_of": value_of}
