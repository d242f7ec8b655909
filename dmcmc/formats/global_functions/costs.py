"""What global cost functions charge: costs, and how far numbers are from what is asked of them."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dmcmc.inference.runtime.errors import ProblemError

_LARGEST = 2**62  # no cost is beyond it

Cost = int | None


class Costs(NamedTuple):
    """What costs mean: from ``top`` on they are forbidden; ``unit`` of them are 1."""

    top: int | None
    unit: int = 1

    def utility(self, cost: Cost) -> int | float | None:
        """Return what a cost is worth."""
        if cost is None or (self.top is not None and cost >= self.top):
            return None
        if abs(cost) > _LARGEST:
            raise ProblemError("a cost beyond 2^62")
        return -cost if self.unit == 1 else (0 - cost) / self.unit


GAPS: Mapping[str, Callable[[int, int, int], int]] = {
    ">=": lambda x, y, c: y + c - x,
    ">": lambda x, y, c: y + c + 1 - x,
    "<=": lambda x, y, c: x - c - y,
    "<": lambda x, y, c: x - c + 1 - y,
    "=": lambda x, y, c: abs(y + c - x),
}
"""How far two values are from satisfying a comparison, the second with a constant added."""


def within(gap: int, delta: int, unit: int) -> Cost:
    """Return the cost of a gap: itself, forbidden beyond delta."""
    return None if gap > delta else max(gap, 0) * unit


def weighted(low: int, high: int, shortage: int, excess: int) -> Callable[[int], Cost]:
    """Return what a number below ``low`` or above ``high`` costs."""
    return lambda n: shortage * max(low - n, 0) + excess * max(n - high, 0)


def comparison(comparator: str) -> Callable[[int, int], int]:
    """Return how far a sum is from satisfying a comparison with a right-hand side."""
    gaps: Mapping[str, Callable[[int, int], int]] = {
        "==": lambda total, to: abs(to - total),
        "<=": lambda total, to: max(0, total - to),
        "<": lambda total, to: max(0, total - to + 1),
        "!=": lambda total, to: int(total == to),
        ">": lambda total, to: max(0, to - total + 1),
        ">=": lambda total, to: max(0, to - total),
    }
    return gaps[comparator]
