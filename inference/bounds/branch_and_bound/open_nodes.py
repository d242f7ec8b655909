"""Open nodes of a branch and bound over an agent's rows, and the buffer entries that store what they start from.

See :mod:`.frontier`. n is the number of hidden variables, W the number of columns of a table.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.bounder import UNFINISHED
from dmcmc.inference.runtime.types import Ints

NO_ENTRY = -1  # in place of a buffer entry: nothing is stored for the node
_WORDS_PER_NODE = 4  # int64 numbers of an open node: row, bound, entry, variable
_COPIES = 2  # of the open nodes, while branches are added to them


class OpenNodes(NamedTuple):
    """Open nodes: parallel arrays with one element per node.

    Attributes
    ----------
    row : (k,) int64
        Row of the node.
    bound : (k,) int64
        Upper bound in the agent's scale.
    entry : (k,) int64
        Buffer entry of the node, or ``NO_ENTRY``.
    variable : (k,) int64
        Branching variable; ``UNFINISHED`` if the node has to be bounded, or bounded further, before it is branched.
    parts : (k, W) uint8
        Number of the branch that each value of the branching variable belongs to.
    mask : (k, ceil(n W / 8)) uint8
        Packed bits: remaining values of all hidden variables.
    """

    row: Ints
    bound: Ints
    entry: Ints
    variable: Ints
    parts: NDArray[np.uint8]
    mask: NDArray[np.uint8]

    @classmethod
    def roots(cls, rows: Ints, bounds: Ints, all_values: NDArray[np.uint8], width: int) -> "OpenNodes":
        """Return some rows as new nodes that have not been bounded yet; ``all_values`` is the packed mask of a row."""
        k = rows.size
        parts, mask = np.zeros((k, width), dtype=np.uint8), np.repeat(all_values, k, axis=0)
        return cls(rows, bounds, np.full(k, NO_ENTRY), np.full(k, UNFINISHED), parts, mask)

    def where(self, chosen: NDArray[np.bool_] | Ints) -> "OpenNodes":
        """Return the nodes where ``chosen`` (k,) is true, or those with the given indices."""
        parts: list[Any] = [part[chosen] for part in self]
        return OpenNodes(*parts)

    def without(self, indices: Ints) -> "OpenNodes":
        """Return the nodes that do not have the given indices."""
        remains = np.ones(self.row.size, dtype=np.bool_)
        remains[indices] = False
        return self.where(remains)

    def joined(self, others: "OpenNodes") -> "OpenNodes":
        """Return these nodes followed by the nodes of ``others``."""
        these, those = list[Any](self), list[Any](others)
        parts = [np.concatenate(pair) for pair in zip(these, those, strict=True)]
        return OpenNodes(*parts)

    def branches(self) -> Ints:
        """Return the number of branches of each node; 0 if it has to be bounded before."""
        counts: Ints = np.where(self.variable == UNFINISHED, 0, self.parts.max(axis=1, initial=0) + np.int64(1))
        return counts

    def needed_entries(self) -> Ints:
        """Return the number of buffer entries that the branches of each node need besides the node's entry.

        A node without an entry needs one, and a node that is branched one for each branch but the last.
        """
        needed: Ints = np.where(self.entry < 0, 1, 0) + np.maximum(self.branches() - 1, 0)
        return needed

    def masks(self, n: int) -> NDArray[np.bool_]:
        """Return the remaining values of the nodes, (k, n, W) bool."""
        width = self.parts.shape[1]
        bits = np.unpackbits(self.mask, axis=1, count=n * width)
        return bits.astype(np.bool_).reshape(-1, n, width)


def node_bytes(n: int, width: int) -> int:
    """Return the bytes that an open node takes, with n hidden variables and masks of ``width`` columns."""
    return _COPIES * (8 * _WORDS_PER_NODE + width + -(-n * width // 8))


def largest(excesses: Ints, count: int) -> Ints:
    """Return the indices of at most ``count`` nodes with the largest excess, in order; ties: oldest first."""
    if excesses.size > 4 * count:  # sorting all of them would take longer than processing a batch
        smallest = np.partition(excesses, excesses.size - count)[excesses.size - count]
        candidates = np.flatnonzero(excesses >= smallest)
        return candidates[np.argsort(-excesses[candidates], kind="stable")][:count]
    return np.argsort(-excesses, kind="stable")[:count]


class BufferEntries:
    """The free entries of the buffer in which nodes store what their branches start from.

    Parameters
    ----------
    capacity : int
        Number of buffer entries.

    Attributes
    ----------
    free : list of int
        The entries that no node holds.
    """

    def __init__(self, capacity: int) -> None:
        self.free = list(range(capacity - 1, -1, -1))

    def release(self, entries: Ints) -> None:
        """Free some entries; ``NO_ENTRY`` is ignored."""
        self.free += [int(e) for e in entries if e >= 0]

    def take(self, count: int) -> list[int]:
        """Return ``count`` free entries, which are not free from then on."""
        first = len(self.free) - count
        taken = self.free[first:][::-1]
        del self.free[first:]
        return taken

    def reserve(self, held: Ints, excesses: Ints, chosen: Ints, needed: Ints) -> int:
        """Make entries available for chosen nodes; return how many of these nodes can be processed, at least 1.

        Entries are taken from the open nodes with the smallest excess that are not chosen; these are restored later.

        Parameters
        ----------
        held : (open nodes,) int64
            The entry of each open node, which is changed if the entry is taken.
        excesses : (open nodes,) int64
            The excess of each open node.
        chosen : (k,) int64
            Indices of nodes, best first.
        needed : (k,) int64
            Number of new entries that each of them needs.
        """
        missing = int(needed.sum()) - len(self.free)
        if missing > 0:
            is_other = np.ones(held.size, dtype=np.bool_)
            is_other[chosen] = False
            holders = np.flatnonzero((held >= 0) & is_other)
            worst = holders[np.argsort(excesses[holders], kind="stable")][:missing]
            self.release(held[worst])
            held[worst] = NO_ENTRY
        fitting = int(np.searchsorted(np.cumsum(needed), len(self.free), side="right"))
        if not fitting:  # chosen nodes hold all entries
            later = chosen[1:][held[chosen[1:]] >= 0]
            self.release(held[later])
            held[later] = NO_ENTRY
            fitting = 1
        return fitting
