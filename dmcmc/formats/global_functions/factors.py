"""The factors that stand for the global cost functions of toulbar2.

Express global cost functions as sums of factors.

A global cost function is given by a keyword and parameters instead of a table. Most of them count something along their
scope. They become deterministic automata that read the scope variable by variable and whose state is the count, or the
sum so far. A function of the number of occurrences of each value becomes one automaton per value. Costs are integers in
units of the last decimal place of the file; None is forbidden.

Costs of words in a language: cheapest runs of an automaton and cheapest parses by a grammar.

A *word* is an assignment of the scope, read in its order.

Cost functions of two lists of variables: whether one is a permutation of the other, and where they agree.

Automaton for the global constraint ``MST``: the values are parents, and these must form a spanning tree.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.formats.global_functions import builder
from dmcmc.inference.model.automaton import StepFunction
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.tuning import run as tuning

_MAX_PARSE_ENTRIES = 2**22  # limit for the number of words times the number of symbols: 32 MiB of int64 costs per span
_Spans = dict[int, NDArray[np.int64]]  # for each symbol, the costs of all words over some positions of the scope
_NO_PARSE = np.iinfo(np.int64).max // 4  # cost of a word without a parse; two of them can be added without overflow


def automaton_for(
    keyword: str, length: int, arguments: Mapping[str, Any], costs: builder.CostScale
) -> tuple[Hashable, StepFunction]:
    """Return the initial state and the step of an automaton that computes the cheapest run of the file's automaton.

    The file's automaton may be nondeterministic; the result is its subset construction with costs. A state of the new
    automaton is a sorted tuple of pairs: a state of the file's automaton, and the cost of reaching it. With the metric
    ``var`` a value may be replaced at a cost; with ``edit`` values may also be deleted and inserted. In the code, q and
    r are states of the file's automaton, and v is the value that labels a transition.

    Parameters
    ----------
    keyword
        ``wregular``: starts, ends and transitions have costs. ``sregular`` and ``sregulardp``: they have none, and
        edits cost the parameter ``cost`` each.
    length
        Number of variables of the scope.
    arguments
        Parameters of the function: records (state, cost) of ``starts`` and ``ends``, and (state, value, next state,
        cost) of ``transitions``; all without the cost unless the keyword is ``wregular``.
    costs
        Converts costs to utilities.

    Returns
    -------
    start, step
        ``step`` maps (position, state, value) to the next state and a utility; None as utility is forbidden.
    """
    a, is_unweighted, allows_edits = arguments, keyword != "wregular", arguments.get("metric") == "edit"
    edit_cost: int = a.get("cost", 0)
    starts = [(q, 0) for (q,) in a["starts"]] if is_unweighted else a["starts"]
    ends = {q: 0 for (q,) in a["ends"]} if is_unweighted else dict(a["ends"])
    edges = [(q, v, r, 0) for q, v, r in a["transitions"]] if is_unweighted else a["transitions"]
    for q in (*(q for q, _ in starts), *ends, *(q for e in edges for q in (e[0], e[2]))):
        if not 0 <= q < a["nb_states"]:
            raise ProblemError(f"state {q} does not exist; there are 0 to {a['nb_states'] - 1}")
    leaving: dict[int, list[tuple[int, int, int]]] = {}
    for q, v, r, cost in edges:
        leaving.setdefault(q, []).append((v, r, cost))

    def with_insertions(best: dict[int, int]) -> dict[int, int]:
        """Add the states that insertions reach, and lower the costs that insertions make cheaper."""
        queue = list(best) if allows_edits else []
        while queue:
            q = queue.pop()
            for _, r, _ in leaving.get(q, ()):
                if best[q] + edit_cost < best.get(r, best[q] + edit_cost + 1):
                    best[r] = best[q] + edit_cost
                    queue.append(r)
        return best

    def step(position: int, reached: Any, value: int) -> tuple[Hashable, int | float | None]:
        best: dict[int, int] = {}
        for q, cost in reached:
            for v, r, edge_cost in leaving.get(q, ()):
                if v == value or is_unweighted:
                    total = cost + edge_cost + (0 if v == value else edit_cost)
                    best[r] = min(best.get(r, total), total)
            if allows_edits:
                best[q] = min(best.get(q, cost + edit_cost), cost + edit_cost)
        best = with_insertions(best)
        if position == length - 1:
            finals = [cost + ends[q] for q, cost in best.items() if q in ends]
            return 0, costs.utility(min(finals) if finals else None)
        if not best:
            return (), None
        # Pay the common part of all costs now, so that states that differ only by it become equal.
        common = min(best.values())
        return tuple(sorted((q, cost - common) for q, cost in best.items())), _finite_utility(common, costs)

    initial: dict[int, int] = {}
    for q, cost in starts:
        initial[q] = min(initial.get(q, cost), cost)
    return tuple(sorted(with_insertions(initial).items())), step


def _finite_utility(cost: int, costs: builder.CostScale) -> int | float:
    """Return the utility of a cost that is never forbidden itself: −cost / unit.

    The step before the last charges only a part of the total cost, so the limit ``costs.top`` does not apply to it.
    """
    return -cost if costs.unit == 1 else (0 - cost) / costs.unit


def parse_utilities(shape: Sequence[int], arguments: Mapping[str, Any], costs: builder.CostScale) -> NDArray[Any]:
    """Return the utility of every word by its cheapest parse (CYK algorithm, for all words at once).

    With the metric ``var`` a value may be replaced at a cost. With ``weight`` rules have costs, and a word without a
    parse is forbidden.

    Parameters
    ----------
    shape
        Domain sizes of the scope: position i of a word has ``shape[i]`` possible values.
    arguments
        ``nb_symbols``, ``start`` (the symbol that derives a word), ``terminals`` with records (symbol, value), and
        ``non_terminals`` with records (symbol, left symbol, right symbol); each record ends with a cost for ``weight``.
    costs
        Converts costs to utilities.

    Returns
    -------
    ndarray of int64 or float64, one axis per position
        Utilities; the smallest int64 or −∞ is forbidden.
    """
    a, n, symbols = arguments, len(shape), arguments["nb_symbols"]
    if prod(shape) * max(1, symbols) > _MAX_PARSE_ENTRIES:
        raise ResourceError(f"{prod(shape)} words of {symbols} symbols are too many to be parsed")
    soft = a["metric"] == "var"
    named = [s for rule in a["terminals"] for s in rule[:1]] + [s for r in a["non_terminals"] for s in r[:3]]
    for symbol in (a["start"], *named):
        if not 0 <= symbol < symbols:
            raise ProblemError(f"symbol {symbol} does not exist; there are 0 to {symbols - 1}")
    best: dict[tuple[int, int], _Spans] = {}
    for i, size in enumerate(shape):
        spans: _Spans = {}
        for symbol, value, *weight in a["terminals"]:
            span_costs = np.full(size, a["cost"] if soft else _NO_PARSE, dtype=np.int64)
            if value < size:
                span_costs[value] = sum(weight)
            _keep_cheaper(spans, symbol, span_costs)
        best[i, i + 1] = spans
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            best[i, i + width] = _combined_spans(best, i, i + width, a["non_terminals"])
    word_costs = best[0, n].get(a["start"], np.full(tuple(shape), _NO_PARSE, dtype=np.int64))
    entries = [costs.utility(None if cost >= _NO_PARSE else cost) for cost in word_costs.ravel().tolist()]
    all_integers = all(u is None or isinstance(u, int) for u in entries)
    hard = np.iinfo(np.int64).min if all_integers else -np.inf
    return np.array([hard if u is None else u for u in entries]).reshape(tuple(shape))


def _combined_spans(
    best: Mapping[tuple[int, int], Mapping[int, NDArray[np.int64]]],
    begin: int,
    end: int,
    rules: Sequence[Sequence[int]],
) -> dict[int, NDArray[np.int64]]:
    """Return each symbol's costs for the words over positions ``begin`` to ``end``, combined from shorter spans.

    ``best`` maps a span (begin, end) to the costs by symbol. A rule is (symbol, left symbol, right symbol), with a
    weight if the grammar has weights.
    """
    spans: _Spans = {}
    for middle in range(begin + 1, end):
        left, right = best[begin, middle], best[middle, end]
        for symbol, left_symbol, right_symbol, *weight in rules:
            if left_symbol in left and right_symbol in right:
                both = (
                    left[left_symbol].reshape(*left[left_symbol].shape, *(1,) * right[right_symbol].ndim)
                    + right[right_symbol]
                    + sum(weight)
                )
                _keep_cheaper(spans, symbol, np.minimum(both, _NO_PARSE))
    return spans


def _keep_cheaper(spans: _Spans, symbol: int, costs: NDArray[np.int64]) -> None:
    """Lower the costs of a symbol to the given costs where these are cheaper."""
    spans[symbol] = np.minimum(spans[symbol], costs) if symbol in spans else costs


def same(b: builder.GlobalFunctionBuilder, keyword: str) -> list[Factor]:
    """Return the factors, one per value, that charge two lists for not being permutations of each other."""
    a, n = b.arguments, len(b.scope)
    first, second = (a["vars1"], a["vars2"]) if keyword == "ssame" else (range(n // 2), range(n // 2, n))
    if sorted((*first, *second)) != list(range(n)) or len(first) != len(second):
        raise ProblemError("needs two lists of equal length that are its scope")

    def cost(surplus: int) -> builder.Cost:
        # The lists have equal lengths, so one change corrects one surplus and one missing value.
        return b.cost * max(0, surplus) if keyword == "ssame" else b.violation_cost(a["metric"], abs(surplus))

    factors = []
    for value in b.values():
        weights = [[(1 if i in first else -1) * int(x == value) for x in range(d)] for i, d in enumerate(b.shape)]
        factors.append(b.weighted_sum(weights, cost))
    if keyword == "wsamegcc":
        costs_by_value = b.occurrence_costs()
        for positions in (first, second):
            for value, function in costs_by_value.items():
                is_value = [[int(i in positions and x == value) for x in range(d)] for i, d in enumerate(b.shape)]
                factors.append(b.weighted_sum(is_value, function))
    return factors


def overlap(b: builder.GlobalFunctionBuilder) -> Factor:
    """Return a comparison of the number of positions at which both halves have the same value other than 0.

    The automaton reads both halves alternately. A state holds the number of agreements so far and, between the two
    variables of a position, the value of the left one.
    """
    a, half = b.arguments, len(b.scope) // 2
    if 2 * half != len(b.scope):
        raise ProblemError("needs two lists of equal length")
    gap = builder.comparison_gap(a["comparator"])

    def step(position: int, state: Any, value: int) -> tuple[Hashable, int | float | None]:
        count, left_value = state
        if position % 2 == 0:
            return (count, value), 0
        count += value == left_value != 0
        if position + 1 < 2 * half:
            return (count, 0), 0
        return 0, b.costs.utility(b.violation_cost(a["metric"], gap(count, a["to"])))

    return b.automaton([index for i in range(half) for index in (i, half + i)], (0, 0), step)


def spanning_tree(shape: Sequence[int]) -> tuple[Hashable, StepFunction]:
    """Return the initial state and the step of an automaton that reads each node's parent; the root is its own parent.

    A state holds ``chain_ends`` (the node that each node reaches by following the parents read so far) and whether a
    root was read. Nodes with the same chain end form one part of a partition of all nodes. A transition is forbidden if
    it closes a cycle, names a node that does not exist or a second root, or if no root was read at the end. As the
    result has n nodes, one root and no cycle, it is a spanning tree.
    """
    nodes = range(len(shape))

    def step(position: int, state: Any, parent: int) -> tuple[Hashable, int | float | None]:
        chain_ends, has_root = state
        if parent == position:
            return (None, None) if has_root else ((chain_ends, True), 0)
        if parent >= len(shape) or chain_ends[parent] == position:
            return None, None  # no such node, or a cycle
        chain_ends = tuple(chain_ends[parent] if chain_end == position else chain_end for chain_end in chain_ends)
        return (chain_ends, has_root) if position + 1 < len(shape) else 0, 0 if has_root or position + 1 < len(
            shape
        ) else None

    return (tuple(nodes), False), step


def build(
    keyword: str,
    scope: Sequence[int],
    shape: Sequence[int],
    arguments: Mapping[str, Any],
    costs: builder.CostScale,
    name: str = "",
) -> list[Factor]:
    """Return factors whose sum is a global cost function.

    Parameters
    ----------
    keyword
        Name of the function, from :data:`dmcmc.formats.global_functions.builder.SIGNATURES`.
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
    for field in builder.SIGNATURES[keyword]:
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


