"""The sliced phases with slices that are divided among the ranks, see :mod:`.division`."""

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from dmcmc.inference.dpop.agent_step import ChosenValues, Clock, SentMessages, UtilMessage, UtilTables
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.mpi.division import MERGED, MergingMailbox, Share, SliceDivision, subtree_of
from dmcmc.mpi.mailbox import Mailbox, SharedAgentTables
from dmcmc.mpi.message_phases import FAILED, Phase
from dmcmc.mpi.sliced_phases import (
    BestSlice,
    Key,
    Received,
    SlicedAgent,
    SlicedPhaseInput,
    SlicedPhaseResult,
    Work,
    run_agents,
    run_slices,
)
from dmcmc.mpi.world import World

_MAX_SHARED_BYTES = 1 << 30  # bytes of all agents' tables that the ranks exchange at most; MPI counts have 31 bits


class AgentTables(Protocol):
    """The tables of an agent: lower bounds, upper bounds or None, and whether both are exact."""

    @property
    def lower(self) -> UtilMessage:
        """The tables of lower bounds."""

    @property
    def upper(self) -> UtilMessage | None:
        """The tables of upper bounds, or None."""

    @property
    def exact(self) -> bool:
        """Whether the tables are exact."""


def combine_slices(
    tree: PseudoTree,
    separators: Sequence[Sequence[int]],
    cut: Mapping[int, Sequence[tuple[int, int]]],
    work: Work,
    mailbox: Mailbox,
    clocks: dict[int, Clock],
    is_divided: bool,
) -> SlicedPhaseResult:
    """Run both phases for this rank's agents; a collective call.

    The first four parameters are those of :class:`.sliced_phases.SlicedPhaseInput`. The others and the errors are those
    of :func:`.sliced_phases.run_slices`. If ``is_divided`` is set, the slices are divided among the ranks, and ``work``
    makes steps of any agent: every rank knows all tables.
    """
    job = SlicedPhaseInput(tree, separators, cut, work)
    if not is_divided:
        return run_slices(job, mailbox, clocks)
    world, agents = mailbox.world, job.tree.bottom_up
    division = SliceDivision(MergingMailbox(world, len(agents)), job.tree)
    all_clocks = world.union(clocks)
    outcome = run_agents(job, division.mailbox, all_clocks, partial(_DividingAgent, division))
    division.messages_of_all_ranks(outcome.sent)
    own = set(mailbox.local_agents(agents))
    clocks.update((agent, all_clocks[agent]) for agent in own)
    return SlicedPhaseResult(
        {agent: decision for agent, decision in outcome.decided.items() if agent in own},
        {agent: step for agent, step in outcome.steps.items() if agent in own},
        {kind: {a: sent for a, sent in by_agent.items() if a in own} for kind, by_agent in outcome.sent.items()},
    )


def tables_of_all_ranks(
    world: World, tables: Mapping[int, AgentTables], clocks: Mapping[int, Clock], limit: int
) -> dict[int, SharedAgentTables] | None:
    """Return the tables of all agents, on every rank; None if they exceed a limit, or one is not dense.

    Parameters
    ----------
    world
        The ranks, which call this together.
    tables
        The tables of this rank's agents.
    clocks
        Their clocks.
    limit
        Upper bound on the bytes of all agents' tables, besides 1 GiB.
    """
    sides = [side for table in tables.values() for side in (table.lower, table.upper or ())]
    is_dense = all(isinstance(table, EncodedTable) for side in sides for table in side)
    own = {
        agent: SharedAgentTables.on_host(table.lower, table.upper, table.exact, clocks[agent])
        for agent, table in tables.items()
        if is_dense
    }
    reports = world.allgather((is_dense, sum(table.size for table in own.values())))
    fits = sum(size for _, size in reports) <= min(limit, _MAX_SHARED_BYTES)
    return world.union(own) if fits and all(dense for dense, _ in reports) else None


