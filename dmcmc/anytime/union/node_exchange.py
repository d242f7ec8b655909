"""Share the open nodes of the search of the union of all agents among ranks, after each time slice.

Each rank bounds the union itself, and holds a part of the open nodes. After its slice, every rank reports the bound of
its part and of the union, and its best nodes; rank 0 decides which nodes move, so that all ranks hold as many of the
best ones. The bound of the whole problem is the largest bound of a part, or the smallest one of the union.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.node_parcel import NodeMove, NodeParcel, planned_moves
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.mpi.world import World
from dmcmc.tuning import anytime as tuning


class PartReport(NamedTuple):
    """The report of one rank's part of the search to all ranks.

    Attributes
    ----------
    bound : int or float
        Upper bound on the utility of the whole problem that this rank has proven alone.
    part : int, float or None
        Upper bound on the utility in this rank's part; −inf if that has no better assignment, None if this rank has
        not opened a search.
    best : (k,) int64 or None
        Excesses of its best open nodes, descending; None if it takes no nodes.
    leaves : list of (n,) int64
        Complete assignments that its search has reached.
    """

    bound: Number
    part: Number | None
    best: Ints | None
    leaves: list[NDArray[np.int64]]


class ExchangeDecision(NamedTuple):
    """The decision of rank 0 after all reports.

    Attributes
    ----------
    bound : int or float
        Upper bound on the utility of the whole problem.
    moves : list of NodeMove
        Nodes that change ranks.
    awaited : bool
        Whether a rank has too few nodes, so that the next exchange has to come soon.
    """

    bound: Number
    moves: list[NodeMove]
    awaited: bool


class NodeHolder(Protocol):
    """A part of a search: ``UnionAgent`` in a run."""

    def report(self) -> PartReport:
        """Return the report of this part."""
        ...

    def give(self, count: int) -> NodeParcel:
        """Remove and return some of the best open nodes."""
        ...

    def take(self, parcel: NodeParcel) -> None:
        """Add open nodes of another part."""
        ...

    def lower(self, bound: Number, awaited: bool) -> None:
        """Take the bound that all parts have proven together."""
        ...


def decide(reports: Sequence[PartReport | None]) -> ExchangeDecision | None:
    """Return rank 0's decision; None if rank 0 has no part.

    Parameters
    ----------
    reports : sequence of PartReport or None
        One per rank; None for a rank without a part.
    """
    present = [report for report in reports if report is not None]
    if not reports or reports[0] is None:
        return None
    bound = min(report.bound for report in present)
    if reports[0].part is not None:  # every node is in a part
        bound = min(bound, max(report.part for report in present if report.part is not None))
    best = [None if report is None else report.best for report in reports]
    moves = planned_moves(best, tuning.SHARED_NODES)
    received = {move.target for move in moves}
    awaited = any(
        part is not None and not part.size and rank not in received for rank, part in enumerate(best) if rank
    ) or (len(present) > 1 and reports[0].part is None)
    return ExchangeDecision(bound, moves, awaited)


def exchange_nodes(world: World, holder: NodeHolder | None) -> list[NDArray[np.int64]]:
    """Share nodes and bounds among all ranks; a collective call. Return all assignments found (rank 0).

    Parameters
    ----------
    world : World
        The ranks.
    holder : NodeHolder or None
        This rank's part; None if it has none yet.
    """
    reports = world.gather(world.on_all_ranks(lambda: None if holder is None else holder.report()), "nodes")
    decision = world.on_first_rank(lambda: decide(reports or []))
    if decision is None:
        return []

    def give() -> dict[int, NodeParcel]:
        own = [move for move in decision.moves if move.source == world.rank]
        return {} if holder is None else {move.target: holder.give(move.nodes) for move in own}

    given = world.on_all_ranks(give)
    parcels = world.allgather(given, "nodes") if decision.moves else [given]
    if holder is not None:
        for parcel_by_rank in parcels:
            if world.rank in parcel_by_rank:
                holder.take(parcel_by_rank[world.rank])
        holder.lower(decision.bound, decision.awaited)
    return [values for report in reports or [] if report is not None for values in report.leaves]