def _with_positions(field: builder.ParameterSpec, argument: Any, scope: Sequence[int]) -> Any:
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


class _FactorBuilder(builder.GlobalFunctionBuilder):
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
                gap = builder.comparison_gap(a["comparator"])
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

    def occurrences(self, functions: Mapping[int, Callable[[int], builder.Cost]]) -> list[Factor]:
        """Return one factor per value v, whose cost is ``functions[v]`` of the number of variables that take v."""
        return [self.among([[value]], function) for value, function in functions.items()]

    def at_most_one(self, pairs: Sequence[Sequence[int]]) -> Factor:
        """Return a factor that forbids that more than one variable takes a listed value.

        ``pairs`` lists the pairs [position, value].
        """
        is_listed = [[int([i, x] in pairs) for x in range(size)] for i, size in enumerate(self.shape)]
        return self.weighted_sum(is_listed, lambda total: 0 if total <= 1 else None)

    def pairs(self, cost: builder.Cost) -> list[Factor]:
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
        gap = builder.comparison_gap("==" if counted_values is not None else self.arguments["comparator"])

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

        def cost(x: int, y: int) -> builder.Cost:
            if keyword not in ("disj", "sdisj"):
                return builder.gap_cost(builder.GAPS[keyword](x, y, a["constant"]), a["delta"], self.costs.unit)
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
