"""The functions of CP-SAT's search process (``dmcmc.samplers.external.worker``): build a model, and search it.

The process prints ``solution`` and the values of all variables, ``bound`` and a lower bound on the cost, and
``complete`` when the search has proven its result.

A table becomes clauses over the literals [x_v = a], with one Boolean per level of cost, if most of its allowed tuples
cost least, and otherwise a table constraint with the cost in the last column. An automaton without costs becomes an
automaton constraint; one with costs becomes a chain of table constraints with a variable for each state.
"""

from collections import defaultdict
from collections.abc import Iterator
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-6  # CP-SAT's bound is an integer in floating point
_DENSE_PART = 0.5  # part of the allowed tuples that cost more than the least, from which on a cost column is used

_Array = NDArray[Any]


def prepare() -> None:
    """Import CP-SAT."""
    import ortools.sat.python.cp_model  # noqa: F401


def search(job: dict[str, Any], arrays: dict[str, _Array]) -> None:
    """Search one problem and print what is found.

    Parameters
    ----------
    job : dict
        ``top``: the cost to beat; ``seconds``: the time limit; ``workers``: number of workers; ``hint``: an assignment,
        or None.
    arrays : dict of ndarray
        The arrays of ``CostProblem.save``.
    """
    from ortools.sat.python import cp_model

    model = _Model(cp_model, arrays["domains"].tolist())
    model.add_problem(arrays)
    hint = job["hint"]
    # With a hint, assignments that are as good as the known one are allowed: the hint is a first solution.
    model.finish(job["top"] if hint is not None else job["top"] - 1, hint)
    arrays.clear()

    class Solutions(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            print("solution", *(self.value(x) for x in model.x), flush=True)

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = job["workers"]
    solver.parameters.random_seed = 1
    solver.parameters.max_time_in_seconds = job["seconds"]
    solver.best_bound_callback = lambda bound: print("bound", floor(bound + _ROUNDING), flush=True)
    status = solver.solve(model.model, Solutions())
    if status in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
        print("complete")


class _Model:
    """A CP-SAT model of a cost problem.

    Attributes
    ----------
    model : CpModel
        The model.
    x : list of IntVar
        The variables.
    """

    def __init__(self, cp_model: Any, domains: list[int]) -> None:
        self.model, self._domain = cp_model.CpModel(), cp_model.Domain
        self.x = [
            self.model.new_bool_var("") if size == 2 else self.model.new_int_var(0, size - 1, "") for size in domains
        ]
        self._domains = domains
        self._literals: list[list[Any] | None] = [None] * len(domains)
        self._objective: list[Any] = []
        self._constant = 0

    def literals(self, v: int) -> list[Any]:
        """Return the literals [x_v = a] of a variable's values; they are made at the first use."""
        known = self._literals[v]
        if known is None:
            x = self.x[v]
            if self._domains[v] == 2:
                known = [x.negated(), x]
            else:
                known = [self.model.new_bool_var("") for _ in range(self._domains[v])]
                self.model.add_exactly_one(known)
                for a, literal in enumerate(known):
                    self.model.add(x == a).only_enforce_if(literal)
                    self.model.add(x != a).only_enforce_if(literal.negated())
            self._literals[v] = known
        return known

    def add_problem(self, arrays: dict[str, _Array]) -> None:
        """Add all cost functions and constraints of a problem."""
        domains, top = arrays["domains"], int(arrays["top"])
        for scope, cost in zip(
            _split(arrays["scope"], arrays["arity"]), _split(arrays["cost"], arrays["size"]), strict=True
        ):
            if scope.size == 1:
                self._add_unary(int(scope[0]), cost, top)
            else:
                tuples = np.stack(np.unravel_index(np.arange(cost.size), tuple(domains[scope])), axis=1)
                self._add_table(scope.tolist(), tuples, cost, top)
        arity, tuples_of = arrays["listed_arity"], arrays["listed_tuples"]
        for scope, values, cost in zip(
            _split(arrays["listed_scope"], arity),
            _split(arrays["listed_value"], tuples_of * arity),
            _split(arrays["listed_cost"], tuples_of + 1),
            strict=True,
        ):
            self._add_listed(scope.tolist(), values.reshape(-1, scope.size), cost, top)
        for terms, minimum in zip(_split(arrays["term"], arrays["terms"]), arrays["minimum"].tolist(), strict=True):
            self._add_linear(terms, minimum)
        for variables, layers in _automata(arrays, domains):
            self._add_automaton(variables, layers, top)

    def finish(self, max_cost: int, hint: list[int] | None) -> None:
        """Add the objective, an upper bound on the cost, and the assignment from which the search starts."""
        cost = sum(self._objective) + self._constant
        if self._objective:
            self.model.add(cost <= max_cost)
            self.model.minimize(cost)
        elif self._constant > max_cost:
            self.model.add_bool_or([])
        if hint is not None:
            for v, value in enumerate(hint):
                self.model.add_hint(self.x[v], value)

    def _add_unary(self, v: int, cost: _Array, top: int) -> None:
        """Add a cost function of one variable: a linear term if its costs are linear, otherwise a term per value."""
        allowed = np.flatnonzero(cost < top)
        if allowed.size < cost.size:
            self.model.add_linear_expression_in_domain(self.x[v], self._domain.from_values(allowed.tolist()))
        if not cost[allowed].any():
            return
        slope = int(cost[1] - cost[0]) if cost.size > 1 else 0
        if allowed.size == cost.size and slope >= 0 and (np.diff(cost) == slope).all():
            self._constant += int(cost[0])
            self._objective.append(slope * self.x[v])
        else:
            self._objective += [int(cost[a]) * self.literals(v)[a] for a in allowed.tolist() if cost[a]]

    def _add_table(self, scope: list[int], tuples: _Array, cost: _Array, top: int) -> None:
        """Add a cost function given by all its tuples."""
        allowed = cost < top
        if not allowed.any():
            self.model.add_bool_or([])
            return
        least = int(cost[allowed].min())
        if np.count_nonzero(cost[allowed] > least) > _DENSE_PART * np.count_nonzero(allowed):
            self._add_cost_column([self.x[v] for v in scope], tuples[allowed], cost[allowed])
            return
        self._constant += least
        if (cost[allowed] == least).all() and 2 * np.count_nonzero(allowed) <= cost.size:
            self.model.add_allowed_assignments([self.x[v] for v in scope], tuples[allowed].tolist())
        else:
            dearer = cost > least
            self._add_levels(scope, tuples[dearer], np.where(allowed, cost - least, top)[dearer], top)

    def _add_listed(self, scope: list[int], tuples: _Array, cost: _Array, top: int) -> None:
        """Add a cost function given by tuples, and the cost of all others at the end of ``cost``."""
        default, listed = int(cost[-1]), cost[:-1]
        allowed = listed < top
        if default >= top:
            if allowed.any():
                self._add_cost_column([self.x[v] for v in scope], tuples[allowed], listed[allowed])
            else:
                self.model.add_bool_or([])
            return
        self._constant += default
        higher, lower = listed > default, listed < default
        self._add_levels(scope, tuples[higher], np.where(allowed, listed - default, top)[higher], top)
        for values, saved in zip(tuples[lower].tolist(), (listed - default)[lower].tolist(), strict=True):
            selected = self.model.new_bool_var("")
            for v, a in zip(scope, values, strict=True):
                self.model.add_implication(selected, self.literals(v)[a])
            self._objective.append(saved * selected)

    def _add_levels(self, scope: list[int], tuples: _Array, extra: _Array, top: int) -> None:
        """Add extra costs of some tuples: one Boolean per level of cost, implied by each tuple of the level."""
        levels: dict[int, Any] = {}
        literals = [self.literals(v) for v in scope]
        for values, cost in zip(tuples.tolist(), extra.tolist(), strict=True):
            clause = [literals[i][a].negated() for i, a in enumerate(values)]
            if cost < top:
                if cost not in levels:
                    levels[cost] = self.model.new_bool_var("")
                clause.append(levels[cost])
            self.model.add_bool_or(clause)
        if len(levels) > 1:
            self.model.add_at_most_one(levels.values())
        self._objective += [cost * level for cost, level in levels.items()]

    def _add_cost_column(self, variables: list[Any], tuples: _Array, cost: _Array) -> None:
        """Add a table constraint over the allowed tuples, with a column for their costs unless these are equal."""
        if (cost == cost[0]).all():
            self._constant += int(cost[0])
            self.model.add_allowed_assignments(variables, tuples.tolist())
            return
        total = self.model.new_int_var_from_domain(self._domain.from_values(np.unique(cost).tolist()), "")
        self.model.add_allowed_assignments([*variables, total], np.column_stack([tuples, cost]).tolist())
        self._objective.append(total)

    def _add_linear(self, terms: _Array, minimum: int) -> None:
        """Add the constraint that the sum of the weights of selected values is at least a minimum."""
        weights: dict[int, dict[int, int]] = defaultdict(dict)
        for v, a, weight in terms.tolist():
            weights[v][a] = weight
        total: list[Any] = []
        for v, by_value in weights.items():
            slope = by_value.get(1, 0)
            if by_value.get(0, 0) == 0 and all(by_value.get(a, 0) == slope * a for a in range(self._domains[v])):
                total.append(slope * self.x[v])
            else:
                total += [weight * self.literals(v)[a] for a, weight in by_value.items() if weight]
        self.model.add(sum(total) >= minimum)

    def _add_automaton(self, scope: list[int], layers: list[tuple[_Array, _Array]], top: int) -> None:
        """Add an automaton, given by the next states and the costs of its transitions for each variable."""
        if not any(cost[cost < top].any() for _, cost in layers):
            self._add_regular(scope, layers, top)
            return
        before: Any = None
        for position, (v, (following, cost)) in enumerate(zip(scope, layers, strict=True)):
            state, value = np.nonzero(cost < top)
            variables, columns = [self.x[v]], [value]
            if before is not None:
                variables, columns = [before, *variables], [state, *columns]
            if position < len(layers) - 1:
                before = self.model.new_int_var(0, len(layers[position + 1][0]) - 1, "")
                variables.append(before)
                columns.append(following[state, value])
            if not state.size:
                self.model.add_bool_or([])
                return
            self._add_cost_column(variables, np.column_stack(columns), cost[state, value])

    def _add_regular(self, scope: list[int], layers: list[tuple[_Array, _Array]], top: int) -> None:
        """Add an automaton without costs; its states are numbered through all layers."""
        first = np.cumsum([0, *(len(following) for following, _ in layers)]).tolist()
        transitions: list[tuple[int, int, int]] = []
        for position, (following, cost) in enumerate(layers):
            state, value = np.nonzero(cost < top)
            target = following[state, value] if position < len(layers) - 1 else np.zeros_like(state)
            transitions += zip(
                (first[position] + state).tolist(), value.tolist(), (first[position + 1] + target).tolist(), strict=True
            )
        if transitions:
            self.model.add_automaton([self.x[v] for v in scope], 0, [first[-1]], transitions)
        else:
            self.model.add_bool_or([])


def _automata(arrays: dict[str, _Array], domains: _Array) -> Iterator[tuple[list[int], list[tuple[_Array, _Array]]]]:
    """Yield the scope of each automaton, and the next states and the costs for each of its variables."""
    arity, scope = arrays["automaton_arity"], arrays["automaton_scope"]
    sizes = arrays["automaton_states"] * domains[scope]
    following = _split(arrays["automaton_following"], sizes)
    cost = _split(arrays["automaton_cost"], sizes)
    end = 0
    for n in arity.tolist():
        begin, end = end, end + n
        variables = scope[begin:end].tolist()
        yield (
            variables,
            [
                (f.reshape(-1, domains[v]), c.reshape(-1, domains[v]))
                for v, f, c in zip(variables, following[begin:end], cost[begin:end], strict=True)
            ],
        )


def _split(array: _Array, sizes: _Array) -> list[_Array]:
    """Return consecutive parts of an array with the given sizes."""
    return np.split(array, np.cumsum(sizes)[:-1]) if sizes.size else []
