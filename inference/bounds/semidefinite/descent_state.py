"""State of an agent's semidefinite bounds of single rows; ``per_row`` updates it, ``relaxation`` holds it.

A row is an assignment of the agent's boundary variables. A leaf of a row's search tree is the row with some hidden
variables fixed; its factor vectors can be stored in an entry of a buffer, from which its branches start.
"""

from dataclasses import dataclass, field
from typing import Protocol

from dmcmc.inference.bounds.semidefinite.row_tree import Leaf, RowTree


class FactorStore(Protocol):
    """Buffer of the leaves' factor vectors: ``per_row.device_buffers.AgentBuffers``.

    Attributes
    ----------
    free : list of int
        Buffer entries without a leaf.
    """

    free: list[int]


@dataclass
class PerRowState:
    """State of an agent's per-row semidefinite bounds.

    ``expected`` is set at the start if the work runs on a GPU. ``buffers`` are allocated before the first batch, which
    sets ``exact``. ``has_branched`` becomes true later and stays so. ``discard`` ends the work when no row can be
    lowered; ``fail`` ends it for good after a device failure.

    Attributes
    ----------
    trees : dict of int to RowTree
        Search trees of the rows that have a per-row bound, by row.
    buffers : FactorStore or None
        Buffer of the leaves' factor vectors; None before there is one and after the last use.
    agent : int
        The agent's index in ``buffers``.
    step_seconds : dict of int to float
        Measured seconds per step and node, by the number of steps of the schedule; 0 after a first batch, whose time
        includes the loading of libraries.
    nodes_solved : int
        Number of nodes bounded so far.
    expected : bool
        Whether there will be per-row bounds.
    has_branched : bool
        Whether every row that matters has been branched, so that the gain of the method can be judged.
    exact : bool or None
        Whether the device's certificates equal the CPU's; None before the first comparison.
    failed : bool
        Whether the device failed; there are no per-row bounds then.
    """

    trees: dict[int, RowTree] = field(default_factory=dict)
    buffers: FactorStore | None = None
    agent: int = 0
    step_seconds: dict[int, float] = field(default_factory=dict)
    nodes_solved: int = 0
    expected: bool = False
    has_branched: bool = False
    exact: bool | None = None
    failed: bool = False

    @property
    def undecided(self) -> bool:
        """Whether the gain of the per-row bounds cannot be judged yet."""
        return self.expected and not self.has_branched and not self.failed

    def release(self, leaf: Leaf) -> None:
        """Return a leaf's buffer entry to the free ones."""
        if leaf.entry is not None and self.buffers is not None:
            self.buffers.free.append(leaf.entry)
        leaf.entry = None

    def discard(self) -> None:
        """Release all buffer entries: no row will be bounded further."""
        for leaf in [leaf for tree in self.trees.values() for leaf in tree.leaves]:
            self.release(leaf)
        self.buffers = None

    def fail(self) -> None:
        """Give up after a device failure."""
        self.failed = True
        self.discard()
