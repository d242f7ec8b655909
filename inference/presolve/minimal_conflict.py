"""Find a minimal set of constraints that cannot hold together: QuickXplain (Junker, AAAI 2004, Algorithm 1)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class MinimalConflict(NamedTuple):
    """The items of a conflict.

    Attributes
    ----------
    items : list
        Items that cannot hold together, in their original order.
    is_minimal : bool
        Whether the items without any one of them are known to fit together; False if a test was not finished.
    """

    items: list[int]
    is_minimal: bool


def minimal_conflict(count: int, is_infeasible: Callable[[list[int]], bool | None]) -> MinimalConflict:
    """Return a minimal subset of items 0, ..., ``count`` − 1 that cannot hold together; all items together cannot.

    A conflict of k of n items takes O(k log(n / k) + k) tests. Items that are tested first are preferred.

    Parameters
    ----------
    count : int
        Number of items.
    is_infeasible : callable
        Whether some items, in ascending order, cannot hold together; None if this is not known in time. Such items are
        taken to be feasible, so the result is a conflict, but perhaps not minimal.

    Examples
    --------
    >>> minimal_conflict(9, lambda items: {2, 5} <= set(items))
    MinimalConflict(items=[2, 5], is_minimal=True)
    """
    unfinished = False

    def fails(items: Sequence[int]) -> bool:
        """Return whether items are known to be infeasible."""
        nonlocal unfinished
        answer = is_infeasible(sorted(items))
        unfinished |= answer is None
        return answer is True

    def explain(background: list[int], has_grown: bool, candidates: list[int]) -> list[int]:
        """Return the candidates that are part of a minimal conflict with the background."""
        if has_grown and fails(background):
            return []
        if len(candidates) == 1:
            return candidates
        half = len(candidates) // 2
        first, second = candidates[:half], candidates[half:]
        from_second = explain(background + first, True, second)
        return explain(background + from_second, bool(from_second), first) + from_second

    if not count or fails([]):
        return MinimalConflict([], not unfinished)
    return MinimalConflict(sorted(explain([], False, list(range(count)))), not unfinished)
