"""The functions of CP-SAT's search process (``dmcmc.samplers.external.worker``): build a model, and search it.

The process prints ``solution`` and the values of all variables, ``bound`` and a lower bound on the cost, and
``complete`` when the search has proven its result.

Hard tables over two variables that allow most pairs of values become sets of literals [x_v = a] of which at most one
is true (``conflict_cliques.py``). Their linear relaxation is tight and is solved first (``linear_relaxation.py``): it
gives a bound, and the values with the smallest reduced costs, among which a first search looks for good assignments.

Another table becomes clauses over the literals, with one Boolean per level of cost, if most of its allowed tuples cost
least; a literal for each allowed tuple if these are few; and otherwise a table constraint with the cost in the last
column. An automaton without costs becomes an
automaton constraint; one with costs becomes a chain of table constraints with a variable for each state.

Hard constraints on intervals become intervals. Other global constraints become linear constraints on the loads of
their cells (``dmcmc.inference.constraints.cell_loads``); a convex penalty becomes linear inequalities.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise, permutations
from math import floor
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.cp_sat.conflict_cliques import clique_cover
from dmcmc.samplers.cp_sat.linear_relaxation import LinearRelaxation, solve_relaxation
from dmcmc.samplers.external import problem_arrays
from dmcmc.samplers.external.described_loads import codes_by_scope, implied_limits, never_shared
from dmcmc.samplers.external.problem_arrays import AutomatonLayer

_ROUNDING = 1e-6  # CP-SAT's bound is an integer in floating point
_DENSE_PART = 0.5  # part of the allowed tuples that cost more than the least, from which on a cost column is used

_RELAXATION_PART = 0.4  # part of the time limit that the linear relaxation may take
_PREFERRED_TIME_PART = 0.25  # part of the time after it for the search among the values that it prefers
_PREFERRED_PART = 0.1  # part of all values that this search may use
_MAX_LOAD_TERMS = 1 << 17  # terms of a cumulative constraint up to which it is also stated as a sum for each time
_FEW_TUPLES = 4  # tuples of a table per value of its variables, up to which each has a literal

_MAX_CLAUSES = 16  # values up to which the equality of two variables is stated by clauses, not by an equation

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

    variables = arrays["domains"].size
    model = _Model(cp_model, arrays["domains"].tolist())
    model.add_problem(arrays)
    hint = job["hint"]
    # With a hint, assignments that are as good as the known one are allowed: the hint is a first solution.
    unweighted = model.finish(job["top"] if hint is not None else job["top"] - 1, hint)
    arrays.clear()
    found: list[list[int]] = []

    class Solutions(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            found[:] = [[model.value(v, self.value) for v in range(variables)]]
            print("solution", *found[0], flush=True)

    def solver(seconds: float) -> Any:
        """Return a solver with a time limit."""
        made = cp_model.CpSolver()
        made.parameters.num_workers = job["workers"]
        made.parameters.random_seed = 1
        made.parameters.max_time_in_seconds = seconds
        # A tenth of the default: the first solution of schedules with 25,000 variables came 25 s earlier.
        made.parameters.probing_deterministic_time_limit = 0.1
        if unweighted:  # a core-guided search, which needs no linear relaxation
            made.parameters.optimize_with_core = True
            made.parameters.linearization_level = 0
        elif model.has_cliques:  # their relaxation is tight, and probing all literals takes longer than solving it
            made.parameters.linearization_level = 2
            made.parameters.cp_model_probing_level = 0
        return made

    until = perf_counter() + job["seconds"]
    if model.has_cliques and not unweighted:
        relaxation = solve_relaxation(model.model, _RELAXATION_PART * job["seconds"])
        if relaxation is not None:
            print("bound", relaxation.bound, flush=True)
            seconds = _PREFERRED_TIME_PART * (until - perf_counter())
            solver(seconds).solve(model.restricted(relaxation, hint), Solutions())
            if found:
                model.hint(found[0])
    final = solver(max(0.0, until - perf_counter()))
    final.best_bound_callback = lambda bound: print("bound", floor(bound + _ROUNDING), flush=True)
    status = final.solve(model.model, Solutions())
    if status in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
        print("complete")


class _Model:
    """A CP-SAT model of a cost problem.

    Attributes
    ----------
    model : CpModel
        The model.
    literals_of : list
        For each variable, the literals [x_v = a] of its values once they are needed; None before.
    has_cliques : bool
        Whether hard tables have become sets of literals of which at most one is true.
    codes : dict
        For the scope of each hard all-different constraint, the codes of the values by variable.
    """

    def __init__(self, cp_model: Any, domains: list[int]) -> None:
        self.model, self._domain, self._domains = cp_model.CpModel(), cp_model.Domain, domains
        self.literals_of: list[list[Any] | None] = [None] * len(domains)
        self.codes: dict[frozenset[int], dict[int, list[int]]] = {}
        self._allowed = [list(range(size)) for size in domains]
        self._integers: list[Any] = [None] * len(domains)
        self._never = self.model.new_constant(0)
        self._objective: list[tuple[int, Any]] = []
        self._constant = 0
        self._products: dict[tuple[int, int], list[list[Any]]] = {}
        # Literals and variables by what they mean: comparisons of two variables, whether two variables have the same
        # number, the number of a variable, and whether one of some literals is true.
        self._comparisons: dict[tuple[Any, ...], Any] = {}
        self._same: dict[tuple[Any, ...], Any] = {}
        self._numbers: dict[tuple[Any, ...], Any] = {}
        self._any: dict[tuple[int, ...], Any] = {}
        # Sets of literals (by their indices) with a literal that any of them is true, and with the largest number of
        # them that may be true.
        self.groups: dict[frozenset[int], Any] = {}
        self.has_cliques = False
        self.limits: list[tuple[frozenset[int], int]] = []

    def x(self, v: int) -> Any:
        """Return a variable as an integer; it is made at the first use."""
        known = self._integers[v]
        if known is None:
            known = self._integers[v] = self.model.new_int_var_from_domain(
                self._domain.from_values(self._allowed[v]), ""
            )
            self._link(v)
        return known

    def literals(self, v: int) -> list[Any]:
        """Return the literals [x_v = a] of a variable's values; they are made at the first use."""
        known = self.literals_of[v]
        if known is None:
            known = [self._never] * self._domains[v]
            if len(self._allowed[v]) == 2:
                one, other = self._allowed[v]
                known[other] = self.model.new_bool_var("")
                known[one] = known[other].negated()
            else:
                for a in self._allowed[v]:
                    known[a] = self.model.new_bool_var("")
                self.model.add_exactly_one(known[a] for a in self._allowed[v])
            self.literals_of[v] = known
            self._link(v)
        return known

    def _link(self, v: int) -> None:
        """Connect a variable's integer and literals if there are both."""
        x, literals = self._integers[v], self.literals_of[v]
        if x is None or literals is None:
            return
        for a in self._allowed[v]:
            self.model.add(x == a).only_enforce_if(literals[a])
            self.model.add(x != a).only_enforce_if(literals[a].negated())

    def value(self, v: int, value_of: Callable[[Any], int]) -> int:
        """Return the value of a variable in a solution."""
        if self._integers[v] is not None:
            return value_of(self._integers[v])
        literals = self.literals_of[v]
        if literals is None:
            return self._allowed[v][0]
        return next(a for a in self._allowed[v] if value_of(literals[a]))

    def products(self, u: int, v: int) -> list[list[Any]]:
        """Return the literals [x_u = a and x_v = b]."""
        known = self._products.get((u, v))
        if known is None:
            first, second = self.literals(u), self.literals(v)
            known = [[self.model.new_bool_var("") for _ in second] for _ in first]
            for literal, row in zip(first, known, strict=True):
                self.model.add(sum(row) == literal)
            for literal, column in zip(second, zip(*known, strict=True), strict=True):
                self.model.add(sum(column) == literal)
            self._products[u, v] = known
        return known

    def number(self, v: int, numbers: list[int]) -> Any:
        """Return the number of a variable's value as an affine expression of one variable."""
        increment = numbers[1] - numbers[0] if len(numbers) > 1 else 0
        if all(number == numbers[0] + increment * a for a, number in enumerate(numbers)):
            return increment * self.x(v) + numbers[0]
        key = (v, tuple(numbers))
        if key not in self._numbers:
            number = self.model.new_int_var_from_domain(self._domain.from_values(sorted(set(numbers))), "")
            self.model.add(number == sum(n * literal for n, literal in zip(numbers, self.literals(v), strict=True)))
            self._numbers[key] = number
        return self._numbers[key]

    def at_most(self, variables: tuple[int, int], numbers: tuple[list[int], list[int]], distance: int) -> Any:
        """Return a literal that implies that the first number + ``distance`` ≤ the second number."""
        key = (variables, tuple(map(tuple, numbers)), distance)
        if key not in self._comparisons:
            literal = self.model.new_bool_var("")
            first, second = (self.number(v, n) for v, n in zip(variables, numbers, strict=True))
            self.model.add(first + distance <= second).only_enforce_if(literal)
            self._comparisons[key] = literal
        return self._comparisons[key]

    def same_number(self, variables: tuple[int, int], numbers: tuple[list[int], list[int]]) -> Any:
        """Return a literal that implies that the values of two variables have the same number."""
        key = (variables, tuple(map(tuple, numbers)))
        if key in self._same:
            return self._same[key]
        same = self._same[key] = self.model.new_bool_var("")
        if max(map(len, numbers)) > _MAX_CLAUSES:
            first, second = (self.number(v, own) for v, own in zip(variables, numbers, strict=True))
            self.model.add(first == second).only_enforce_if(same)
            return same
        literals = [defaultdict[int, list[Any]](list), defaultdict[int, list[Any]](list)]
        for v, own, by_number in zip(variables, numbers, literals, strict=True):
            for number, literal in zip(own, self.literals(v), strict=True):
                by_number[number].append(literal)
        for one, other in (literals, literals[::-1]):
            for number, present in one.items():
                for literal in present:
                    self.model.add_bool_or(same.negated(), literal.negated(), *other.get(number, []))
        return same

    def overlap(self, one: tuple[int, list[int], int], other: tuple[int, list[int], int]) -> Any:
        """Return a variable that is at least the time for which two intervals overlap; it is made once.

        An interval is given by the variable of its start, the times of this variable's values, and its duration. If the
        overlap is less than both durations, it is the time from the start of one to the end of the other.
        """
        key = tuple((v, tuple(times), duration) for v, times, duration in (one, other))
        if key not in self._numbers:
            most = min(one[2], other[2])
            found = self._numbers[key] = self.model.new_int_var(0, most, "")
            ways = [self.model.new_bool_var("") for _ in range(3)]
            for way, (first, second) in zip(ways, ((one, other), (other, one)), strict=False):
                end = self.number(first[0], first[1]) + first[2]
                self.model.add(found >= end - self.number(second[0], second[1])).only_enforce_if(way)
            self.model.add(found >= most).only_enforce_if(ways[2])
            self.model.add_bool_or(ways)
        return self._numbers[key]

    def any_of(self, literals: list[Any]) -> Any:
        """Return a literal that is true if and only if one of some literals is; it is made once."""
        key = tuple(sorted({literal.index for literal in literals}))
        if len(key) <= 1:
            return literals[0] if literals else self._never
        if key not in self._any:
            found = self._any[key] = self.model.new_bool_var("")
            self.model.add_bool_or(found.negated(), *literals)
            for literal in literals:
                self.model.add_implication(literal, found)
        return self._any[key]

    def all_of(self, literals: list[Any]) -> Any:
        """Return a literal that is true if and only if all of some literals are; it is made once."""
        return self.any_of([literal.negated() for literal in literals]).negated()

    def restrict(self, expression: Any, values: list[int]) -> None:
        """Allow only some values of a linear expression."""
        if isinstance(expression, int):
            if expression not in values:
                self.model.add_bool_or([])
        else:
            self.model.add_linear_expression_in_domain(expression, self._domain.from_values(values))

    def charge(self, degree: Any, cost: int | None) -> None:
        """Add the cost of a degree of violation, or forbid positive degrees."""
        if cost is None:
            self.model.add(degree <= 0)
        elif isinstance(degree, int):
            self._constant += cost * degree
        else:
            self._objective.append((cost, degree))

    def charge_terms(self, terms: list[tuple[int, Any]], cost: int) -> None:
        """Add the cost of a weighted sum of literals."""
        self._objective += [(cost * weight, literal) for weight, literal in terms]

    def add_problem(self, arrays: dict[str, _Array]) -> None:
        """Add all cost functions and constraints of a problem."""
        domains, top = arrays["domains"], int(arrays["top"])
        tables = problem_arrays.tables(arrays)
        for scope, cost in tables:
            if len(scope) == 1:
                self.allow(scope[0], cost, top)
        conflicts = self._conflicts(tables, top)
        self._add_conflicts(conflicts)
        for scope, cost in tables:
            if len(scope) == 1:
                self._add_unary(scope[0], cost)
            elif tuple(sorted(scope)) not in conflicts or not _is_conflict(cost, top):
                tuples = np.stack(np.unravel_index(np.arange(cost.size), tuple(domains[scope])), axis=1)
                self._add_table(scope, tuples, cost, top)
        for scope, tuples, cost in problem_arrays.listed(arrays):
            self._add_listed(scope, tuples, cost, top)
        for terms, minimum in problem_arrays.linear(arrays):
            self._add_linear(terms, minimum)
        for variables, layers in problem_arrays.automata(arrays):
            self._add_automaton(variables, layers, top)
        constraints = problem_arrays.constraints(arrays)
        self.codes = codes_by_scope(constraints)
        for given in constraints:
            _ADDED[given["kind"]](self, given)
        for groups, most in implied_limits(self.groups, self.limits):
            self.model.add(sum(self.groups[group] for group in groups) <= most)

    def finish(self, max_cost: int, hint: list[int] | None) -> bool:
        """Add the objective, an upper bound on the cost, and the assignment from which the search starts.

        Returns
        -------
        bool
            Whether all costs are equal, so that the problem is an unweighted one.
        """
        cost = sum(unit * term for unit, term in self._objective) + self._constant
        if self._objective:
            self.model.add(cost <= max_cost)
            self.model.minimize(cost)
        elif self._constant > max_cost:
            self.model.add_bool_or([])
        self.hint(hint or [])
        return len({unit for unit, _ in self._objective}) == 1

    def hint(self, values: list[int]) -> None:
        """Set the assignment from which the search starts; an empty one is none."""
        self.model.clear_hints()
        for v, value in enumerate(values):
            if self._integers[v] is not None:
                self.model.add_hint(self._integers[v], value)
            for a, literal in enumerate(self.literals_of[v] or ()):
                if a in self._allowed[v] and not (len(self._allowed[v]) == 2 and a == self._allowed[v][0]):
                    self.model.add_hint(literal, value == a)

    def restricted(self, relaxation: LinearRelaxation, hint: list[int] | None) -> Any:
        """Return the model with only those values that a linear relaxation uses, or that cost least in addition.

        The values of the hint stay possible. Good assignments are found much sooner among few values (relaxation
        enforced neighbourhood search: Berthold, *Computational Optimization and Applications* 58, 2014).
        """
        literals = [
            (v, a, literal)
            for v, own in enumerate(self.literals_of)
            if own is not None and len(self._allowed[v]) > 2
            for a, literal in enumerate(own)
            if a in self._allowed[v]
        ]
        indices = [literal.index for _, _, literal in literals]
        reduced = relaxation.reduced_costs[indices]
        kept = (relaxation.values[indices] > 0) | (reduced <= np.quantile(reduced, _PREFERRED_PART))
        model = self.model.clone()
        for (v, a, literal), keep in zip(literals, kept.tolist(), strict=True):
            if not keep and (hint is None or hint[v] != a):
                model.add_bool_and(model.get_bool_var_from_proto_index(literal.index).negated())
        return model

    def _conflicts(self, tables: Sequence[tuple[list[int], _Array]], top: int) -> dict[tuple[int, int], _Array]:
        """Return for pairs of variables the pairs of values that hard tables exclude, if these are a minority."""
        found: dict[tuple[int, int], _Array] = {}
        for scope, cost in tables:
            if len(scope) == 2 and _is_conflict(cost, top):
                u, v = scope
                mask = (cost >= top).reshape(self._domains[u], self._domains[v])
                pair, mask = ((u, v), mask) if u < v else ((v, u), mask.T)
                found[pair] = found[pair] | mask if pair in found else mask.copy()
        for pair, mask in found.items():
            for axis, v in enumerate(pair):
                allowed = np.zeros(self._domains[v], dtype=bool)
                allowed[self._allowed[v]] = True
                mask &= allowed[:, None] if axis == 0 else allowed
        return found

    def _add_conflicts(self, conflicts: dict[tuple[int, int], _Array]) -> None:
        """State that excluded pairs of values exclude each other."""
        for clique in clique_cover(conflicts):
            self.model.add_at_most_one(self.literals(v)[a] for v, a in clique)
            self.has_cliques |= len(clique) > 2

    def allow(self, v: int, cost: _Array, top: int) -> None:
        """Remove the values that a cost function of one variable forbids; to be called before all other methods."""
        self._allowed[v] = [a for a in self._allowed[v] if cost[a] < top]
        if not self._allowed[v]:
            self._allowed[v] = [0]
            self.model.add_bool_or([])

    def _add_unary(self, v: int, cost: _Array) -> None:
        """Add a cost function of one variable: a linear term if its costs are linear, otherwise a term per value."""
        allowed = self._allowed[v]
        increments = {(cost[b] - cost[a]) / (b - a) for a, b in pairwise(allowed)}
        if len(increments) == 1 and len(allowed) > 2 and (increment := increments.pop()) == int(increment):
            self._constant += int(cost[allowed[0]]) - int(increment) * allowed[0]
            self._objective.append((int(increment), self.x(v)))
        else:
            self._objective += [(int(cost[a]), self.literals(v)[a]) for a in allowed if cost[a]]

    def _add_table(self, scope: list[int], tuples: _Array, cost: _Array, top: int) -> None:
        """Add a cost function given by all its tuples."""
        allowed = cost < top
        if not allowed.any():
            self.model.add_bool_or([])
            return
        least = int(cost[allowed].min())
        if len(scope) == 2 and np.count_nonzero(allowed) <= _FEW_TUPLES * sum(self._domains[v] for v in scope):
            self._add_selection(scope, tuples[allowed], cost[allowed])
            return
        if np.count_nonzero(cost[allowed] > least) > _DENSE_PART * np.count_nonzero(allowed):
            self._add_cost_column([self.x(v) for v in scope], tuples[allowed], cost[allowed])
            return
        self._constant += least
        if (cost[allowed] == least).all() and 2 * np.count_nonzero(allowed) <= cost.size:
            self.model.add_allowed_assignments([self.x(v) for v in scope], tuples[allowed].tolist())
        else:
            dearer = cost > least
            self._add_levels(scope, tuples[dearer], np.where(allowed, cost - least, top)[dearer], top)

    def _add_listed(self, scope: list[int], tuples: _Array, cost: _Array, top: int) -> None:
        """Add a cost function given by tuples, and the cost of all others at the end of ``cost``."""
        default, listed = int(cost[-1]), cost[:-1]
        allowed = listed < top
        if default >= top:
            if allowed.any():
                self._add_cost_column([self.x(v) for v in scope], tuples[allowed], listed[allowed])
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
            self._objective.append((saved, selected))

    def _add_selection(self, scope: list[int], tuples: _Array, cost: _Array) -> None:
        """Add a literal for each allowed tuple; a value is chosen if and only if one of its tuples is.

        The linear relaxation of these equations is the convex hull of the tuples.
        """
        literals = [[self.model.new_bool_var("") for _ in tuples], [self.literals(v) for v in scope]]
        selected, of_values = literals
        for i, values in enumerate(of_values):
            for a, literal in enumerate(values):
                chosen = [selected[t] for t in np.flatnonzero(tuples[:, i] == a).tolist()]
                self.model.add(sum(chosen) == literal)
        self._constant += int(cost.min())
        self._objective += [
            (extra, literal) for extra, literal in zip((cost - cost.min()).tolist(), selected, strict=True) if extra
        ]

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
        self._objective += levels.items()

    def _add_cost_column(self, variables: list[Any], tuples: _Array, cost: _Array) -> None:
        """Add a table constraint over the allowed tuples, with a column for their costs unless these are equal."""
        if (cost == cost[0]).all():
            self._constant += int(cost[0])
            self.model.add_allowed_assignments(variables, tuples.tolist())
            return
        total = self.model.new_int_var_from_domain(self._domain.from_values(np.unique(cost).tolist()), "")
        self.model.add_allowed_assignments([*variables, total], np.column_stack([tuples, cost]).tolist())
        self._objective.append((1, total))

    def _add_linear(self, terms: _Array, minimum: int) -> None:
        """Add the constraint that the sum of the weights of selected values is at least a minimum."""
        weights: dict[int, dict[int, int]] = defaultdict(dict)
        for v, a, weight in terms.tolist():
            weights[v][a] = weight
        total: list[Any] = []
        for v, by_value in weights.items():
            increment = by_value.get(1, 0)
            if by_value.get(0, 0) == 0 and all(by_value.get(a, 0) == increment * a for a in range(self._domains[v])):
                total.append(increment * self.x(v))
            else:
                total += [weight * self.literals(v)[a] for a, weight in by_value.items() if weight]
        self.model.add(sum(total) >= minimum)

    def _add_automaton(self, scope: list[int], layers: list[AutomatonLayer], top: int) -> None:
        """Add an automaton, given by the next states and the costs of its transitions for each variable."""
        if not any(cost[cost < top].any() for _, cost in layers):
            self._add_regular(scope, layers, top)
            return
        before: Any = None
        for position, (v, (following, cost)) in enumerate(zip(scope, layers, strict=True)):
            state, value = np.nonzero(cost < top)
            variables, columns = [self.x(v)], [value]
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

    def _add_regular(self, scope: list[int], layers: list[AutomatonLayer], top: int) -> None:
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
            self.model.add_automaton([self.x(v) for v in scope], 0, [first[-1]], transitions)
        else:
            self.model.add_bool_or([])


