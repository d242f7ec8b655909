"""How far the squares of an agent's rows are."""

from dataclasses import dataclass, field
from typing import Protocol

from dmcmc.inference.bounds.semidefinite.row_tree import Leaf, RowTree


class Points(Protocol):
    """Where points of leaves are: an :class:`.own.ground.Ground`."""

    free: list[int]


@dataclass
class Progress:
    """How far the squares of an agent's rows are.

    Attributes
    ----------
    trees : dict of RowTree
        Of the rows that have a square of their own.
    ground : Points or None
        Where points of leaves are.
    agent : int
        The agent's number there.
    pace : dict of float
        By the steps of a schedule: seconds of a step of one case, as measured last; 0 where that was not telling.
    made : int
        Squares so far.
    expected : bool
        Whether there are to be any.
    grown : bool
        Whether they are as far as to show what they bring: all rows that matter have variables fixed.
    exact : bool or None
        Whether the device's certificates are the CPU's; None before that has been looked at.
    failed : bool
        Whether the device could not: there are none then.
    """

    trees: dict[int, RowTree] = field(default_factory=dict)
    ground: Points | None = None
    agent: int = 0
    pace: dict[int, float] = field(default_factory=dict)
    made: int = 0
    expected: bool = False
    grown: bool = False
    exact: bool | None = None
    failed: bool = False

    @property
    def young(self) -> bool:
        """Whether they are yet to show what they bring."""
        return self.expected and not self.grown and not self.failed

    def release(self, leaf: Leaf) -> None:
        """Give the slot of a leaf back."""
        if leaf.slot is not None and self.ground is not None:
            self.ground.free.append(leaf.slot)
        leaf.slot = None

    def end(self) -> None:
        """Give back all that would be needed to lower rows further."""
        for leaf in [leaf for tree in self.trees.values() for leaf in tree.leaves]:
            self.release(leaf)
        self.ground = None

    def fail(self) -> None:
        """Give up."""
        self.failed = True
        self.end()
