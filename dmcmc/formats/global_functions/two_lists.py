"""Cost functions of two lists of variables: whether one is a permutation of the other, and where both agree."""

from collections.abc import Hashable
from typing import Any

from dmcmc.formats.global_functions.builder import Builder
from dmcmc.formats.global_functions.costs import Cost, comparison
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.errors import ProblemError


def same(b: Builder, keyword: str) -> list[Factor]:
    """Return what two lists cost that are not permutations of each other, value by value."""
    a, n = b.arguments, len(b.scope)
    first, second = (a["vars1"], a["vars2"]) if keyword == "ssame" else (range(n // 2), range(n // 2, n))
    if sorted((*first, *second)) != list(range(n)) or len(first) != len(second):
        raise ProblemError("needs two lists of equal length that are its scope")

    def cost(more: int) -> Cost:
        # The lists are equally long, so one change mends a value too many and one too few.
        return b.cost * max(0, more) if keyword == "ssame" else b.charge(a["metric"], abs(more))

    factors = []
    for value in b.values():
        weights = [[(1 if i in first else -1) * int(x == value) for x in range(d)] for i, d in enumerate(b.shape)]
        factors.append(b.tally(weights, cost))
    if keyword == "wsamegcc":
        bounded = b.bounded()
        for places in (first, second):
            for value, function in bounded.items():
                within_ = [[int(i in places and x == value) for x in range(d)] for i, d in enumerate(b.shape)]
                factors.append(b.tally(within_, function))
    return factors


def overlap(b: Builder) -> Factor:
    """Return a comparison of the number of places at which both halves have the same value, not the first."""
    a, half = b.arguments, len(b.scope) // 2
    if 2 * half != len(b.scope):
        raise ProblemError("needs two lists of equal length")
    gap = comparison(a["comparator"])

    def step(position: int, state: Any, value: int) -> tuple[Hashable, int | float | None]:
        count, before = state
        if position % 2 == 0:
            return (count, value), 0
        count += value == before != 0
        if position + 1 < 2 * half:
            return (count, 0), 0
        return 0, b.costs.utility(b.charge(a["metric"], gap(count, a["to"])))

    return b.automaton([place for i in range(half) for place in (i, half + i)], (0, 0), step)