def _is_conflict(cost: _Array, top: int) -> bool:
    """Return whether a table excludes a minority of its tuples, and all others cost nothing."""
    excluded = cost >= top
    return bool(0 < 2 * np.count_nonzero(excluded) < cost.size and not cost[~excluded].any())


def _intervals(model: _Model, given: dict[str, Any]) -> list[Any]:
    """Return intervals of time with variable starts."""
    return [
        model.model.new_fixed_size_interval_var(model.number(v, times), duration, "")
        for v, times, duration in zip(given["scope"], given["times"], given["durations"], strict=False)
    ]


def _add_no_overlap(model: _Model, given: dict[str, Any]) -> None:
    """Add a no-overlap constraint.

    A soft one becomes an overlap for each pair. A hard one becomes intervals; with places, an optional interval per
    place, and a cumulative constraint for all.
    """
    if given["cost"] is not None:
        for i, j in combinations(range(len(given["durations"])), 2):
            parts = [(given["scope"][k], given["times"][k], given["durations"][k]) for k in (i, j)]
            model.charge(model.overlap(parts[0], parts[1]), given["cost"])
        return
    if given["places"] is None:
        model.model.add_no_overlap(_intervals(model, given))
        return
    n, by_place = len(given["durations"]), defaultdict[int, list[Any]](list)
    for i, duration in enumerate(given["durations"]):
        start = model.number(given["scope"][i], given["times"][i])
        for place, literal in zip(given["places"][i], model.literals(given["scope"][n + i]), strict=True):
            interval = model.model.new_optional_fixed_size_interval_var(start, duration, literal, "")
            by_place[place].append(interval)
    for intervals in by_place.values():
        model.model.add_no_overlap(intervals)
    model.model.add_cumulative(_intervals(model, given), [1] * n, len(by_place))


