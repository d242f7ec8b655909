"""Building blocks of all global cost functions: tables, constants, and automata that count along the scope.

:mod:`dmcmc.formats.global_functions.factors` derives the builder of every function from this class.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from dmcmc.formats.global_functions.costs import Cost, CostScale, deviation_cost
from dmcmc.inference.model.automaton import AutomatonFactor, SumBounds, unroll
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.samplers.tuning import common

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
    if prod(factor.shape) > common.PLAIN_TABLE_ENTRIES:
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
