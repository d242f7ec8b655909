"""Global cost functions as factors that add up to them.

Most count something along their scope, so they become automata whose state is the count (or the sum so far); a function
of each value's number of occurrences becomes one automaton a value. Costs are whole numbers of some unit; None forbids.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from dmcmc.formats.global_functions.costs import GAPS, Cost, Costs, comparison, weighted, within
from dmcmc.formats.global_functions.signatures import SIGNATURES
from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.errors import ProblemError, ResourceError

_SMALL = 1024  # entries of an automaton that becomes a table at once
_MOST_WORK = 2**20  # entries or steps that one function may need before automata are merged
_HARD = np.iinfo(np.int64).min


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
    for field in SIGNATURES[keyword]:
        if field.kind in ("lists", "each") and len(arguments[field.name]) != len(scope):
            raise ProblemError(f"{field.name}: {len(arguments[field.name])} for {len(scope)} variables")
    passes = len(scope) if keyword == "salldiff" and arguments["metric"] != "var" else 1
    if keyword in ("salldiff", "salldiffdp", "walldiff") and passes == 1:
        passes = max(shape)
    if passes * sum(shape) > _MOST_WORK or (len(scope) == 2 and prod(shape) > _MOST_WORK):
        raise ResourceError("takes too many steps for domains of this size")
    return _Builder(tuple(scope), tuple(shape), arguments, costs, name).build(keyword)


class _Builder:
    """Holds what every kind of function needs."""

    def __init__(
        self, scope: tuple[int, ...], shape: tuple[int, ...], arguments: Mapping[str, Any], costs: Costs, name: str
    ) -> None:
        self.scope, self.shape, self.arguments, self.costs, self.name = scope, shape, arguments, costs, name
        self.cost: int = arguments.get("cost", 0)

    def build(self, keyword: str) -> list[Factor]:
        """Return the factors."""
        a = self.arguments
        match keyword:
            case "salldiff" | "salldiffdp" if a["metric"] == "var":
                return self.occurrences({v: self.violation("lin", 0, 1) for v in self.values()})
            case "salldiff" | "salldiffdp":
                return self.pairs(self.cost)
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
            case "clique" | "knapsack" | "knapsackp":
                return [self.limited(keyword)]
            case "wregular" | "sregular" | "sregulardp":
                return [self.regular(keyword)]
        return [self.arithmetic(keyword)]

    def values(self) -> range:
        """Return all values of the largest domain."""
        return range(max(self.shape))

    def indices(self) -> list[list[int]]:
        """Return each variable's values as weights."""
        return [list(range(size)) for size in self.shape]

    def charge(self, metric: str, gap: int) -> Cost:
        """Return what a violation costs."""
        if gap <= 0:
            return 0
        return self.cost * {"hard": 1, "lin": gap, "quad": gap * gap}[metric]

    def violation(self, metric: str, low: int, high: int) -> Callable[[int], Cost]:
        """Return the cost of a number that should lie between two bounds."""
        return lambda n: self.charge(metric, max(low - n, n - high, 0))

    def bounded(self) -> dict[int, Callable[[int], Cost]]:
        """Return the cost of each bounded value's number of occurrences."""
        functions: dict[int, Callable[[int], Cost]] = {}
        for value, low, high, *weights in self.arguments["bounds"]:
            if value in functions:
                raise ProblemError(f"value {value} has bounds twice")
            if weights:
                functions[value] = weighted(low, high, *weights)
            else:
                metric = self.arguments["metric"]
                functions[value] = self.violation("lin" if metric in ("dec", "var") else metric, low, high)
        return functions

    def occurrences(self, functions: Mapping[int, Callable[[int], Cost]]) -> list[Factor]:
        """Return Σ over values of a function of how often each is taken."""
        return [self.among([[value]], function) for value, function in functions.items()]

    def among(self, values: Sequence[Sequence[int]], function: Callable[[int], Cost]) -> Factor:
        """Return a function of how many variables take one of some values."""
        chosen = {value for (value,) in values}
        return self.tally([[int(x in chosen) for x in range(size)] for size in self.shape], function)

    def tally(self, weights: Sequence[Sequence[int]], function: Callable[[int], Cost]) -> Factor:
        """Return a function of the sum of the weights of the values taken."""
        offset = sum(w[0] for w in weights if len(set(w)) == 1)
        varying = [i for i, w in enumerate(weights) if len(set(w)) > 1]
        if not varying:
            return self.constant(function(offset))
        last = len(varying) - 1

        def step(position: int, total: Any, value: int) -> tuple[Hashable, int | float | None]:
            reached = total + weights[varying[position]][value]
            return (reached, 0) if position < last else (0, self.costs.utility(function(reached)))

        return self.automaton(varying, offset, step)

    def automaton(self, positions: Sequence[int], start: Hashable, step: Any) -> Factor:
        """Return an automaton over some of the scope, as a table where that is small."""
        shape = [self.shape[i] for i in positions]
        factor: Factor = unroll([self.scope[i] for i in positions], shape, start, step, name=self.name)
        return Factor(factor.scope, factor.table, self.name) if prod(shape) <= _SMALL else factor

    def constant(self, cost: Cost) -> Factor:
        utility = self.costs.utility(cost)
        return Factor.of((), np.array(-np.inf if utility is None else utility), name=self.name)

    def pairs(self, cost: int) -> list[Factor]:
        """Return a cost for each two variables that are equal."""
        worth = self.costs.utility(cost)
        return [
            self.table((i, j), [[worth if x == y else 0 for y in range(self.shape[j])] for x in range(self.shape[i])])
            for i, j in combinations(range(len(self.scope)), 2)
        ]

    def table(self, positions: Sequence[int], worth: Sequence[Sequence[int | float | None]]) -> Factor:
        """Return a table over two variables of the scope."""
        whole = all(u is None or isinstance(u, int) for row in worth for u in row)
        hard = _HARD if whole else -np.inf
        entries = np.array([[hard if u is None else u for u in row] for row in worth])
        return Factor.of([self.scope[i] for i in positions], entries, name=self.name)

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
            weights = []
            for pairs, size in zip(a["weightedvalues"], self.shape, strict=True):
                weight: Counter[int] = Counter()
                for value, w in pairs:
                    weight[value] += w
                weights.append([weight[x] for x in range(size)])
        return self.tally(weights, lambda total: 0 if total >= a["capacity"] else None)

    def regular(self, keyword: str) -> Factor:
        """Return the least cost of a run that accepts the values; the state is what each state of the file costs."""
        a = self.arguments
        soft = keyword != "wregular"
        starts = [(q, 0) for (q,) in a["starts"]] if soft else a["starts"]
        ends = {q: 0 for (q,) in a["ends"]} if soft else dict(a["ends"])
        edges = [(q, v, r, 0) for q, v, r in a["transitions"]] if soft else a["transitions"]
        for q in (*(q for q, _ in starts), *ends, *(q for e in edges for q in (e[0], e[2]))):
            if not 0 <= q < a["nb_states"]:
                raise ProblemError(f"state {q} does not exist; there are 0 to {a['nb_states'] - 1}")
        leaving: dict[int, list[tuple[int, int, int]]] = {}
        for q, v, r, cost in edges:
            leaving.setdefault(q, []).append((v, r, cost))
        last = len(self.scope) - 1

        def step(position: int, reached: Any, value: int) -> tuple[Hashable, int | float | None]:
            best: dict[int, int] = {}
            for q, cost in reached:
                for v, r, more in leaving.get(q, ()):
                    if v == value or soft:
                        total = cost + more + (0 if v == value else self.cost)
                        best[r] = min(best.get(r, total), total)
            if position == last:
                finals = [cost + ends[q] for q, cost in best.items() if q in ends]
                return 0, self.costs.utility(min(finals) if finals else None)
            if not best:
                return (), None
            # What all have paid is paid now, so that states that differ by that alone are one.
            paid = min(best.values())
            return tuple(sorted((q, cost - paid) for q, cost in best.items())), self._plain(paid)

        first: dict[int, int] = {}
        for q, cost in starts:
            first[q] = min(first.get(q, cost), cost)
        return self.automaton(range(len(self.scope)), tuple(sorted(first.items())), step)

    def _plain(self, cost: int) -> int | float:
        """Return a part of a cost as a utility."""
        return -cost if self.costs.unit == 1 else (0 - cost) / self.costs.unit

    def arithmetic(self, keyword: str) -> Factor:
        """Return a comparison of two variables' values."""
        if len(self.scope) != 2:
            raise ProblemError(f"compares 2 variables, not {len(self.scope)}")
        a = self.arguments
        if keyword == "disj":
            costs = [
                [0 if x >= y + a["y"] or y >= x + a["x"] else a["penalty"] for y in range(self.shape[1])]
                for x in range(self.shape[0])
            ]
        else:
            gap = GAPS[keyword]
            costs = [
                [within(gap(x, y, a["constant"]), a["delta"], self.costs.unit) for y in range(self.shape[1])]
                for x in range(self.shape[0])
            ]
        return self.table((0, 1), [[self.costs.utility(cost) for cost in row] for row in costs])
