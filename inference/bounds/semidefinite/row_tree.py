"""The tree of a row: its leaves fix variables, or allow some values of one, and together they bound the row."""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

Fixed = tuple[tuple[int, int], ...]  # variables, places among the hidden ones, and their values


class Part(NamedTuple):
    """What a variable, a place among the hidden ones, may have."""

    variable: int
    values: tuple[int, ...]

    def others(self, domain: int) -> list[int]:
        """Return the values that it may not have, of so many."""
        return sorted(set(range(domain)) - set(self.values))


@dataclass(slots=True, eq=False)
class Leaf:
    """A row with some variables fixed, and perhaps a part of the next one, bounded by a square of its own.

    Attributes
    ----------
    fixed : tuple of (variable, value)
    bound : int
        In the scale.
    part : Part or None
    slot : int or None
        Of its point; None where there is none.
    settled : bool
        Whether more steps would hardly lower it. Without a point it is done with then; one that is not settled has a
        point again after more steps.
    """

    fixed: Fixed
    bound: int
    part: Part | None = None
    slot: int | None = None
    settled: bool = True

    @property
    def is_branch(self) -> bool:
        """Whether it is not all of its row."""
        return bool(self.fixed) or self.part is not None


class _Entry(NamedTuple):
    """A leaf in its order: highest bounds first, earlier ones among like."""

    lowness: int
    number: int
    leaf: Leaf


@dataclass
class RowTree:
    """The leaves of a row; none where it is proven infeasible."""

    _entries: list[_Entry] = field(default_factory=list)  # in their order
    _numbers: "count[int]" = field(default_factory=count)

    @property
    def top(self) -> Leaf | None:
        """The leaf that bounds the row."""
        return self._entries[0].leaf if self._entries else None

    @property
    def leaves(self) -> list[Leaf]:
        """All of them, those with the highest bounds first."""
        return [entry.leaf for entry in self._entries]

    @property
    def grown(self) -> bool:
        """Whether it has any branches."""
        return self.top is None or self.top.is_branch

    def first(self, count: int) -> list[Leaf]:
        """Return those leaves that have the highest bounds, in their order."""
        return [entry.leaf for entry in self._entries[:count]]

    def add(self, leaf: Leaf) -> None:
        """Add a leaf, whose bound is not changed any more."""
        insort(self._entries, _Entry(-leaf.bound, next(self._numbers), leaf))

    def remove(self, leaf: Leaf) -> None:
        """Remove a leaf that it has."""
        at = bisect_left(self._entries, -leaf.bound, key=lambda entry: entry.lowness)
        while self._entries[at].leaf is not leaf:
            at += 1
        del self._entries[at]
