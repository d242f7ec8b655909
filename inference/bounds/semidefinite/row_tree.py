"""The tree of a row: leaves fix variables, one more at each branch, and together they bound the row."""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

Fixed = tuple[tuple[int, int], ...]  # variables, places among the hidden ones, and their values


@dataclass(slots=True, eq=False)
class Leaf:
    """A row with some variables fixed, bounded by a square of its own.

    Attributes
    ----------
    fixed : tuple of (variable, value)
    bound : int
        In the scale.
    gain : int
        By how much that was below the leaf's before, when it was first bounded.
    slot : int or None
        Of its point; None where there is none, and no further square can begin there.
    long : bool
        Whether it has had all the steps that are of use.
    """

    fixed: Fixed
    bound: int
    gain: int = 0
    slot: int | None = None
    long: bool = False


class _Entry(NamedTuple):
    """A leaf in its order: highest bounds first, earlier ones among like."""

    lowness: int
    number: int
    leaf: Leaf


@dataclass
class RowTree:
    """The leaves of a row; none where it is proven infeasible."""

    _heap: list[_Entry] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)

    @property
    def top(self) -> Leaf | None:
        """The leaf that bounds the row."""
        return self._heap[0].leaf if self._heap else None

    @property
    def leaves(self) -> list[Leaf]:
        """All of them, those with the highest bounds first."""
        return [entry.leaf for entry in sorted(self._heap)]

    @property
    def grown(self) -> bool:
        """Whether it has any branches."""
        return self.top is None or bool(self.top.fixed)

    def add(self, leaf: Leaf) -> None:
        """Add a leaf."""
        heappush(self._heap, _Entry(-leaf.bound, next(self._numbers), leaf))

    def take(self) -> Leaf:
        """Remove the leaf that bounds the row, and return it."""
        return heappop(self._heap).leaf

    def settle(self, least: int) -> None:
        """Put leaves whose bounds have changed in their order; drop those that are infeasible, at least or below."""
        self._heap = [_Entry(-e.leaf.bound, e.number, e.leaf) for e in self._heap if e.leaf.bound > least]
        heapify(self._heap)