def _add_cumulative(model: _Model, given: dict[str, Any]) -> None:
    """Add a hard cumulative constraint, and its sum at each time if the starts have literals and are few."""
    model.model.add_cumulative(_intervals(model, given), given["demands"], given["capacity"])
    items = list(zip(given["scope"], given["times"], given["durations"], given["demands"], strict=True))
    terms = sum(len(times) * duration for _, times, duration, _ in items)
    if terms > _MAX_LOAD_TERMS or any(model.literals_of[v] is None for v in given["scope"]):
        return
    loads = defaultdict[int, list[tuple[int, Any]]](list)
    for v, times, duration, demand in items:
        for time, literal in zip(times, model.literals(v), strict=True):
            for moment in range(time, time + duration):
                loads[moment].append((demand, literal))
    for load in loads.values():
        model.model.add(sum(demand * literal for demand, literal in load) <= given["capacity"])


def _add_adjacency(model: _Model, given: dict[str, Any]) -> None:
    """Add a Boolean for each ordered pair of intervals, which is true if the second starts at the end of the first."""
    scope, durations = given["scope"], given["durations"]
    times = given["times"]
    for i, j in permutations(range(len(scope)), 2):
        earlier = model.at_most((scope[j], scope[i]), (times[j], times[i]), 1 - durations[i])
        later = model.at_most((scope[i], scope[j]), (times[i], times[j]), durations[i] + 1)
        touch = model.model.new_bool_var("")
        model.model.add_bool_or(earlier, later, touch)
        model.charge(touch, given["cost"])


