"""Global cost functions as factors that add up to them.

Most count something along their scope, so they become automata whose state is the count (or the sum so far); a function
of each value's number of occurrences becomes one automaton a value. Costs are whole numbers of some unit; None forbids.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

from dmcmc.formats.global_functions.builder import Builder
from dmcmc.formats.global_functions.costs import GAPS, Cost, Costs, comparison, within
from dmcmc.formats.global_functions.languages import parses, runs
from dmcmc.formats.global_functions.signatures import SIGNATURES, Field
from dmcmc.formats.global_functions.trees import spanning_tree
from dmcmc.formats.global_functions.two_lists import overlap, same
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.errors import ProblemError, ResourceError

_MOST_WORK = 2**20  # entries or steps that one function may need before automata are merged


def build(
    keyword: str, scope: Sequence[int], shape: Sequence[int], arguments: Mapping[str, Any], costs: Costs, name: str = ""
) -> list[Factor]:
    """Return factors whose sum is a global cost function.

    Parameters
    ----------
    keyword
        One of :data:`dmcmc.formats.global_functions.signatures.SIGNATURES`.
    scope, shape
        Variables, none twice, and their domain sizes.
    arguments
        By the names of the signature.

    Raises
    ------
    ProblemError
        For parameters that do not fit the scope.
    ResourceError
        If an automaton needs too many states.
    """
    if not scope:
        raise ProblemError("its scope is empty")
    arguments = dict(arguments)
    for field in SIGNATURES[keyword]:
        arguments[field.name] = _placed(field, arguments[field.name], scope)
        if field.kind in ("lists", "each") and len(arguments[field.name]) != len(scope):
            raise ProblemError(f"{field.name}: {len(arguments[field.name])} for {len(scope)} variables")
    passes = len(scope) if keyword in ("salldiff", "salldiffkp") and arguments["metric"] != "var" else 1
    if keyword in ("salldiff", "salldiffdp", "walldiff", "ssame", "wsame", "wsamegcc") and passes == 1:
        passes = max(shape)
    if passes * sum(shape) > _MOST_WORK or (len(scope) == 2 and prod(shape) > _MOST_WORK):
        raise ResourceError("takes too many steps for domains of this size")
    return _Functions(tuple(scope), tuple(shape), arguments, costs, name).build(keyword)


def _placed(field: Field, argument: Any, scope: Sequence[int]) -> Any:
    """Return a parameter with places in the scope where it names variables."""

    def place(variable: int) -> int:
        if variable not in scope:
            raise ProblemError(f"{field.name}: variable {variable} is not in its scope")
        return scope.index(variable)

    if field.kind == "variables":
        return [place(variable) for variable in argument]
    if field.kind == "list" and field.of.startswith("v"):
        return [[place(variable), *others] for variable, *others in argument]
    if field.kind == "groups":
        return [[[place(variable), *others] for variable, *others in group] for group in argument]
    return argument


class _Functions(Builder):
    """All kinds of functions by name."""

    def build(self, keyword: str) -> list[Factor]:
        """Return the factors."""
        a = self.arguments
        match keyword:
            case "salldiff" | "salldiffdp" if a["metric"] == "var":
                return self.occurrences({v: self.violation("lin", 0, 1) for v in self.values()})
            case "salldiff" | "salldiffdp":
                return self.pairs(self.cost)
            case "salldiffkp":
                return self.pairs(None)
            case "walldiff":
                return self.occurrences({v: self.violation(a["metric"], 0, 1) for v in self.values()})
            case "sgcc" if a["metric"] == "var":
                return self.cardinality()
            case "sgcc" | "sgccdp" | "wgcc":
                return self.occurrences(self.bounded())
            case "samong" | "samongdp":
                return [self.among(a["values"], self.violation("lin", a["min"], a["max"]))]
            case "wamong":
                return [self.among(a["values"], self.violation(a["metric"], a["min"], a["max"]))]
            case "wsum":
                gap = comparison(a["comparator"])
                return [self.tally(self.indices(), lambda total: self.charge(a["metric"], gap(total, a["to"])))]
            case "wvaramong" | "wvarsum":
                return [self.against_last(keyword)]
            case "clique" | "knapsack" | "knapsackp" | "knapsackv":
                return [self.limited(keyword)]
            case "knapsackc":
                return [self.limited("knapsackp"), *map(self.at_most_one, a["conflicts"])]
            case "wregular" | "sregular" | "sregulardp":
                return [self.automaton(range(len(self.scope)), *runs(keyword, len(self.scope), a, self.costs))]
            case "ssame" | "wsame" | "wsamegcc":
                return same(self, keyword)
            case "woverlap":
                return [overlap(self)]
            case "wdiverse" | "whdiverse" | "wtdiverse":
                away = [[int(x != v) for x in range(size)] for v, size in zip(a["values"], self.shape, strict=True)]
                return [self.tally(away, lambda n: 0 if n >= a["distance"] else None)]
            case "max" | "smaxdp":
                return [self.largest()]
            case "sgrammar" | "sgrammardp":
                return [Factor.of(self.scope, parses(self.shape, a, self.costs), name=self.name)]
            case "MST":
                return [self.automaton(range(len(self.scope)), *spanning_tree(self.shape))]
        return [self.arithmetic(keyword)]

    def indices(self) -> list[list[int]]:
        """Return each variable's values as weights."""
        return [list(range(size)) for size in self.shape]

    def occurrences(self, functions: Mapping[int, Callable[[int], Cost]]) -> list[Factor]:
        """Return Σ over values of a function of how often each is taken."""
        return [self.among([[value]], function) for value, function in functions.items()]

    def at_most_one(self, pairs: Sequence[Sequence[int]]) -> Factor:
        """Forbid that two of some variables have some values; a variable may have several of them."""
        chosen = [[int([i, x] in pairs) for x in range(size)] for i, size in enumerate(self.shape)]
        return self.tally(chosen, lambda total: 0 if total <= 1 else None)

    def pairs(self, cost: Cost) -> list[Factor]:
        """Return a cost for each two variables that are equal."""
        worth = self.costs.utility(cost)
        return [
            self.table((i, j), [[worth if x == y else 0 for y in range(self.shape[j])] for x in range(self.shape[i])])
            for i, j in combinations(range(len(self.scope)), 2)
        ]

    def cardinality(self) -> list[Factor]:
        """Return the number of variables to change until each value occurs as often as it should, times the cost."""
        bounds = {value: (low, high) for value, low, high in self.arguments["bounds"]}
        if len(bounds) < len(self.arguments["bounds"]):
            raise ProblemError("a value has bounds twice")
        places = {value: i for i, value in enumerate(bounds)}
        limits = list(bounds.values())
        last = len(self.scope) - 1
        open_ended = any(value not in bounds for value in self.values())
        if sum(low for low, _ in limits) > last + 1 or (not open_ended and sum(high for _, high in limits) <= last):
            return [self.constant(None)]  # no number of changes is enough

        def step(position: int, state: Any, value: int) -> tuple[Hashable, int | float | None]:
            counts, excess = list(state[0]), state[1]
            if value in places:
                low, high = limits[places[value]]
                counts[places[value]] += 1
                excess += counts[places[value]] > high
                counts[places[value]] = min(counts[places[value]], max(high, low))
            if position < last:
                return (tuple(counts), excess), 0
            shortage = sum(max(low - n, 0) for n, (low, _) in zip(counts, limits, strict=True))
            return 0, self.costs.utility(self.cost * max(shortage, excess))

        return [self.automaton(range(len(self.scope)), ((0,) * len(limits), 0), step)]

    def against_last(self, keyword: str) -> Factor:
        """Return that the count (or sum) over all variables but the last is compared with the last one's value."""
        last = len(self.scope) - 1
        chosen = {v for (v,) in self.arguments["values"]} if keyword == "wvaramong" else None
        gap = comparison("==" if chosen is not None else self.arguments["comparator"])

        def step(position: int, total: Any, value: int) -> tuple[Hashable, int | float | None]:
            if position < last:
                return total + (value if chosen is None else int(value in chosen)), 0
            return 0, self.costs.utility(self.charge("hard", gap(total, value)))

        return self.automaton(range(len(self.scope)), 0, step)

    def limited(self, keyword: str) -> Factor:
        """Return a bound on the sum of the weights of the values taken."""
        a = self.arguments
        if keyword == "clique":
            taken = [{value for (value,) in values} for values in a["values"]]
            weights = [[int(x in chosen) for x in range(size)] for chosen, size in zip(taken, self.shape, strict=True)]
            return self.tally(weights, lambda total: 0 if total <= a["rhs"] else None)
        if keyword == "knapsack":
            if max(self.shape) > 2:
                raise ProblemError("its variables have 2 values; knapsackp is for others")
            weights = [[w * x for x in range(size)] for w, size in zip(a["weights"], self.shape, strict=True)]
        else:
            listed = a["weightedvalues"]
            if keyword == "knapsackv":
                listed = [[pair for place, *pair in listed if place == i] for i in range(len(self.scope))]
            weights = []
            for pairs, size in zip(listed, self.shape, strict=True):
                weight: Counter[int] = Counter()
                for value, w in pairs:
                    weight[value] += w
                weights.append([weight[x] for x in range(size)])
        return self.tally(weights, lambda total: 0 if total >= a["capacity"] else None)

    def largest(self) -> Factor:
        """Return the largest of the costs that the values have."""
        a = self.arguments
        costs = {(place, value): cost for place, value, cost in a["tuples"]}
        last = len(self.scope) - 1

        def step(position: int, most: Any, value: int) -> tuple[Hashable, int | float | None]:
            cost = costs.get((position, value), a["defaultcost"])
            most = cost if most is None else max(most, cost)
            return (most, 0) if position < last else (0, self.costs.utility(most))

        return self.automaton(range(last + 1), None, step)

    def arithmetic(self, keyword: str) -> Factor:
        """Return a comparison of two variables' values."""
        if len(self.scope) != 2:
            raise ProblemError(f"compares 2 variables, not {len(self.scope)}")
        a = self.arguments

        def cost(x: int, y: int) -> Cost:
            if keyword not in ("disj", "sdisj"):
                return within(GAPS[keyword](x, y, a["constant"]), a["delta"], self.costs.unit)
            apart = x >= y + a["y"] or y >= x + a["x"]
            if keyword == "disj":
                return 0 if apart else int(a["penalty"])
            if x > a["xmax"] or y > a["ymax"] or (x < a["xmax"] and y < a["ymax"] and not apart):
                return None
            wx: int = a["wx"] if x == a["xmax"] else 0
            wy: int = a["wy"] if y == a["ymax"] else 0
            return wx + wy

        worth = [[self.costs.utility(cost(x, y)) for y in range(self.shape[1])] for x in range(self.shape[0])]
        return self.table((0, 1), worth)