def is_faster_divided(
    tree: PseudoTree,
    cut_values: Mapping[int, int],
    seconds: Sequence[float],
    owner: Sequence[int],
    ranks: int,
) -> bool:
    """Return whether the phases are estimated to be faster if slices are divided than if each rank has its agents.

    With agents on their ranks, the phases take at least the time of the busiest rank, and of the longest path to a
    root. With divided slices, every rank has all work outside of them, and of each division the largest share.

    Parameters
    ----------
    tree
        The agents' tree.
    cut_values
        For each agent with cut variables, the number of values of the first one.
    seconds
        Estimated seconds of each agent's steps.
    owner
        The rank of each agent.
    ranks
        Number of ranks.
    """
    busiest, path, inside = [0.0] * ranks, [0.0] * len(seconds), set[int]()
    for agent in tree.bottom_up:
        busiest[owner[agent]] += seconds[agent]
        path[agent] = seconds[agent] + max((path[child] for child in tree.children[agent]), default=0.0)
    divided = 0.0
    for agent in reversed(tree.bottom_up):  # parents first
        if agent in inside:
            continue
        if agent not in cut_values:
            divided += seconds[agent]
            continue
        agents, values = subtree_of(tree, agent), cut_values[agent]
        inside.update(agents)
        divided += sum(seconds[one] for one in agents) * -(-values // ranks) / values
    return divided < max(*busiest, *path, 0.0)


class _DividingAgent(SlicedAgent):
    """An agent that makes this rank's share of its slices, unless it works for the share of an ancestor.

    Attributes
    ----------
    division : SliceDivision
        Which agents divide their slices now.
    _since : Clock
        The agent's clock when this rank's share began.
    """

    def __init__(
        self,
        division: SliceDivision,
        agent: int,
        job: SlicedPhaseInput,
        phase: Phase,
        clocks: dict[int, Clock],
        outcome: SlicedPhaseResult,
    ) -> None:
        super().__init__(agent, job, phase, clocks, outcome)
        self.division, self._since = division, clocks[agent]
        division.answers[agent] = self._latest_answers

    def _util_message(
        self, fixed: ChosenValues, first: range | None = None
    ) -> Generator[tuple[set[Key], bool], Received, UtilTables | None]:
        """Return the message for fixed values: the maximum of the messages of all ranks' slices."""
        if not self._divides:
            return (yield from super()._util_message(fixed))
        first = yield from self._begin_share(fixed)
        best = (yield from super()._util_message(fixed, first)) if first else None
        share = Share(bool(first) and best is FAILED, best, (), *self._since_begin)
        merged: UtilTables | None = yield from self._merged(share)
        self._message_buffer = merged
        return merged

    def _best_slices(
        self, context: ChosenValues, first: range | None = None
    ) -> Generator[tuple[set[Key], bool], Received, tuple[BestSlice, BestSlice] | None]:
        """Return the best slices of all ranks by the lower and by the upper tables; the first rank's among equals."""
        if not self._divides:
            return (yield from super()._best_slices(context))
        first = yield from self._begin_share(context)
        own = (yield from super()._best_slices(context, first)) if first else (BestSlice(), BestSlice())
        choices = () if own is None else tuple([(found.total, found.values) for found in own])
        by_rank = yield from self._merged(Share(own is None, None, choices, *self._since_begin))
        if by_rank is FAILED:
            return None
        best = BestSlice(), BestSlice()
        for of_rank in by_rank:
            for found, (total, values) in zip(best, of_rank, strict=True):
                found.replace_if_better(total, values)
        return best

    @property
    def _divides(self) -> bool:
        """Whether this agent divides its slices now."""
        return self.agent in self.job.cut and not self.division.is_inside(self.agent)

    def _begin_share(self, fixed: ChosenValues) -> Generator[tuple[set[Key], bool], Received, range]:
        """Begin this rank's share of slices for fixed values; return its values of the first cut variable.

        Children whose messages do not depend on the cut variables are asked before, so that all ranks ask them once.
        """
        cut = self.job.cut[self.agent]
        cut_variables = {v for v, _ in cut}
        yield from self._ask([c for c in self.children if cut_variables.isdisjoint(self.job.separators[c])], fixed)
        self._since = self.clocks[self.agent]
        return self.division.begin(self.agent, cut[0][1])

    @property
    def _since_begin(self) -> tuple[Clock, int]:
        """The agent's clock, and its constraint checks since its share of slices began."""
        clock = self.clocks[self.agent]
        return clock, clock.checks - self._since.checks

    def _merged(self, share: Share) -> Generator[tuple[set[Key], bool], Received, Any]:
        """Return the merged shares of all ranks; FAILED if one has failed.

        Answers for values of the cut variables are asked for again: they differ between the ranks.
        """
        self.division.end(self.agent, {v for v, size in self.job.cut[self.agent] if size > 1})
        self.division.mailbox.merge(self.agent, share)
        ((_, merged),) = (yield from self._wait_for({(MERGED, self.agent)})).items()
        return merged

    def _counted(self, kind: str) -> dict[int, SentMessages]:
        """Return the statistics of the messages for shares, which all ranks add up, or of those of every rank."""
        if self.division.is_inside(self.agent):
            return self.division.sent.setdefault(kind, {})
        return super()._counted(kind)
