"""Search tree of a row for branch and bound with per-row semidefinite bounds.

A row is an assignment of an agent's boundary variables. A leaf fixes some hidden variables and may restrict the domain
of the next one. The leaves cover all assignments of the hidden variables that are not excluded, so the largest leaf
bound bounds the row.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

Fixed = tuple[tuple[int, int], ...]  # pairs of a hidden variable (its index) and a value


class DomainPart(NamedTuple):
    """Part of the domain of a hidden variable.

    Attributes
    ----------
    variable : int
        Index among the hidden variables.
    values : tuple of int
        Values that the variable may take.
    """

    variable: int
    values: tuple[int, ...]

    def others(self, domain: int) -> list[int]:
        """Return the excluded values of a domain of the given size."""
        return sorted(set(range(domain)) - set(self.values))


@dataclass(slots=True, eq=False)
class Leaf:
    """A row with some variables fixed and possibly the next variable's domain restricted, with its own bound.

    An unconverged leaf is replaced by a converged one after more descent steps; a converged leaf with an entry is
    replaced by its branches; a converged leaf without an entry is final. A leaf that loses its entry for lack of space
    becomes unconverged: more steps restore its factor vectors.

    Attributes
    ----------
    fixed : tuple of (variable, value)
        Fixed hidden variables, in the order in which they were fixed.
    bound : int
        Upper bound, in the integer scale of the agent's utility matrix.
    domain_part : DomainPart or None
        Restriction of the next variable.
    entry : int or None
        Buffer entry of the leaf's factor vectors; None if they are not stored.
    converged : bool
        Whether more steps would hardly lower the bound.
    """

    fixed: Fixed
    bound: int
    domain_part: DomainPart | None = None
    entry: int | None = None
    converged: bool = True

    @property
    def is_branch(self) -> bool:
        """Whether the leaf covers only a part of its row."""
        return bool(self.fixed) or self.domain_part is not None


class _OrderedLeaf(NamedTuple):
    """A leaf with its sort key: highest bounds first, then the order of insertion."""

    negated_bound: int
    order: int
    leaf: Leaf


@dataclass
class RowTree:
    """The open leaves of a row; none if the row is proven infeasible."""

    _ordered_leaves: list[_OrderedLeaf] = field(default_factory=list)  # sorted
    _insertion_order: "count[int]" = field(default_factory=count)

    @property
    def top(self) -> Leaf | None:
        """The leaf with the highest bound, which bounds the row; None if there is none."""
        return self._ordered_leaves[0].leaf if self._ordered_leaves else None

    @property
    def leaves(self) -> list[Leaf]:
        """All leaves, highest bounds first."""
        return [entry.leaf for entry in self._ordered_leaves]

    @property
    def is_branched(self) -> bool:
        """Whether the row has been branched."""
        return self.top is None or self.top.is_branch

    def first(self, count: int) -> list[Leaf]:
        """Return up to ``count`` leaves with the highest bounds, in order."""
        return [entry.leaf for entry in self._ordered_leaves[:count]]

    def add(self, leaf: Leaf) -> None:
        """Insert a leaf; its bound must not change afterwards."""
        insort(self._ordered_leaves, _OrderedLeaf(-leaf.bound, next(self._insertion_order), leaf))

    def remove(self, leaf: Leaf) -> None:
        """Remove a leaf of the tree."""
        at = bisect_left(self._ordered_leaves, -leaf.bound, key=lambda entry: entry.negated_bound)
        while self._ordered_leaves[at].leaf is not leaf:
            at += 1
        del self._ordered_leaves[at]
