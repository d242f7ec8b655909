"""Express global cost functions as sums of factors.

A global cost function is given by a keyword and parameters instead of a table. Most of them count something along their
scope. They become deterministic automata that read the scope variable by variable and whose state is the count, or the
sum so far. A function of the number of occurrences of each value becomes one automaton per value. Costs are integers in
units of the last decimal place of the file; None is forbidden.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

from dmcmc.formats.global_functions.builder import GlobalFunctionBuilder
from dmcmc.formats.global_functions.costs import GAPS, Cost, CostScale, comparison_gap, gap_cost
from dmcmc.formats.global_functions.languages import automaton_for, parse_utilities
from dmcmc.formats.global_functions.signatures import SIGNATURES, ParameterSpec
from dmcmc.formats.global_functions.trees import spanning_tree
from dmcmc.formats.global_functions.two_lists import overlap, same
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.tuning import formats as tuning


def build(
    keyword: str,
    scope: Sequence[int],
    shape: Sequence[int],
    arguments: Mapping[str, Any],
    costs: CostScale,
    name: str = "",
) -> list[Factor]:
    """Return factors whose sum is a global cost function.

    Parameters
    ----------
    keyword
        Name of the function, from :data:`dmcmc.formats.global_functions.signatures.SIGNATURES`.
    scope, shape
        Distinct variables and their domain sizes.
    arguments
        Parameters by the names of the signature.
    costs
        Converts costs to utilities.
    name
        Name of the factors.

    Raises
    ------
    ProblemError
        If the parameters do not fit the scope.
    ResourceError
        If an automaton needs too many states.
    """
    if not scope:
        raise ProblemError("its scope is empty")
    arguments = dict(arguments)
    for field in SIGNATURES[keyword]:
        arguments[field.name] = _with_positions(field, arguments[field.name], scope)
        if field.kind in ("lists", "each") and len(arguments[field.name]) != len(scope):
            raise ProblemError(f"{field.name}: {len(arguments[field.name])} for {len(scope)} variables")
    if arguments.get("cost", 0) < 0:
        raise ProblemError("cost: is negative")
    _check_counts(keyword, arguments)
    # Number of automata or rows of pairs that are built: one per variable, one per value, or a single one.
    passes = len(scope) if keyword in ("salldiff", "salldiffkp") and arguments["metric"] != "var" else 1
    if keyword in ("salldiff", "salldiffdp", "walldiff", "ssame", "wsame", "wsamegcc") and passes == 1:
        passes = max(shape)
    if passes * sum(shape) > tuning.EXPANDED_ENTRIES or (len(scope) == 2 and prod(shape) > tuning.EXPANDED_ENTRIES):
        raise ResourceError("takes too many steps for domains of this size")
    return _FactorBuilder(tuple(scope), tuple(shape), arguments, costs, name).build(keyword)


def _check_counts(keyword: str, arguments: Mapping[str, Any]) -> None:
    """Raise ``ProblemError`` for bounds on a number of occurrences that are negative, or that allow no number.

    The functions whose keywords begin with ``w`` charge the distance from either bound, so that their bounds may cross.
    """
    bounds = [(low, high) for _, low, high, *_ in arguments.get("bounds", ())]
    if "min" in arguments:
        bounds.append((arguments["min"], arguments["max"]))
    for low, high in bounds:
        if min(low, high) < 0:
            raise ProblemError(f"a number of occurrences from {low} to {high}; it is never negative")
        if low > high and keyword.startswith("s"):
            raise ProblemError(f"a number of occurrences from {low} to {high}; no number satisfies that")


def _with_positions(field: ParameterSpec, argument: Any, scope: Sequence[int]) -> Any:
    """Return a parameter's value in which variables are replaced by their positions in the scope.

    ``field`` describes the parameter; other parameters are returned unchanged. Raises ``ProblemError`` for a variable
    outside the scope.
    """

    def position_of(v: int) -> int:
        if v not in scope:
            raise ProblemError(f"{field.name}: variable {v} is not in its scope")
        return scope.index(v)

    if field.kind == "variables":
        return [position_of(variable) for variable in argument]
    if field.kind == "list" and field.layout.startswith("v"):
        return [[position_of(variable), *others] for variable, *others in argument]
    if field.kind == "groups":
        return [[[position_of(variable), *others] for variable, *others in group] for group in argument]
    return argument


class _FactorBuilder(GlobalFunctionBuilder):
    """Builder of every global cost function by name.

    Methods that count define a function ``step``, which maps (position, state, value) to the next state of an automaton
    and a utility; None as utility is forbidden. The cost is charged at the last position, where the next state is
    always 0.
    """

    def build(self, keyword: str) -> list[Factor]:
        """Return the factors of the function with this name."""
        a = self.arguments
        match keyword:
            case "salldiff" | "salldiffdp" if a["metric"] == "var":
                return self.occurrences({v: self.range_cost("lin", 0, 1) for v in self.values()})
            case "salldiff" | "salldiffdp":
                return self.pairs(self.cost)
            case "salldiffkp":
                return self.pairs(None)
            case "walldiff":
                return self.occurrences({v: self.range_cost(a["metric"], 0, 1) for v in self.values()})
            case "sgcc" if a["metric"] == "var":
                return self.cardinality()
            case "sgcc" | "sgccdp" | "wgcc":
                return self.occurrences(self.occurrence_costs())
            case "samong" | "samongdp":
                return [self.among(a["values"], self.range_cost("lin", a["min"], a["max"]))]
            case "wamong":
                return [self.among(a["values"], self.range_cost(a["metric"], a["min"], a["max"]))]
            case "wsum":
                gap = comparison_gap(a["comparator"])
                return [
                    self.weighted_sum(
                        self.indices(), lambda total: self.violation_cost(a["metric"], gap(total, a["to"]))
                    )
                ]
            case "wvaramong" | "wvarsum":
                return [self.against_last(keyword)]
            case "clique" | "knapsack" | "knapsackp" | "knapsackv":
                return [self.capacity_bound(keyword)]
            case "knapsackc":
                return [self.capacity_bound("knapsackp"), *map(self.at_most_one, a["conflicts"])]
            case "wregular" | "sregular" | "sregulardp":
                return [self.automaton(range(len(self.scope)), *automaton_for(keyword, len(self.scope), a, self.costs))]
            case "ssame" | "wsame" | "wsamegcc":
                return same(self, keyword)
            case "woverlap":
                return [overlap(self)]
            case "wdiverse" | "whdiverse" | "wtdiverse":
                differs = [[int(x != v) for x in range(size)] for v, size in zip(a["values"], self.shape, strict=True)]
                return [self.weighted_sum(differs, lambda n: 0 if n >= a["distance"] else None)]
            case "max" | "smaxdp":
                return [self.maximum()]
            case "sgrammar" | "sgrammardp":
                return [Factor.of(self.scope, parse_utilities(self.shape, a, self.costs), name=self.name)]
            case "MST":
                return [self.automaton(range(len(self.scope)), *spanning_tree(self.shape))]
        return [self.arithmetic(keyword)]

    def indices(self) -> list[list[int]]:
        """Return each variable's values as weights."""
        return [list(range(size)) for size in self.shape]

    def occurrences(self, functions: Mapping[int, Callable[[int], Cost]]) -> list[Factor]:
        """Return one factor per value v, whose cost is ``functions[v]`` of the number of variables that take v."""
        return [self.among([[value]], function) for value, function in functions.items()]

    def at_most_one(self, pairs: Sequence[Sequence[int]]) -> Factor:
        """Return a factor that forbids that more than one variable takes a listed value.

        ``pairs`` lists the pairs [position, value].
        """
        is_listed = [[int([i, x] in pairs) for x in range(size)] for i, size in enumerate(self.shape)]
        return self.weighted_sum(is_listed, lambda total: 0 if total <= 1 else None)

    def pairs(self, cost: Cost) -> list[Factor]:
        """Return one factor per pair of variables that costs ``cost`` if they are equal."""
        utility = self.costs.utility(cost)
        return [
            self.table((i, j), [[utility if x == y else 0 for y in range(self.shape[j])] for x in range(self.shape[i])])
            for i, j in combinations(range(len(self.scope)), 2)
        ]

    def cardinality(self) -> list[Factor]:
        """Return the cost of the number of variables to change until each value occurs as often as it should.

        A state holds the number of occurrences of each value with bounds so far (capped where more makes no
        difference), and the number of surplus occurrences. One change can correct one surplus and one missing
        occurrence, so that the cost is ``cost`` · max(missing, surplus).
        """
        bounds = {value: (low, high) for value, low, high in self.arguments["bounds"]}
        if len(bounds) < len(self.arguments["bounds"]):
            raise ProblemError("a value has bounds twice")
        index_of = {value: i for i, value in enumerate(bounds)}
        limits = list(bounds.values())
        last = len(self.scope) - 1
        open_ended = any(value not in bounds for value in self.values())
        if sum(low for low, _ in limits) > last + 1 or (not open_ended and sum(high for _, high in limits) <= last):
            return [self.constant(None)]  # no number of changes satisfies the bounds

        def step(position: int, state: Any, value: int) -> tuple[Hashable, int | float | None]:
            counts, excess = list(state[0]), state[1]
            if value in index_of:
                low, high = limits[index_of[value]]
                counts[index_of[value]] += 1
                excess += counts[index_of[value]] > high
                counts[index_of[value]] = min(counts[index_of[value]], max(high, low))
            if position < last:
                return (tuple(counts), excess), 0
            shortage = sum(max(low - n, 0) for n, (low, _) in zip(counts, limits, strict=True))
            return 0, self.costs.utility(self.cost * max(shortage, excess))

        return [self.automaton(range(len(self.scope)), ((0,) * len(limits), 0), step)]

    def against_last(self, keyword: str) -> Factor:
        """Return a hard or constant-cost comparison of the other variables with the value of the last one.

        ``wvaramong`` compares the number of variables that take one of some values, ``wvarsum`` the sum of the values.
        A violated comparison costs ``cost``, whatever its size.
        """
        last = len(self.scope) - 1
        counted_values = {v for (v,) in self.arguments["values"]} if keyword == "wvaramong" else None
        gap = comparison_gap("==" if counted_values is not None else self.arguments["comparator"])

        def step(position: int, total: Any, value: int) -> tuple[Hashable, int | float | None]:
            if position < last:
                return total + (value if counted_values is None else int(value in counted_values)), 0
            return 0, self.costs.utility(self.violation_cost("hard", gap(total, value)))

        return self.automaton(range(len(self.scope)), 0, step)

    def capacity_bound(self, keyword: str) -> Factor:
        """Return a hard bound on the sum of the weights of the values taken (``clique`` and the knapsack functions).

        ``clique`` allows at most ``rhs`` listed values. The knapsack functions need a sum of weights of at least
        ``capacity``; they differ only in how the file lists the weights.
        """
        a = self.arguments
        if keyword == "clique":
            values_by_variable = [{value for (value,) in values} for values in a["values"]]
            weights = [
                [int(x in counted_values) for x in range(size)]
                for counted_values, size in zip(values_by_variable, self.shape, strict=True)
            ]
            return self.weighted_sum(weights, lambda total: 0 if total <= a["rhs"] else None)
        if keyword == "knapsack":
            if max(self.shape) > 2:
                raise ProblemError("its variables have 2 values; knapsackp is for others")
            weights = [[w * x for x in range(size)] for w, size in zip(a["weights"], self.shape, strict=True)]
        else:
            listed = a["weightedvalues"]
            if keyword == "knapsackv":
                listed = [[pair for variable, *pair in listed if variable == i] for i in range(len(self.scope))]
            weights = []
            for pairs, size in zip(listed, self.shape, strict=True):
                weight: Counter[int] = Counter()
                for value, w in pairs:
                    weight[value] += w
                weights.append([weight[x] for x in range(size)])
        return self.weighted_sum(weights, lambda total: 0 if total >= a["capacity"] else None)

    def maximum(self) -> Factor:
        """Return the largest of the costs of the values taken."""
        a = self.arguments
        costs = {(variable, value): cost for variable, value, cost in a["tuples"]}
        last = len(self.scope) - 1

        def step(position: int, largest_cost: Any, value: int) -> tuple[Hashable, int | float | None]:
            cost = costs.get((position, value), a["defaultcost"])
            largest_cost = cost if largest_cost is None else max(largest_cost, cost)
            return (largest_cost, 0) if position < last else (0, self.costs.utility(largest_cost))

        return self.automaton(range(last + 1), None, step)

    def arithmetic(self, keyword: str) -> Factor:
        """Return a comparison of the values of two variables, such as ``>=``, or one of ``disj`` and ``sdisj``.

        The values of ``disj`` and ``sdisj`` are the start times of two tasks, which must not overlap; the parameters
        ``x`` and ``y`` are their durations.
        """
        if len(self.scope) != 2:
            raise ProblemError(f"compares 2 variables, not {len(self.scope)}")
        a = self.arguments

        def cost(x: int, y: int) -> Cost:
            if keyword not in ("disj", "sdisj"):
                return gap_cost(GAPS[keyword](x, y, a["constant"]), a["delta"], self.costs.unit)
            apart = x >= y + a["y"] or y >= x + a["x"]
            if keyword == "disj":
                return 0 if apart else int(a["penalty"])
            if x > a["xmax"] or y > a["ymax"] or (x < a["xmax"] and y < a["ymax"] and not apart):
                return None
            wx: int = a["wx"] if x == a["xmax"] else 0
            wy: int = a["wy"] if y == a["ymax"] else 0
            return wx + wy

        utilities = [[self.costs.utility(cost(x, y)) for y in range(self.shape[1])] for x in range(self.shape[0])]
        return self.table((0, 1), utilities)
