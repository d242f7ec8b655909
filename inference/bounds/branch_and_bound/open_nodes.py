"""The open nodes of a search, and what is known at its leaves.

Open nodes of a branch and bound over an agent's rows, and the buffer entries that store what they start from.

See :mod:`.frontier`. n is the number of hidden variables, W the number of columns of a table.

Move open nodes between searches of the same rows on several ranks: what is moved, and how many from where to where.

A search that moves nodes holds a *part* of the open nodes of its rows. The largest bound over all parts is a bound of
the rows. A moved node takes the values that each variable may have and its bound with it; its tables are computed again
from the row.

Complete assignments that a branch and bound has found: leaves, where every hidden variable has one value left.

Replace the bounds of leaves by their exact utilities.

A leaf's only assignment has the utility that its factors add up to. The bound that a bounder has computed for it may be
higher, since stored tables are rounded up; a search that ends with it would leave a gap open for ever.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.bounder import JOB_ROW, LEAF, UNFINISHED, BatchResult, SearchBatch
from dmcmc.inference.bounds.dual.integer_scaling import Scale
from dmcmc.inference.model.arithmetic import exact_sum, round_up
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.types import Ints, Number

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


class NodeParcel(NamedTuple):
    """Open nodes that one search gives to another one: parallel arrays with one element per node.

    Attributes
    ----------
    row : (k,) int64
        Row of the node.
    bound : (k,) int64
        Upper bound in the agent's integer scale.
    mask : (k, bytes) uint8
        Packed bits: remaining values of all hidden variables.
    """

    row: Ints
    bound: Ints
    mask: NDArray[np.uint8]


class NodeMove(NamedTuple):
    """A decision to move some nodes.

    Attributes
    ----------
    source, target : int
        Ranks.
    nodes : int
        Number of nodes.
    """

    source: int
    target: int
    nodes: int


def planned_moves(best: Sequence[Ints | None], nodes_per_rank: int) -> list[NodeMove]:
    """Return the moves after which all ranks hold about as many of the best open nodes.

    The best nodes are those with the largest excess over all ranks, ``nodes_per_rank`` times the number of ranks. A
    rank that holds more of them than the average gives its surplus away, but keeps at least one node.

    Parameters
    ----------
    best : sequence of (k,) int64 or None
        For each rank, the excesses of its best open nodes, descending; None for a rank that takes no nodes.
    nodes_per_rank : int
        Number of nodes that suffice for a rank until the next exchange.

    Returns
    -------
    list of NodeMove
        Empty if the best nodes are spread evenly.
    """
    held = {rank: excesses for rank, excesses in enumerate(best) if excesses is not None}
    total = sum(excesses.size for excesses in held.values())
    if len(held) < 2 or not total:
        return []
    excesses = np.concatenate([held[rank] for rank in held])
    rank_of = np.repeat([*held], [held[rank].size for rank in held])
    chosen = rank_of[np.argsort(-excesses, kind="stable")[: nodes_per_rank * len(held)]]
    counts = {rank: int((chosen == rank).sum()) for rank in held}
    share, remainder = divmod(chosen.size, len(held))
    # ranks that hold most keep the remainder, so that nothing moves where the parts are as equal as they can be
    targets = {
        rank: share + (position < remainder)
        for position, rank in enumerate(sorted(held, key=lambda rank: (-counts[rank], rank)))
    }
    surplus = {rank: min(counts[rank] - targets[rank], held[rank].size - 1) for rank in held}
    moves = list[NodeMove]()
    for target in (rank for rank in held if surplus[rank] < 0):
        for source in (rank for rank in held if surplus[rank] > 0):
            count = min(surplus[source], -surplus[target])
            if count > 0:
                moves.append(NodeMove(source, target, count))
                surplus[source], surplus[target] = surplus[source] - count, surplus[target] + count
    return moves


class LeafAssignments:
    """Collects the best assignment of each row that was added since the last call of ``pop_all``."""

    def __init__(self) -> None:
        self._best: dict[int, tuple[int, NDArray[Any]]] = {}

    def add(self, rows: Ints, bounds: Ints, masks: NDArray[np.bool_]) -> None:
        """Add leaves; of several leaves of a row, the one with the largest utility is retained.

        Parameters
        ----------
        rows : (k,) int64
            Row of each leaf.
        bounds : (k,) int64
            Utility of each leaf in the agent's integer scale; its upper bound is exact.
        masks : (k, n, W) bool
            Remaining values of each hidden variable, exactly one per variable.
        """
        values = masks.argmax(axis=2)
        for row, bound, values_of_row in zip(rows.tolist(), bounds.tolist(), values, strict=True):
            if row not in self._best or bound > self._best[row][0]:
                self._best[row] = bound, values_of_row

    def pop_all(self) -> tuple[Ints, Ints] | None:
        """Return and remove the assignments: rows (k,) and hidden values (k, n); None if there are none."""
        best, self._best = self._best, {}
        if not best:
            return None
        rows = np.array(sorted(best), dtype=np.int64)
        return rows, np.array([best[row][1] for row in rows.tolist()], dtype=np.int64)


def with_exact_leaves(local: Subproblem, scale: Scale, batch: SearchBatch, results: BatchResult) -> BatchResult:
    """Return the results of a batch with the bounds of its leaves lowered to their utilities.

    Parameters
    ----------
    local : Subproblem
        The agent's problem.
    scale : Scale
        The agent's integer scale.
    batch : SearchBatch
        The jobs.
    results : BatchResult
        Their results.
    """
    leaves = np.flatnonzero(results.variables == LEAF)
    if not leaves.size:
        return results
    utilities = utilities_of(local, batch.jobs[leaves, JOB_ROW], results.masks[leaves].argmax(axis=2))
    bounds = results.bounds.copy()
    bounds[leaves] = np.minimum(bounds[leaves], [scale.encode_up(utility) for utility in utilities])
    return results._replace(bounds=bounds)


def utilities_of(local: Subproblem, rows: Ints, values: Ints) -> list[Number]:
    """Return the utilities of rows (k,) with values of the hidden variables (k, n), rounded up; −inf if forbidden."""
    digits = np.unravel_index(rows, local.interface_shape) if local.interface else ()
    value_of = dict(zip(local.interface, digits, strict=True)) | dict(zip(local.hidden, values.T, strict=True))
    entries = [
        np.broadcast_to(factor.table[tuple(value_of[v] for v in factor.scope)], rows.shape) for factor in local.factors
    ]
    is_forbidden = np.logical_or.reduce([forbidden(column) for column in entries])
    addends = zip(*(column.tolist() for column in entries), strict=True)
    return [
        -math.inf if barred else round_up(exact_sum(numbers))
        for barred, numbers in zip(is_forbidden, addends, strict=True)
    ]
