"""Tables for CP-SAT, and cliques of values in conflict.

Cost functions given by tables, sums or automata, in a CP-SAT model.

Hard tables over two variables that allow most pairs of values become sets of literals [x_v = a] of which at most one is
true (``conflict_cliques.py``).

Another table becomes clauses over the literals, with one Boolean per level of cost, if most of its allowed tuples cost
least; a literal for each allowed tuple if these are few; and otherwise a table constraint with the cost in the last
column. An automaton without costs becomes an automaton constraint; one with costs becomes a chain of table constraints
with a variable for each state.

Cover the pairs of values that exclude each other by cliques: sets of values of which at most one can be chosen.

A hard table over two variables forbids pairs of values. As clauses, such pairs have a weak linear relaxation: it allows
half of each of three values that exclude each other. The conflict graph has the values as nodes and the excluded pairs
as edges. One inequality for each of its cliques does not have this weakness (Padberg, *Mathematical Programming* 5,
1973). The meetings of a person give a clique for each time slot. The cover is found greedily, within cliques of the
graph of variables.

CP-SAT's process imports this file; it imports no other module of dmcmc, so that the process starts fast.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.contract import tuning
from dmcmc.samplers.cp_sat.cost_model import CpSatModel
from dmcmc.samplers.external import problem_arrays
from dmcmc.samplers.external.problem_arrays import AutomatonLayer

_Mask = NDArray[np.bool_]
_Nodes = NDArray[np.int64]


def clique_cover(conflicts: Mapping[tuple[int, int], _Mask]) -> list[list[tuple[int, int]]]:
    """Return cliques that contain each excluded pair of values of two variables.

    Parameters
    ----------
    conflicts : mapping of (int, int) to (values, values) bool
        For pairs of variables u < v, which pairs of values exclude each other.

    Returns
    -------
    list of list of (int, int)
        Each clique as pairs of a variable and a value.
    """
    uncovered = {pair: mask.copy() for pair, mask in conflicts.items()}
    cliques: list[list[tuple[int, int]]] = []
    for variables in _variable_cliques(conflicts):
        cliques += _LocalGraph(variables, conflicts, uncovered).cover()
    for (u, v), mask in uncovered.items():
        for a in np.flatnonzero(mask.any(axis=1)).tolist():
            cliques.append([(u, a), *((v, b) for b in np.flatnonzero(mask[a]).tolist())])
    return cliques


def _variable_cliques(conflicts: Mapping[tuple[int, int], _Mask]) -> list[list[int]]:
    """Return cliques of variables, of which any two have conflicts, that contain all pairs; the largest come first.

    A clique grows by the variable that has the most neighbours in common with it, as long as its values are few enough.
    """
    neighbours: dict[int, set[int]] = {}
    sizes: dict[int, int] = {}
    for (u, v), mask in conflicts.items():
        neighbours.setdefault(u, set()).add(v)
        neighbours.setdefault(v, set()).add(u)
        sizes[u], sizes[v] = mask.shape
    left = {*conflicts}
    found = []
    for u, v in sorted(conflicts):
        if (u, v) not in left:
            continue
        clique, common = [u, v], neighbours[u] & neighbours[v]
        total = sizes[u] + sizes[v]
        while common:
            best = max(sorted(common), key=lambda w: len(neighbours[w] & common))
            common &= neighbours[best]
            if total + sizes[best] <= tuning.MAX_CLIQUE_VALUES:
                clique.append(best)
                total += sizes[best]
        clique.sort()
        left -= {(a, b) for a in clique for b in clique}
        found += [clique] if total <= tuning.MAX_CLIQUE_VALUES else []
    return sorted(found, key=lambda clique: (-len(clique), clique))


class _LocalGraph:
    """The conflict graph of the values of some variables.

    Parameters
    ----------
    variables : list of int
        The variables, of which any two have conflicts.
    conflicts, uncovered : mapping of (int, int) to (values, values) bool
        The excluded pairs, and those that are in no clique yet; the latter are changed.
    """

    def __init__(
        self, variables: list[int], conflicts: Mapping[tuple[int, int], _Mask], uncovered: dict[tuple[int, int], _Mask]
    ) -> None:
        pairs = [(i, j) for i in range(len(variables)) for j in range(i + 1, len(variables))]
        self._uncovered, self._pairs, self._variables = uncovered, pairs, variables
        sizes = [0] * len(variables)
        for i, j in pairs:
            sizes[i], sizes[j] = conflicts[variables[i], variables[j]].shape
        self._first = np.cumsum([0, *sizes])
        self._of = np.repeat(np.arange(len(variables)), sizes)
        self._adjacent: _Mask = self._of[:, None] == self._of[None, :]
        self._left: _Mask = np.zeros(self._adjacent.shape, dtype=bool)
        for i, j in pairs:
            rows, columns = self._span(i), self._span(j)
            for matrix, source in ((self._adjacent, conflicts), (self._left, uncovered)):
                mask = source[variables[i], variables[j]]
                matrix[rows, columns], matrix[columns, rows] = mask, mask.T
        np.fill_diagonal(self._adjacent, False)

    def cover(self) -> list[list[tuple[int, int]]]:
        """Return cliques that contain all pairs that are in no clique yet, and mark these pairs."""
        cliques: list[list[tuple[int, int]]] = []
        for node in range(len(self._of)):
            while (left := np.flatnonzero(self._left[node])).size:
                clique = self._maximal_clique(node, int(left[0]))
                self._left[np.ix_(clique, clique)] = False
                cliques.append(self._as_values(clique))
        for i, j in self._pairs:
            self._uncovered[self._variables[i], self._variables[j]][:] = False
        return cliques

    def _maximal_clique(self, first: int, second: int) -> _Nodes:
        """Return a maximal clique with two adjacent nodes; candidates with many neighbours among them come first."""
        candidates = np.flatnonzero(self._adjacent[first] & self._adjacent[second])
        among = self._adjacent[np.ix_(candidates, candidates)]
        free = np.ones(len(candidates), dtype=bool)
        chosen = []
        for i in np.argsort(-among.sum(axis=1), kind="stable").tolist():
            if free[i]:
                chosen.append(i)
                free &= among[i]
        return np.array([first, second, *candidates[chosen].tolist()], dtype=np.int64)

    def _span(self, i: int) -> slice:
        """Return the nodes of a variable, given by its position."""
        return slice(int(self._first[i]), int(self._first[i + 1]))

    def _as_values(self, nodes: _Nodes) -> list[tuple[int, int]]:
        """Return nodes as pairs of a variable and a value."""
        positions = self._of[nodes]
        values = nodes - self._first[positions]
        return [(self._variables[i], a) for i, a in zip(positions.tolist(), values.tolist(), strict=True)]


_Array = NDArray[Any]


def add_cost_functions(model: CpSatModel, arrays: dict[str, _Array]) -> None:
    """Add all cost functions of a problem but its global constraints.

    Parameters
    ----------
    model : CpSatModel
        A model without constraints.
    arrays : dict of ndarray
        The arrays of ``CostProblem.save``.
    """
    tables = problem_arrays.tables(arrays)
    for scope, cost in tables:
        if len(scope) == 1:
            model.variables.allow(scope[0], cost < model.top)
    conflicts = _conflicts(model, tables)
    _add_conflicts(model, conflicts)
    for scope, cost in tables:
        if len(scope) == 1:
            _add_unary(model, scope[0], cost)
        elif tuple(sorted(scope)) not in conflicts or not _is_conflict(cost, model.top):
            tuples = np.stack(np.unravel_index(np.arange(cost.size), tuple(arrays["domains"][scope])), axis=1)
            _add_table(model, scope, tuples, cost)
    for scope, tuples, cost in problem_arrays.listed(arrays):
        _add_listed(model, scope, tuples, cost)
    for terms, minimum in problem_arrays.linear(arrays):
        _add_linear(model, terms, minimum)
    for variables, layers in problem_arrays.automata(arrays):
        _add_automaton(model, variables, layers)


def _conflicts(model: CpSatModel, tables: Sequence[tuple[list[int], _Array]]) -> dict[tuple[int, int], _Array]:
    """Return for pairs of variables the pairs of values that hard tables exclude, if these are a minority."""
    found: dict[tuple[int, int], _Array] = {}
    for scope, cost in tables:
        if len(scope) == 2 and _is_conflict(cost, model.top):
            u, v = scope
            mask = (cost >= model.top).reshape(model.variables.sizes[u], model.variables.sizes[v])
            pair, mask = ((u, v), mask) if u < v else ((v, u), mask.T)
            found[pair] = found[pair] | mask if pair in found else mask.copy()
    for pair, mask in found.items():
        for axis, v in enumerate(pair):
            allowed = np.zeros(model.variables.sizes[v], dtype=bool)
            allowed[model.variables.allowed[v]] = True
            mask &= allowed[:, None] if axis == 0 else allowed
    return found


def _add_conflicts(model: CpSatModel, conflicts: dict[tuple[int, int], _Array]) -> None:
    """State that excluded pairs of values exclude each other."""
    for clique in clique_cover(conflicts):
        model.cp.add_at_most_one(model.variables.literals(v)[a] for v, a in clique)
        model.has_cliques |= len(clique) > 2


def _add_unary(model: CpSatModel, v: int, cost: _Array) -> None:
    """Add a cost function of one variable: a linear term if its costs are linear, otherwise a term per value."""
    allowed = model.variables.allowed[v]
    increments = {(cost[b] - cost[a]) / (b - a) for a, b in pairwise(allowed)}
    if len(increments) == 1 and len(allowed) > 2 and (increment := increments.pop()) == int(increment):
        model.cost.constant += int(cost[allowed[0]]) - int(increment) * allowed[0]
        model.cost.terms.append((int(increment), model.variables.x(v)))
    else:
        model.cost.terms += [(int(cost[a]), model.variables.literals(v)[a]) for a in allowed if cost[a]]


def _add_table(model: CpSatModel, scope: list[int], tuples: _Array, cost: _Array) -> None:
    """Add a cost function given by all its tuples."""
    allowed = cost < model.top
    if not allowed.any():
        model.cp.add_bool_or([])
        return
    least = int(cost[allowed].min())
    if len(scope) == 2 and np.count_nonzero(allowed) <= tuning.LITERAL_TUPLES * sum(
        model.variables.sizes[v] for v in scope
    ):
        _add_selection(model, scope, tuples[allowed], cost[allowed])
        return
    if np.count_nonzero(cost[allowed] > least) > tuning.MAJORITY_SHARE * np.count_nonzero(allowed):
        _add_cost_column(model, [model.variables.x(v) for v in scope], tuples[allowed], cost[allowed])
        return
    model.cost.constant += least
    if (cost[allowed] == least).all() and 2 * np.count_nonzero(allowed) <= cost.size:
        model.cp.add_allowed_assignments([model.variables.x(v) for v in scope], tuples[allowed].tolist())
    else:
        dearer = cost > least
        _add_levels(model, scope, tuples[dearer], np.where(allowed, cost - least, model.top)[dearer])


def _add_listed(model: CpSatModel, scope: list[int], tuples: _Array, cost: _Array) -> None:
    """Add a cost function given by tuples, and the cost of all others at the end of ``cost``."""
    default, listed = int(cost[-1]), cost[:-1]
    allowed = listed < model.top
    if default >= model.top:
        if allowed.any():
            _add_cost_column(model, [model.variables.x(v) for v in scope], tuples[allowed], listed[allowed])
        else:
            model.cp.add_bool_or([])
        return
    model.cost.constant += default
    higher, lower = listed > default, listed < default
    _add_levels(model, scope, tuples[higher], np.where(allowed, listed - default, model.top)[higher])
    for values, saved in zip(tuples[lower].tolist(), (listed - default)[lower].tolist(), strict=True):
        selected = model.cp.new_bool_var("")
        for v, a in zip(scope, values, strict=True):
            model.cp.add_implication(selected, model.variables.literals(v)[a])
        model.cost.terms.append((saved, selected))


def _add_selection(model: CpSatModel, scope: list[int], tuples: _Array, cost: _Array) -> None:
    """Add a literal for each allowed tuple; a value is chosen if and only if one of its tuples is.

    The linear relaxation of these equations is the convex hull of the tuples.
    """
    literals = [[model.cp.new_bool_var("") for _ in tuples], [model.variables.literals(v) for v in scope]]
    selected, of_values = literals
    for i, values in enumerate(of_values):
        for a, literal in enumerate(values):
            chosen = [selected[t] for t in np.flatnonzero(tuples[:, i] == a).tolist()]
            model.cp.add(sum(chosen) == literal)
    model.cost.constant += int(cost.min())
    model.cost.terms += [
        (extra, literal) for extra, literal in zip((cost - cost.min()).tolist(), selected, strict=True) if extra
    ]


def _add_levels(model: CpSatModel, scope: list[int], tuples: _Array, extra: _Array) -> None:
    """Add extra costs of some tuples: one Boolean per level of cost, implied by each tuple of the level."""
    levels: dict[int, Any] = {}
    literals = [model.variables.literals(v) for v in scope]
    for values, cost in zip(tuples.tolist(), extra.tolist(), strict=True):
        clause = [literals[i][a].negated() for i, a in enumerate(values)]
        if cost < model.top:
            if cost not in levels:
                levels[cost] = model.cp.new_bool_var("")
            clause.append(levels[cost])
        model.cp.add_bool_or(clause)
    if len(levels) > 1:
        model.cp.add_at_most_one(levels.values())
    model.cost.terms += levels.items()


def _add_cost_column(model: CpSatModel, variables: list[Any], tuples: _Array, cost: _Array) -> None:
    """Add a table constraint over the allowed tuples, with a column for their costs unless these are equal."""
    if (cost == cost[0]).all():
        model.cost.constant += int(cost[0])
        model.cp.add_allowed_assignments(variables, tuples.tolist())
        return
    total = model.cp.new_int_var_from_domain(model.variables.domain(np.unique(cost).tolist()), "")
    model.cp.add_allowed_assignments([*variables, total], np.column_stack([tuples, cost]).tolist())
    model.cost.terms.append((1, total))


def _add_linear(model: CpSatModel, terms: _Array, minimum: int) -> None:
    """Add the constraint that the sum of the weights of selected values is at least a minimum."""
    weights: dict[int, dict[int, int]] = defaultdict(dict)
    for v, a, weight in terms.tolist():
        weights[v][a] = weight
    total: list[Any] = []
    for v, by_value in weights.items():
        increment = by_value.get(1, 0)
        if by_value.get(0, 0) == 0 and all(
            by_value.get(a, 0) == increment * a for a in range(model.variables.sizes[v])
        ):
            total.append(increment * model.variables.x(v))
        else:
            total += [weight * model.variables.literals(v)[a] for a, weight in by_value.items() if weight]
    model.cp.add(sum(total) >= minimum)


def _add_automaton(model: CpSatModel, scope: list[int], layers: list[AutomatonLayer]) -> None:
    """Add an automaton, given by the next states and the costs of its transitions for each variable."""
    if not any(cost[cost < model.top].any() for _, cost in layers):
        _add_regular(model, scope, layers)
        return
    before: Any = None
    for position, (v, (following, cost)) in enumerate(zip(scope, layers, strict=True)):
        state, value = np.nonzero(cost < model.top)
        variables, columns = [model.variables.x(v)], [value]
        if before is not None:
            variables, columns = [before, *variables], [state, *columns]
        if position < len(layers) - 1:
            before = model.cp.new_int_var(0, len(layers[position + 1][0]) - 1, "")
            variables.append(before)
            columns.append(following[state, value])
        if not state.size:
            model.cp.add_bool_or([])
            return
        _add_cost_column(model, variables, np.column_stack(columns), cost[state, value])


def _add_regular(model: CpSatModel, scope: list[int], layers: list[AutomatonLayer]) -> None:
    """Add an automaton without costs; its states are numbered through all layers."""
    first = np.cumsum([0, *(len(following) for following, _ in layers)]).tolist()
    transitions: list[tuple[int, int, int]] = []
    for position, (following, cost) in enumerate(layers):
        state, value = np.nonzero(cost < model.top)
        target = following[state, value] if position < len(layers) - 1 else np.zeros_like(state)
        transitions += zip(
            (first[position] + state).tolist(), value.tolist(), (first[position + 1] + target).tolist(), strict=True
        )
    if transitions:
        model.cp.add_automaton([model.variables.x(v) for v in scope], 0, [first[-1]], transitions)
    else:
        model.cp.add_bool_or([])


def _is_conflict(cost: _Array, top: int) -> bool:
    """Return whether a table excludes a minority of its tuples, and all others cost nothing."""
    excluded = cost >= top
    return bool(0 < 2 * np.count_nonzero(excluded) < cost.size and not cost[~excluded].any())