def _add_place_changes(model: _Model, given: dict[str, Any]) -> None:
    """Add a Boolean for each pair of intervals, which is true if they follow each other soon in different places."""
    n, scope, durations = len(given["durations"]), given["scope"], given["durations"]
    times = given["times"]
    for i, j in combinations(range(n), 2):
        same = model.same_number((scope[n + i], scope[n + j]), (given["places"][i], given["places"][j]))
        far = [
            model.at_most((scope[a], scope[b]), (times[a], times[b]), durations[a] + given["gap"] + 1)
            for a, b in ((i, j), (j, i))
        ]
        # Intervals that start together do not follow each other.
        together = model.same_number((scope[i], scope[j]), (times[i], times[j]))
        change = model.model.new_bool_var("")
        model.model.add_bool_or(*far, together, same, change)
        model.charge(change, given["cost"])


def _add_precedence(model: _Model, given: dict[str, Any]) -> None:
    """Add a linear constraint; if soft, its degree is a variable."""
    first, second = (model.number(v, n) for v, n in zip(given["scope"], given["numbers"], strict=True))
    if given["cost"] is None:
        model.model.add(first + given["distance"] <= second)
        return
    largest = max(given["numbers"][0]) + given["distance"] - min(given["numbers"][1])
    degree = model.model.new_int_var(0, max(0, largest), "")
    model.model.add(first + given["distance"] <= second + degree)
    model.charge(degree, given["cost"])


