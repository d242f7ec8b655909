"""Bound and search the union of all agents (:mod:`dmcmc.anytime.union`) while the agents' tables are improved."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.director import Director
from dmcmc.anytime.improvers import registry
from dmcmc.anytime.improvers.protocol import RankState, TimeSlice
from dmcmc.anytime.run_improvers import improve_agents
from dmcmc.anytime.scheduler.directive import Directive
from dmcmc.anytime.scheduler.proposal import MeasuredGain, Needs
from dmcmc.anytime.scheduler.scheduler import Scheduler
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
        self._improvers = [one for one in registry.create(timed=True) if one.properties.needs is Needs.CORE]
        self._director = Director(incumbent, Scheduler((0,), registry.declared(self._improvers)))
        self._gains = list[MeasuredGain]()  # of the last work before there were tables

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

    def work_alone(self, setup: Setup, is_ready: Callable[[str], bool]) -> bool:
        """Bound or search the union for a time slice while there are no tables of agents; called by rank 0.

        Parameters
        ----------
        setup
            The plan, with the deadline of the run.
        is_ready
            Returns whether an improver, given by its name, has its kernels on this rank.

        Returns
        -------
        bool
            Whether there was anything to do.
        """
        if self.is_waiting:
            self.start(setup)
        union = self.agent
        assert union is not None, "it has been started"
        best = self._incumbent.values if self._incumbent.feasible else None
        state = RankState({union.number: union.agent}, {union.number: union.gap}, best, is_ready=is_ready)
        proposals = [replace(one, awaited=True) for one in registry.proposals_of(self._improvers, state)]
        directive = Directive(False, allocations=self._director.decide_on_union(proposals, self._gains), best=best)
        if directive.allocations:
            time_slice = union.added_to(TimeSlice({}, lambda agent: None, setup.backend))
            self._gains = improve_agents(self._improvers, time_slice, directive).gains
            self._record(union, exchange_nodes(World(), union), directive.improvers)
        return bool(directive.allocations)

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
        self._record(union, leaves, improvers)
        after = union.gap
        if before is None or after is None or after >= before:
            return []
        return [MeasuredGain(union.searched_by, 0.0, closed_gap=before - after)]

    def _record(self, union: UnionAgent, leaves: Sequence[NDArray[np.int64]], improvers: Sequence[str]) -> None:
        """Record the assignments that a search has reached, and the bound that improvers have proven (rank 0)."""
        self._searches.record(leaves, union.searched_by)
        self._incumbent.update_bound(union.bound, ", ".join(improvers))
