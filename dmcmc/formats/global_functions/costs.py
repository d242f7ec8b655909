"""Costs of global cost functions, and the distances between numbers and the conditions on them.

A distance (gap, violation) is 0, or for ``GAPS`` 0 or less, where the condition holds.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dmcmc.inference.runtime.errors import ProblemError

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
