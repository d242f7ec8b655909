"""Cost functions of two lists of variables: whether one is a permutation of the other, and where they agree."""

from collections.abc import Hashable
from typing import Any

from dmcmc.formats.global_functions.builder import GlobalFunctionBuilder
from dmcmc.formats.global_functions.costs import Cost, comparison_gap
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.runtime.errors import ProblemError


def same(b: GlobalFunctionBuilder, keyword: str) -> list[Factor]:
    """Return the factors, one per value, that charge two lists for not being permutations of each other."""
    a, n = b.arguments, len(b.scope)
    first, second = (a["vars1"], a["vars2"]) if keyword == "ssame" else (range(n // 2), range(n // 2, n))
    if sorted((*first, *second)) != list(range(n)) or len(first) != len(second):
        raise ProblemError("needs two lists of equal length that are its scope")

    def cost(surplus: int) -> Cost:
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


def overlap(b: GlobalFunctionBuilder) -> Factor:
    """Return a comparison of the number of positions at which both halves have the same value other than 0.

    The automaton reads both halves alternately. A state holds the number of agreements so far and, between the two
    variables of a position, the value of the left one.
    """
    a, half = b.arguments, len(b.scope) // 2
    if 2 * half != len(b.scope):
        raise ProblemError("needs two lists of equal length")
    gap = comparison_gap(a["comparator"])

    def step(position: int, state: Any, value: int) -> tuple[Hashable, int | float | None]:
        count, left_value = state
        if position % 2 == 0:
            return (count, value), 0
        count += value == left_value != 0
        if position + 1 < 2 * half:
            return (count, 0), 0
        return 0, b.costs.utility(b.violation_cost(a["metric"], gap(count, a["to"])))

    return b.automaton([index for i in range(half) for index in (i, half + i)], (0, 0), step)
