"""Bound and search the union of all agents (:mod:`dmcmc.anytime.union`) while the agents' tables are improved."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.scheduler.proposal import MeasuredGain
from dmcmc.anytime.union.node_exchange import exchange_nodes
from dmcmc.anytime.union.union_agent import UnionAgent
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.samplers.tuning import common
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.local_tables import initial_seconds
from dmcmc.solving.planning.setup import Setup

if TYPE_CHECKING:
    from dmcmc.anytime.whole_searches import WholeSearches


class UnionPart:
    """The part of one rank in the union of all agents, once its bound is started.

    Parameters
    ----------
    world
        The ranks.
    incumbent
        The best assignment and bound, on rank 0.
    searches
        The searches over the whole assignment.
    provider
        Bound provider of the union; None if it is not bounded on this rank.

    Attributes
    ----------
    provider : str or None
        The parameter.
    agent : UnionAgent or None
        The union as an agent; None before its bound is started.
    """

    def __init__(self, world: World, incumbent: Incumbent, searches: "WholeSearches", provider: str | None) -> None:
        self._world, self._incumbent, self._searches, self.provider = world, incumbent, searches, provider
        self.agent: UnionAgent | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the union is to be bounded, and has no bound yet."""
        return self.agent is None and self.provider is not None

    def start(self, setup: Setup) -> None:
        """Give the union its first bound on this rank."""
        assert self.provider is not None, "a plan wants the union"
        is_first = self._world.rank == 0

        def utility() -> Number | None:
            return self._incumbent.utility if is_first else self._searches.feasible_utility

        seconds = common.UNTRIED_SHARE * initial_seconds(setup)  # as long as the agents' first bounds may take
        shared = self._world.size > 1
        self.agent = UnionAgent(setup, self.provider, utility, seconds, self._world.rank, shared)
        if is_first:
            self._incumbent.update_bound(self.agent.bound, self.agent.bounded_by)

    def anew(self) -> "UnionPart":
        """Return a part without a bound, for another plan."""
        return UnionPart(self._world, self._incumbent, self._searches, self.provider)

    def exchange(self, improvers: Sequence[str]) -> list[MeasuredGain]:
        """Share the nodes of the search among ranks, and record the bound and the assignments on rank 0.

        Parameters
        ----------
        improvers
            Names of the improvers that have worked on the union.

        Returns
        -------
        list of MeasuredGain
            The gains of the parts of other ranks.
        """
        union = self.agent
        before = None if union is None else union.gap
        leaves = exchange_nodes(self._world, union)
        if union is None or self._world.rank > 0:
            return []
        self.record(union, leaves, improvers)
        after = union.gap
        if before is None or after is None or after >= before:
            return []
        return [MeasuredGain(union.searched_by, 0.0, closed_gap=before - after)]

    def record(self, union: UnionAgent, leaves: Sequence[NDArray[np.int64]], improvers: Sequence[str]) -> None:
        """Record the assignments that a search has reached, and the bound that improvers have proven (rank 0)."""
        self._searches.record(leaves, union.searched_by)
        self._incumbent.update_bound(union.bound, ", ".join(improvers))
