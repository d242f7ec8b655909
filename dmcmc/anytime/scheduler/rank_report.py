"""The rank report: what each rank sends to rank 0 after a cycle (its agents' proposals, and the gains of past work)."""

from collections.abc import Mapping
from typing import NamedTuple

from dmcmc.anytime.scheduler.proposal import MeasuredGain, Proposal
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.size_statistics import SizeStatistics


class RankReport(NamedTuple):
    """The report of one rank after a cycle (a combination of all agents' tables).

    Attributes
    ----------
    roots : dict
        Encoded upper bounds of this rank's root agents, by agent; None if a table in the agent's tree has no bound. A
        root agent is the root of the pseudo-tree of its component; *encoded* means in the number type of the tables.
    proposals : tuple of Proposal
        Work that improvers could do for the rank's agents.
    gains : tuple of MeasuredGain
        Costs and gains of the work since the last report.
    relaxed : bool
        Whether the combination split upper-bound tables into mini-buckets.
    pruned : bool
        Whether rows have been pruned since the last report, or pruning has not been tried yet.
    stop_requested : bool
        Whether the user has asked the run to end.
    filtered_sizes : tuple of SizeStatistics
        Sizes of the filtered messages of this rank's agents (function filtering).
    """

    roots: Mapping[int, Number | None] = {}
    proposals: tuple[Proposal, ...] = ()
    gains: tuple[MeasuredGain, ...] = ()
    relaxed: bool = False
    pruned: bool = False
    stop_requested: bool = False
    filtered_sizes: tuple[SizeStatistics, ...] = ()
