"""Move open nodes between searches of the same rows on several ranks: what is moved, and how many from where to where.

A search that moves nodes holds a *part* of the open nodes of its rows. The largest bound over all parts is a bound of
the rows. A moved node takes the values that each variable may have and its bound with it; its tables are computed
again from the row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Ints


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
