"""What every kind of global cost function is made of: tables, constants and automata that count along the scope."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from dmcmc.formats.global_functions.costs import Cost, Costs, weighted
from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.errors import ProblemError

_SMALL = 1024  # entries of an automaton that becomes a table at once
_HARD = np.iinfo(np.int64).min


class Builder:
    """A function's scope, domain sizes and parameters."""

    def __init__(
        self, scope: tuple[int, ...], shape: tuple[int, ...], arguments: Mapping[str, Any], costs: Costs, name: str
    ) -> None:
        self.scope, self.shape, self.arguments, self.costs, self.name = scope, shape, arguments, costs, name
        self.cost: int = arguments.get("cost", 0)

    def values(self) -> range:
        """Return all values of the largest domain."""
        return range(max(self.shape))

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

    def table(self, positions: Sequence[int], worth: Sequence[Sequence[int | float | None]]) -> Factor:
        """Return a table over two variables of the scope."""
        whole = all(u is None or isinstance(u, int) for row in worth for u in row)
        hard = _HARD if whole else -np.inf
        entries = np.array([[hard if u is None else u for u in row] for row in worth])
        return Factor.of([self.scope[i] for i in positions], entries, name=self.name)