def _add_element(model: _Model, given: dict[str, Any]) -> None:
    """Add for each value of the index that the result equals the selected entry, unless the constraint is violated."""
    index, result, *entries = given["scope"]
    violated = model.model.new_bool_var("")
    for literal, entry in zip(model.literals(index), given["selected"], strict=True):
        codes = given["codes"][0], given["codes"][1 + entry]
        same = model.same_number((result, entries[entry]), codes)
        model.model.add_bool_or(literal.negated(), same, violated)
    model.charge(violated, given["cost"])


def _add_loads(model: _Model, given: dict[str, Any]) -> None:
    """Add a constraint that is a function of the loads of cells."""
    loads: list[list[tuple[int, Any]]] = [[] for _ in range(given["cells"])]
    largest = [0] * given["cells"]
    for item in given["items"]:
        reached = set[int]()
        for first, literal in _placed(model, given["scope"], item):
            cells = range(first, first + item["length"])
            reached.update(cells)
            for cell in cells:
                loads[cell].append((item["weight"], literal))
        for cell in reached:
            largest[cell] += item["weight"]
    if given["counts_runs"]:
        _add_runs(model, loads, given)
        return
    for load, most in zip(loads, largest, strict=True):
        penalty = given["penalty"][: most + 1]
        if any(penalty):
            _add_penalty(model, load, penalty, given["cost"])


