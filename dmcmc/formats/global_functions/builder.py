"""Global cost functions of a file: their signatures, nested arguments, costs, and what collects their factors.

Building blocks of all global cost functions: tables, constants, and automata that count along the scope.

:mod:`dmcmc.formats.global_functions.factors` derives the builder of every function from this class.

Parameters of global cost functions, in the order in which ``.wcsp`` and ``.cfn`` files give them.

Convert a network nested in a constraint to a factor: the network's cost must lie between two bounds.

The network has the variables of the constraint's scope. The constraint becomes a deterministic automaton that reads the
scope variable by variable and adds up the cost of the network.

Costs of global cost functions, and the distances between numbers and the conditions on them.

A distance (gap, violation) is 0, or for ``GAPS`` 0 or less, where the condition holds.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor, SumBounds, unroll
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.samplers.contract import tuning as sampler_tuning
from dmcmc.tuning import run as tuning

_MAX_COST = 2**62  # upper limit for the absolute value of a cost; the sum of two such costs fits int64

Cost = int | None  # None is forbidden


class CostScale(NamedTuple):
    """Conversion of integer costs to utilities.

    Attributes
    ----------
    top : int or None
        Costs from here on are forbidden; None if there is no limit.
    unit : int
        Integer that represents the cost 1, a power of ten: 100 if the file has two decimals.
    """

    top: int | None
    unit: int = 1

    def utility(self, cost: Cost) -> int | float | None:
        """Return the utility −cost / ``unit`` of an integer cost; None (forbidden) for None and from ``top`` on.

        Raises
        ------
        ProblemError
            If the absolute value of the cost exceeds 2^62.
        """
        if cost is None or (self.top is not None and cost >= self.top):
            return None
        if abs(cost) > _MAX_COST:
            raise ProblemError("a cost above 2^62")
        return -cost if self.unit == 1 else (0 - cost) / self.unit


GAPS: Mapping[str, Callable[[int, int, int], int]] = {
    ">=": lambda x, y, c: y + c - x,
    ">": lambda x, y, c: y + c + 1 - x,
    "<=": lambda x, y, c: x - c - y,
    "<": lambda x, y, c: x - c + 1 - y,
    "=": lambda x, y, c: abs(y + c - x),
}
"""Distance of two values x, y from satisfying a comparison of x with y + c."""


def gap_cost(gap: int, delta: int, unit: int) -> Cost:
    """Return the cost of a gap: ``unit`` times the gap, 0 if it is negative, and forbidden (None) above ``delta``."""
    return None if gap > delta else max(gap, 0) * unit


def deviation_cost(low: int, high: int, shortage: int, excess: int) -> Callable[[int], Cost]:
    """Return the cost of a number n as a function: shortage · max(low − n, 0) + excess · max(n − high, 0)."""
    return lambda n: shortage * max(low - n, 0) + excess * max(n - high, 0)


def comparison_gap(comparator: str) -> Callable[[int, int], int]:
    """Return the distance of a sum from satisfying a comparison with a right-hand side, as a function of both.

    ``comparator`` is one of ==, <=, <, !=, > and >=. The distance is 0 where the comparison holds, and 1 where ``!=``
    does not.
    """
    gaps: Mapping[str, Callable[[int, int], int]] = {
        "==": lambda total, to: abs(to - total),
        "<=": lambda total, to: max(0, total - to),
        "<": lambda total, to: max(0, total - to + 1),
        "!=": lambda total, to: int(total == to),
        ">": lambda total, to: max(0, to - total + 1),
        ">=": lambda total, to: max(0, to - total),
    }
    return gaps[comparator]


# A hard bound on a sum over more variables stays an automaton: search engines propagate it as a linear constraint.
_MAX_TABLE_ARITY = 3
_FORBIDDEN = np.iinfo(np.int64).min  # utility of a forbidden entry in int64
_MAX_SUM = 2**62  # limit for the absolute value of a sum of weights that is recorded as a linear constraint


class GlobalFunctionBuilder:
    """A global cost function and the means to build its factors.

    A global cost function is given by a keyword and parameters instead of a table, such as "all variables differ".

    Attributes
    ----------
    scope : tuple of int
        Indices of the variables.
    shape : tuple of int
        Domain sizes.
    arguments : mapping
        Parameters by the names of the signature; variables are given as positions in the scope.
    costs : CostScale
        Converts integer costs to utilities, and knows from which cost on an entry is forbidden.
    name : str
        Name of the factors.
    cost : int
        The parameter ``cost``: cost of a violation of size 1; 0 if the function does not have it.
    """

    def __init__(
        self, scope: tuple[int, ...], shape: tuple[int, ...], arguments: Mapping[str, Any], costs: CostScale, name: str
    ) -> None:
        """Store the function."""
        self.scope, self.shape, self.arguments, self.costs, self.name = scope, shape, arguments, costs, name
        self.cost: int = arguments.get("cost", 0)

    def values(self) -> range:
        """Return all values of the largest domain."""
        return range(max(self.shape))

    def violation_cost(self, metric: str, gap: int) -> Cost:
        """Return the cost of a violation of size ``gap``.

        Parameters
        ----------
        metric
            ``hard`` (constant), ``lin`` (linear) or ``quad`` (quadratic).
        gap
            Size of the violation; 0 or less means none.
        """
        if gap <= 0:
            return 0
        return self.cost * {"hard": 1, "lin": gap, "quad": gap * gap}[metric]

    def range_cost(self, metric: str, low: int, high: int) -> Callable[[int], Cost]:
        """Return a function from a number to its cost: that of a violation of the size of its distance from low..high.

        Parameters
        ----------
        metric
            ``hard``, ``lin`` or ``quad``; see ``violation_cost``.
        low, high
            Smallest and largest number without a cost.
        """
        return lambda n: self.violation_cost(metric, max(low - n, n - high, 0))

    def occurrence_costs(self) -> dict[int, Callable[[int], Cost]]:
        """Return, for each value with bounds, the cost of its number of occurrences as a function.

        A record of the parameter ``bounds`` is (value, smallest number, largest number), with the metric ``wdec``
        followed by the cost of each missing and of each surplus occurrence. The metrics ``dec`` and ``var`` charge the
        linear cost.
        """
        functions: dict[int, Callable[[int], Cost]] = {}
        for value, low, high, *weights in self.arguments["bounds"]:
            if value in functions:
                raise ProblemError(f"value {value} has bounds twice")
            if weights:
                functions[value] = deviation_cost(low, high, *weights)
            else:
                metric = self.arguments["metric"]
                functions[value] = self.range_cost("lin" if metric in ("dec", "var") else metric, low, high)
        return functions

    def among(self, values: Sequence[Sequence[int]], function: Callable[[int], Cost]) -> Factor:
        """Return a factor for a function of the number of variables that take one of some values.

        Parameters
        ----------
        values
            Records of one value each.
        function
            Cost of the number of variables.
        """
        counted_values = {value for (value,) in values}
        return self.weighted_sum([[int(x in counted_values) for x in range(size)] for size in self.shape], function)

    def weighted_sum(self, weights: Sequence[Sequence[int]], function: Callable[[int], Cost]) -> Factor:
        """Return a factor for a function of the sum of weights: utility of function(Σ weights[i][x_i]).

        The factor does not depend on variables whose weights are all equal, and leaves them out of its scope. If it is
        a linear constraint over more than three variables, it is an automaton that says so.

        Parameters
        ----------
        weights
            For each variable, the weight of each of its values.
        function
            Cost of the sum.
        """
        offset = sum(w[0] for w in weights if len(set(w)) == 1)
        varying = [i for i, w in enumerate(weights) if len(set(w)) > 1]
        if not varying:
            return self.constant(function(offset))
        last = len(varying) - 1
        utilities: dict[int, int | float | None] = {}  # the utility of each sum that occurs

        def step(position: int, total: Any, value: int) -> tuple[Hashable, int | float | None]:
            new_total = total + weights[varying[position]][value]
            if position < last:
                return new_total, 0
            utilities[new_total] = utility = self.costs.utility(function(new_total))
            return 0, utility

        factor = self._unrolled(varying, offset, step)
        bounds = _sum_bounds([weights[i] for i in varying], offset, utilities)
        if bounds is None or len(varying) <= _MAX_TABLE_ARITY:
            return _as_small_table(factor)
        return AutomatonFactor(factor.scope, factor.layers, factor.name, bounds)

    def automaton(self, positions: Sequence[int], start: Hashable, step: Any) -> Factor:
        """Return a factor for an automaton over some positions of the scope; a small one is stored as a table.

        An automaton reads the variables one by one; each step changes its state and contributes a utility.

        Parameters
        ----------
        positions
            Positions in the scope, in the order in which the automaton reads them.
        start
            Initial state.
        step
            Maps (index in ``positions``, state, value) to the next state and a utility; None as utility is forbidden.
        """
        return _as_small_table(self._unrolled(positions, start, step))

    def _unrolled(self, positions: Sequence[int], start: Hashable, step: Any) -> AutomatonFactor:
        """Return a factor for an automaton over some positions of the scope; the arguments are those of `automaton`."""
        shape = [self.shape[i] for i in positions]
        return unroll([self.scope[i] for i in positions], shape, start, step, name=self.name)

    def constant(self, cost: Cost) -> Factor:
        """Return a factor without variables."""
        utility = self.costs.utility(cost)
        return Factor.of((), np.array(-np.inf if utility is None else utility), name=self.name)

    def table(self, positions: Sequence[int], utilities: Sequence[Sequence[int | float | None]]) -> Factor:
        """Return a table over two variables of the scope.

        Parameters
        ----------
        positions
            The two positions in the scope.
        utilities
            Utility of each pair of values; None is forbidden.
        """
        whole = all(u is None or isinstance(u, int) for row in utilities for u in row)
        hard = _FORBIDDEN if whole else -np.inf
        entries = np.array([[hard if u is None else u for u in row] for row in utilities])
        return Factor.of([self.scope[i] for i in positions], entries, name=self.name)


def _as_small_table(factor: AutomatonFactor) -> Factor:
    """Return a factor as a table if it is small."""
    if prod(factor.shape) > sampler_tuning.PLAIN_TABLE_ENTRIES:
        return factor
    return Factor(factor.scope, factor.table, factor.name)


def _sum_bounds(
    weights: Sequence[Sequence[int]], offset: int, utilities: Mapping[int, int | float | None]
) -> SumBounds | None:
    """Return the linear constraint that a function of a sum of weights stands for; None if it is no such constraint.

    Parameters
    ----------
    weights
        For each variable, the weight of each of its values.
    offset
        Constant part of the sum.
    utilities
        The utility of each sum that occurs, ``offset`` included; None is forbidden.
    """
    allowed = [total for total, utility in utilities.items() if utility is not None]
    if not allowed or any(utilities[total] for total in allowed) or max(map(abs, utilities)) > _MAX_SUM:
        return None
    low, high = min(allowed), max(allowed)
    if any(utility is None and low < total < high for total, utility in utilities.items()):
        return None
    return SumBounds(
        tuple(np.array(w, dtype=np.int64) for w in weights),
        None if low == min(utilities) else low - offset,
        None if high == max(utilities) else high - offset,
    )


class ParameterSpec(NamedTuple):
    """A parameter of a global cost function.

    Attributes
    ----------
    name : str
        Name of the parameter.
    kind : str
        * ``word``: one of the words in ``layout``, which are separated by ``|``.
        * ``cost``, ``whole``: a cost, an integer.
        * ``list``: records; each letter of ``layout`` is i for an integer, c for a cost or v for a variable.
        * ``lists``: one such list per variable. ``groups``: any number of such lists.
        * ``each``: one integer per variable.
        * ``variables``: a list of variables; in ``.wcsp`` files the lengths of all such lists precede the first.
        * ``rules``: records of a grammar; ``.wcsp`` files mix terminal and non-terminal rules.
    layout : str
        See ``kind``.
    """

    name: str
    kind: str
    layout: str = ""


# Parameters that several functions share. Their names, from toulbar2, become the keys of ``arguments``.
_VAR = ParameterSpec("metric", "word", "var")
_METRIC = ParameterSpec("metric", "word", "hard|lin|quad")
_COST = ParameterSpec("cost", "cost")
_COMPARATOR = ParameterSpec("comparator", "word", "==|<|<=|>|>=|!=")
_BOUNDS = ParameterSpec("bounds", "list", "iii")
_DISTANCE = (ParameterSpec("distance", "whole"), ParameterSpec("values", "each"))
_LARGEST = (ParameterSpec("defaultcost", "cost"), ParameterSpec("tuples", "list", "vic"))
_ARITHMETIC = (ParameterSpec("constant", "whole"), ParameterSpec("delta", "whole"))
_STATES = ParameterSpec("nb_states", "whole")
_AMONG = (
    _VAR,
    _COST,
    ParameterSpec("min", "whole"),
    ParameterSpec("max", "whole"),
    ParameterSpec("values", "list", "i"),
)
_RUNS = (
    ParameterSpec("starts", "list", "i"),
    ParameterSpec("ends", "list", "i"),
    ParameterSpec("transitions", "list", "iii"),
)
_GRAMMAR = (
    ParameterSpec("metric", "word", "var|weight"),
    _COST,
    ParameterSpec("nb_symbols", "whole"),
    ParameterSpec("nb_values", "whole"),
    ParameterSpec("start", "whole"),
    ParameterSpec("terminals", "rules", "ii"),
    ParameterSpec("non_terminals", "rules", "iii"),
)
_WEIGHTED = (
    ParameterSpec("starts", "list", "ic"),
    ParameterSpec("ends", "list", "ic"),
    ParameterSpec("transitions", "list", "iiic"),
)

SIGNATURES: Mapping[str, tuple[ParameterSpec, ...]] = {
    "salldiff": (ParameterSpec("metric", "word", "var|dec|decbi"), _COST),
    "salldiffdp": (_VAR, _COST),
    "salldiffkp": (ParameterSpec("metric", "word", "hard"), _COST),
    "sgcc": (ParameterSpec("metric", "word", "var|dec|wdec"), _COST, _BOUNDS),
    "sgccdp": (_VAR, _COST, _BOUNDS),
    "samong": _AMONG,
    "samongdp": _AMONG,
    "ssame": (_COST, ParameterSpec("vars1", "variables"), ParameterSpec("vars2", "variables")),
    "sregular": (ParameterSpec("metric", "word", "var|edit"), _COST, _STATES, *_RUNS),
    "sregulardp": (_VAR, _COST, _STATES, *_RUNS),
    "wregular": (_STATES, *_WEIGHTED),
    "sgrammar": _GRAMMAR,
    "sgrammardp": _GRAMMAR,
    "max": _LARGEST,
    "smaxdp": _LARGEST,
    "MST": (),
    "walldiff": (_METRIC, _COST),
    "wgcc": (_METRIC, _COST, _BOUNDS),
    "wsame": (_METRIC, _COST),
    "wsamegcc": (_METRIC, _COST, _BOUNDS),
    "woverlap": (_METRIC, _COST, _COMPARATOR, ParameterSpec("to", "whole")),
    "wdiverse": _DISTANCE,
    "whdiverse": _DISTANCE,
    "wtdiverse": _DISTANCE,
    "wamong": (
        _METRIC,
        _COST,
        ParameterSpec("values", "list", "i"),
        ParameterSpec("min", "whole"),
        ParameterSpec("max", "whole"),
    ),
    "wvaramong": (ParameterSpec("metric", "word", "hard"), _COST, ParameterSpec("values", "list", "i")),
    "wsum": (_METRIC, _COST, _COMPARATOR, ParameterSpec("to", "whole")),
    "wvarsum": (ParameterSpec("metric", "word", "hard"), _COST, _COMPARATOR),
    "clique": (ParameterSpec("rhs", "whole"), ParameterSpec("values", "lists", "i")),
    "knapsack": (ParameterSpec("capacity", "whole"), ParameterSpec("weights", "each")),
    # Weights as toulbar2's reader takes them, which differs from its documentation.
    "knapsackc": (
        ParameterSpec("capacity", "whole"),
        ParameterSpec("weightedvalues", "lists", "ii"),
        ParameterSpec("conflicts", "groups", "vi"),
    ),
    "knapsackp": (ParameterSpec("capacity", "whole"), ParameterSpec("weightedvalues", "lists", "ii")),
    "knapsackv": (ParameterSpec("capacity", "whole"), ParameterSpec("weightedvalues", "list", "vii")),
    ">=": _ARITHMETIC,
    ">": _ARITHMETIC,
    "<=": _ARITHMETIC,
    "<": _ARITHMETIC,
    "=": _ARITHMETIC,
    "disj": (ParameterSpec("x", "whole"), ParameterSpec("y", "whole"), ParameterSpec("penalty", "cost")),
    "sdisj": (
        ParameterSpec("x", "whole"),
        ParameterSpec("y", "whole"),
        ParameterSpec("xmax", "whole"),
        ParameterSpec("ymax", "whole"),
        ParameterSpec("wx", "cost"),
        ParameterSpec("wy", "cost"),
    ),
}

ANY_SENSE = (
    *("clique", "knapsack", "knapsackc", "knapsackp", "knapsackv", "salldiffkp"),
    *("MST", "wdiverse", "whdiverse", "wtdiverse"),
)
"""Functions that only forbid, so that they have the same meaning if utilities are maximised."""


def record_layout(field: ParameterSpec, earlier: Mapping[str, Any]) -> str:
    """Return the letters of a list's records: i for an integer, c for a cost, v for a variable.

    They are ``field.layout``, with two costs added for the bounds of ``sgcc`` with the metric ``wdec``, and one cost
    for the rules of a weighted grammar.

    Parameters
    ----------
    field
        The parameter; its kind is ``list`` or ``rules``.
    earlier
        Parameters that precede it, by name; ``metric`` decides.
    """
    if field.kind == "rules":
        return field.layout + "c" if earlier["metric"] == "weight" else field.layout
    return field.layout + "cc" if field is _BOUNDS and earlier.get("metric") == "wdec" else field.layout


def costs_in(keyword: str, arguments: Mapping[str, Any]) -> list[int]:
    """Return all costs in the parameters of a function."""
    costs: list[int] = []
    for field in SIGNATURES[keyword]:
        if field.kind == "cost":
            costs.append(arguments[field.name])
        elif field.kind in ("list", "rules"):
            cost_positions = [i for i, letter in enumerate(record_layout(field, arguments)) if letter == "c"]
            costs += [entry[i] for entry in arguments[field.name] for i in cost_positions]
    return costs


_FORBIDDEN_COST = np.iinfo(np.int64).max  # cost of a forbidden entry; the largest int64


class NestedNetwork(NamedTuple):
    """A network and the bounds on its cost.

    Costs are integers in units of the last decimal place of the file: the cost 1.25 of a file with two decimals is 125.

    Attributes
    ----------
    domains : sequence of int
        Domain sizes of its variables, which are those of the scope in the same order.
    factors : tuple of Factor
        Its factors over the variables 0, 1, ... of the network; utilities are negated costs, in units of 1.
    unit : int
        Integer that represents the cost 1, a power of ten: 100 if the file has two decimals.
    low, high : int
        The constraint low ≤ cost < high, as integer costs.
    """

    domains: Sequence[int]
    factors: tuple[Factor, ...]
    unit: int
    low: int
    high: int


def nested_constraint(nested: NestedNetwork, scope: Sequence[int], shape: Sequence[int], name: str) -> Factor:
    """Return the hard constraint ``nested.low`` ≤ cost of the network < ``nested.high`` as an automaton.

    A state is a pair: the cost so far, and the (position, value) pairs of the variables that later factors still need.
    A transition is forbidden as soon as no values of the remaining variables can satisfy the bounds. If the scope has
    at most 1024 assignments, the factor is returned as a table.

    Parameters
    ----------
    nested
        The network and its bounds.
    scope, shape
        Variables of the constraint in the outer problem, and their domain sizes.
    name
        Name of the factor.

    Raises
    ------
    ProblemError
        If the scope is empty, its domain sizes differ from those of the network, or the table of a network's function
        is too large.
    ResourceError
        If the automaton needs too many states.
    """
    if [*nested.domains] != [*shape]:
        raise ProblemError(f"its network has domains {[*nested.domains]}, its scope {[*shape]}")
    inner_tables, start, is_forbidden = [], 0, False  # start: the sum of the network's constants
    for factor in nested.factors:
        if type(factor) is not Factor and prod(factor.shape) > tuning.EXPANDED_ENTRIES:
            raise ProblemError("its network has a function over too many variables")
        costs = _costs(factor, nested.unit)
        if factor.scope:
            inner_tables.append((factor.scope, costs))
        else:
            if costs == _FORBIDDEN_COST:
                is_forbidden = True
            start += int(costs)
    if not scope:
        raise ProblemError("its scope is empty")
    if is_forbidden:  # negative costs of other factors do not make up for it
        return Factor.of((), np.array(-np.inf), name=name)
    # Sums of the smallest and of the largest finite costs of all factors whose last variable is at position i or later.
    # They are Python integers (dtype object), which do not overflow.
    min_remaining, max_remaining = np.zeros(len(scope) + 1, dtype=object), np.zeros(len(scope) + 1, dtype=object)
    # For each position, the (scope, costs) of the factors whose last variable is there: their costs are added there.
    closing_factors: list[list[tuple[tuple[int, ...], NDArray[np.int64]]]] = [[] for _ in scope]
    last_use = [0] * len(scope)  # for each variable, the last position at which a factor needs its value
    for inner_scope, costs in inner_tables:
        end = max(inner_scope)
        closing_factors[end].append((inner_scope, costs))
        finite = costs[costs != _FORBIDDEN_COST]
        min_remaining[: end + 1] += int(finite.min()) if finite.size else 0
        max_remaining[: end + 1] += int(finite.max()) if finite.size else 0
        for v in inner_scope:
            last_use[v] = max(last_use[v], end)

    def step(position: int, state: Any, value: int) -> tuple[Hashable, int | None]:
        total, needed_values = state
        values = {**dict(needed_values), position: value}
        for inner_scope, costs in closing_factors[position]:
            cost = int(costs[tuple(values[v] for v in inner_scope)])
            if cost == _FORBIDDEN_COST:
                return None, None
            total += cost
        if total + min_remaining[position + 1] >= nested.high or total + max_remaining[position + 1] < nested.low:
            return None, None
        if position == len(scope) - 1:
            return 0, 0
        return (total, tuple((v, x) for v, x in values.items() if last_use[v] > position)), 0

    result = unroll(scope, shape, (start, ()), step, name=name)
    return Factor(result.scope, result.table, name) if prod(shape) <= sampler_tuning.PLAIN_TABLE_ENTRIES else result


def _costs(factor: Factor, unit: int) -> NDArray[np.int64]:
    """Return a factor's table as int64 costs in units of the last decimal place; ``_FORBIDDEN`` for forbidden entries.

    Utilities are negated costs in units of 1, so that an entry is −utility · ``unit``; float utilities are rounded.
    """
    table = factor.table
    hard = forbidden(table)
    utility = np.where(hard, 0, table)
    if table.dtype.kind == "f":
        utility = np.rint(utility * unit)
    return np.where(hard, _FORBIDDEN_COST, -utility.astype(np.int64) * (1 if table.dtype.kind == "f" else unit))