def _placed(model: _Model, scope: list[int], item: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield the first cell of an item's range with the literal of the values that give it."""
    if len(item["positions"]) == 1:
        pairs = [(item["first"], model.literals(scope[item["positions"][0]]))]
    else:
        u, v = (scope[position] for position in item["positions"])
        pairs = list(zip(item["first"], model.products(u, v), strict=True))
    for firsts, literals in pairs:
        for first, literal in zip(firsts, literals, strict=True):
            if first >= 0:
                yield first, literal


def _add_penalty(model: _Model, load: list[tuple[int, Any]], penalty: list[int], cost: int | None) -> None:
    """Add the penalty of a load: allowed loads, inequalities if the penalty is convex, otherwise an element."""
    total = sum(weight * literal for weight, literal in load)
    if cost is None:
        allowed = [i for i, degree in enumerate(penalty) if degree <= 0]
        if allowed == [0, 1] and all(weight == 1 for weight, _ in load):
            model.model.add_at_most_one(literal for _, literal in load)
        else:
            model.restrict(total, allowed)
        if allowed == list(range(len(allowed))) and all(weight == 1 for weight, _ in load):
            model.limits.append((frozenset(literal.index for _, literal in load), len(allowed) - 1))
        return
    increments = [after - before for before, after in pairwise(penalty)]
    if len(set(increments)) <= 1:
        unit = increments[0] if increments else 0
        model.charge_terms([(unit * weight, literal) for weight, literal in load], cost)
        model.charge(penalty[0], cost)
        return
    degree = model.model.new_int_var(min(penalty), max(penalty), "")
    index = model.model.new_int_var(0, len(penalty) - 1, "")
    model.model.add(index == total)
    if increments == sorted(increments):
        for i, increment in enumerate(increments):
            if not i or increment > increments[i - 1]:
                model.model.add(degree >= penalty[i] + increment * (index - i))
    else:
        model.model.add_element(index, penalty, degree)
    model.charge(degree, cost)


def _add_runs(model: _Model, loads: list[list[tuple[int, Any]]], given: dict[str, Any]) -> None:
    """Add the penalty of the number of maximal runs of cells with a positive load.

    A cell ends a break if its load is positive, that of the cell before is 0, and that of an earlier one is positive
    (Bofill et al., JAIR 74, 2022). There is a run for each break, and one more if any load is positive.
    """
    cells = [[literal for _, literal in load] for load in loads]
    occupied = [model.any_of(literals) for literals in cells]
    for literals, literal in zip(cells, occupied, strict=True):
        if literals:
            model.groups[frozenset(x.index for x in literals)] = literal
    before = occupied[:1]
    for literal in occupied[1:]:
        before.append(model.any_of([before[-1], literal]))
    ends = [
        model.all_of([occupied[cell], occupied[cell - 1].negated(), before[cell - 2]])
        for cell in range(2, len(occupied))
    ]
    if never_shared(model.codes, given):  # implied
        model.model.add(sum(occupied) == len(given["items"]))
    penalty = given["penalty"]
    if len(penalty) > 1 and penalty[0] == penalty[1]:
        _add_penalty(model, [(1, end) for end in ends], penalty[1:], given["cost"])
    else:
        _add_penalty(model, [(1, literal) for literal in (*ends, before[-1])], penalty, given["cost"])


_ADDED: dict[str, Callable[[_Model, dict[str, Any]], None]] = {
    "no_overlap": _add_no_overlap,
    "cumulative": _add_cumulative,
    "adjacency": _add_adjacency,
    "place_changes": _add_place_changes,
    "precedence": _add_precedence,
    "element": _add_element,
    "loads": _add_loads,
}
