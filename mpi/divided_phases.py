"""Divide the slices of a combination among ranks that all run every agent of the sliced phases.

In the sliced phases (:mod:`.sliced_phases`) one slice follows the other, so agents on other ranks mostly wait.
Therefore every rank runs all agents by itself, as on one rank. The first agent on each path from the root that has cut
variables makes only its rank's share of slices: consecutive values of its first cut variable. The agents below it work
for these slices only. Then the ranks *merge* their shares: the message to the parent is the maximum of the ranks'
messages, and the decision is that of the best slice, the first one among equals. So the answer is bitwise that of one
rank. Below an agent that has decided, the next agents with cut variables divide theirs.

All other work is repeated by every rank. A rank merges when none of its agents can go on. The agents that wait for a
merge are then the same on all ranks, because they do not depend on which slices a rank has made. Only after an error
they may differ: an agent whose share is missing on a rank has failed there.
"""

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from dmcmc.inference.dpop.agent_step import ChosenValues, Clock, SentMessages, UtilMessage, UtilTables, Values, added
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.types import Array, Number
from dmcmc.mpi import sliced_phases
from dmcmc.mpi.mailbox import Mailbox, SharedAgentTables
from dmcmc.mpi.message_phases import FAILED, Phase
from dmcmc.mpi.world import World

MERGED = "MERGED"  # kind of the messages by which an agent receives the result of a merge
_MAX_REDUCED_BYTES = 1 << 30  # of one reduction; MPI counts have 31 bits

Choice = tuple[Number | None, Values]  # the utility of a rank's best slice, None without slices; and its values


class Share(NamedTuple):
    """The slices of an agent on this rank: their merged message, or the best of them.

    Attributes
    ----------
    failed : bool
        Whether a slice has failed.
    message : UtilTables or None
        The maximum of the slices' messages; None without slices, and for a decision.
    choices : tuple of Choice
        The best slice by the lower and by the upper tables, for a decision.
    clock : Clock
        The agent's simulated clock after its slices.
    checks : int
        Constraint checks on the clock since the slices began.
    """

    failed: bool
    message: UtilTables | None
    choices: tuple[Choice, ...]
    clock: Clock
    checks: int


class _TableForm(NamedTuple):
    """Scope, dtype and shape of a table."""

    scope: tuple[int, ...]
    dtype: str
    shape: tuple[int, ...]


class _ShareForm(NamedTuple):
    """A share without the entries of its tables.

    ``lower`` and ``upper`` are None without a message; ``upper`` also if the message has no upper tables. ``same`` says
    whether the upper tables are the lower ones.
    """

    failed: bool
    lower: tuple[_TableForm, ...] | None
    upper: tuple[_TableForm, ...] | None
    same: bool
    choices: tuple[Choice, ...]
    clock: Clock
    checks: int


class MergingMailbox(Mailbox):
    """Delivers messages between the agents of this rank, which runs all agents, and merges the ranks' shares.

    Parameters
    ----------
    world : World
        The ranks.
    agents : int
        Number of agents.
    """

    def __init__(self, world: World, agents: int) -> None:
        super().__init__(world, (world.rank,) * agents)
        self._shares: dict[int, Share] = {}

    def merge(self, agent: int, share: Share) -> None:
        """Ask for the merge of an agent's shares; the result arrives as its message of kind ``MERGED``."""
        self._shares[agent] = share

    def new_messages(self, kinds: Sequence[str], wait: bool) -> set[tuple[str, int]]:
        """Return (kind, agent) of new messages; if there are none and ``wait`` is set, merge the ranks' shares."""
        if wait and not self._unreported:
            self._merge_shares(finished=False)
        new = set(self._unreported)
        self._unreported.clear()
        return new

    def close(self) -> None:
        """Take part in merges until the agents of all ranks have ended."""
        while not self._merge_shares(finished=True):
            pass
        super().close()

    def _merge_shares(self, finished: bool) -> bool:
        """Merge the agents' shares on all ranks; return whether the agents of all ranks have ended."""
        own, self._shares = self._shares, {}
        forms = self.world.allgather((finished, {agent: _form_of(share) for agent, share in own.items()}), "slices")
        for agent, share in sorted(own.items()):
            on_ranks = [shares.get(agent) for _, shares in forms]
            known = [form for form in on_ranks if form is not None]
            result: Any = FAILED
            if len(known) == len(on_ranks) and not any(form.failed for form in known):
                result = [form.choices for form in known] if share.choices else self._maximum(share.message, known)
            begin = share.clock.checks - share.checks
            clock = Clock(max(form.clock.seconds for form in known), begin + sum(form.checks for form in known))
            self._received[MERGED, agent] = result, clock
            self._unreported.append((MERGED, agent))
        return all(is_finished for is_finished, _ in forms)

    def _maximum(self, own: UtilTables | None, forms: Sequence[_ShareForm]) -> UtilTables:
        """Return the elementwise maximum of all ranks' messages; this rank's tables are overwritten."""
        given = [form for form in forms if form.lower is not None]
        lower_form, upper_form = given[0].lower or (), given[0].upper
        if any(form.upper is None for form in given) or upper_form is None:
            return UtilTables(self._reduced(None if own is None else own.lower, lower_form), None)
        if all(form.same for form in given):
            lower = self._reduced(None if own is None else own.lower, lower_form)
            return UtilTables(lower, lower)
        upper = None if own is None else own.upper
        if own is not None and upper is own.lower:
            upper = tuple([EncodedTable(table.scope, table.values.copy()) for table in own.lower])
        lower = self._reduced(None if own is None else own.lower, lower_form)
        return UtilTables(lower, self._reduced(upper, upper_form))

    def _reduced(self, tables: UtilMessage | None, forms: Sequence[_TableForm]) -> UtilMessage:
        """Return the elementwise maximum of all ranks' tables; None for a rank without slices."""
        return tuple(
            [
                EncodedTable(form.scope, self._reduced_entries(None if tables is None else tables[number], form))
                for number, form in enumerate(forms)
            ]
        )

    def _reduced_entries(self, table: Any, form: _TableForm) -> Array:
        """Return the elementwise maximum of a table over all ranks."""
        from mpi4py import MPI

        if table is None:
            dtype = np.dtype(form.dtype)
            entries: Array = np.full(form.shape, forbidden_value(dtype), dtype=dtype)
        else:
            axes = [table.scope.index(v) for v in form.scope]
            entries = np.ascontiguousarray(table.values.transpose(axes))
        flat, step = entries.reshape(-1), _MAX_REDUCED_BYTES // entries.itemsize
        for begin in range(0, flat.size, step):
            self.world.comm.Allreduce(MPI.IN_PLACE, flat[begin : begin + step], MPI.MAX)
        self.world.counts.add("slices", 0, entries.nbytes)
        return entries


class SliceDivision:
    """Which agents divide their slices now.

    Parameters
    ----------
    mailbox : MergingMailbox
        Delivers messages and merges shares.
    tree : PseudoTree
        The agents' tree.

    Attributes
    ----------
    sent : dict of dict of SentMessages
        By kind and agent, the messages that agents of this rank have sent for its share of slices.
    answers : dict of dict
        By agent and child, the values in the latest request, and the answer.
    """

    def __init__(self, mailbox: MergingMailbox, tree: "PseudoTree") -> None:
        self.mailbox, self._tree, self._inside = mailbox, tree, set[int]()
        self.sent: dict[str, dict[int, SentMessages]] = {}
        self.answers: dict[int, dict[int, tuple[ChosenValues, UtilTables]]] = {}

    def is_inside(self, agent: int) -> bool:
        """Return whether an agent works for a rank's share of slices, its own or those of an ancestor."""
        return agent in self._inside

    def begin(self, agent: int, values: int) -> range:
        """Begin an agent's share; return its values of the first cut variable, which has ``values`` values."""
        self._inside.update(subtree_of(self._tree, agent))
        rank, ranks = self.mailbox.world.rank, self.mailbox.world.size
        return range(values * rank // ranks, values * (rank + 1) // ranks)

    def end(self, agent: int, cut: set[int]) -> None:
        """End an agent's share, and forget the answers for values of its cut variables: the ranks have others."""
        for one in subtree_of(self._tree, agent):
            self._inside.discard(one)
            answers = self.answers[one]
            for child in [c for c, (request, _) in answers.items() if not cut.isdisjoint(request.lower)]:
                del answers[child]

    def messages_of_all_ranks(self, sent: Mapping[str, dict[int, SentMessages]]) -> None:
        """Add the messages that all ranks' shares have taken to those that every rank has sent; called by all ranks."""
        for divided in self.mailbox.world.allgather(self.sent, "slices"):
            for kind, by_agent in divided.items():
                for agent, more in by_agent.items():
                    sent[kind][agent] = added(sent[kind].get(agent, SentMessages(0, 0, kind)), more)


def subtree_of(tree: "PseudoTree", agent: int) -> list[int]:
    """Return an agent and all agents below it."""
    agents = [agent]
    for one in agents:  # the list grows during the loop
        agents.extend(tree.children[one])
    return agents


def _form_of(share: Share) -> _ShareForm:
    """Return a share without the entries of its tables."""

    def forms(tables: UtilMessage | None) -> tuple[_TableForm, ...] | None:
        if tables is None:
            return None
        return tuple([_TableForm(t.scope, t.values.dtype.str, t.values.shape) for t in tables])

    message = share.message
    lower, upper = (None, None) if message is None else (forms(message.lower), forms(message.upper))
    same = message is not None and message.upper is message.lower
    return _ShareForm(share.failed, lower, upper, same, share.choices, share.clock, share.checks)


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
    work: sliced_phases.Work,
    mailbox: Mailbox,
    clocks: dict[int, Clock],
    is_divided: bool,
) -> sliced_phases.SlicedPhaseResult:
    """Run both phases for this rank's agents; a collective call.

    The first four parameters are those of :class:`.sliced_phases.SlicedPhaseInput`. The others and the errors are those
    of :func:`.sliced_phases.run_slices`. If ``is_divided`` is set, the slices are divided among the ranks, and ``work``
    makes steps of any agent: every rank knows all tables.
    """
    job = sliced_phases.SlicedPhaseInput(tree, separators, cut, work)
    if not is_divided:
        return sliced_phases.run_slices(job, mailbox, clocks)
    world, agents = mailbox.world, job.tree.bottom_up
    division = SliceDivision(MergingMailbox(world, len(agents)), job.tree)
    all_clocks = world.union(clocks)
    outcome = sliced_phases.run_agents(job, division.mailbox, all_clocks, partial(_DividingAgent, division))
    division.messages_of_all_ranks(outcome.sent)
    own = set(mailbox.local_agents(agents))
    clocks.update((agent, all_clocks[agent]) for agent in own)
    return sliced_phases.SlicedPhaseResult(
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


class _DividingAgent(sliced_phases.SlicedAgent):
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
        job: sliced_phases.SlicedPhaseInput,
        phase: Phase,
        clocks: dict[int, Clock],
        outcome: sliced_phases.SlicedPhaseResult,
    ) -> None:
        super().__init__(agent, job, phase, clocks, outcome)
        self.division, self._since = division, clocks[agent]
        division.answers[agent] = self._latest_answers

    def _util_message(
        self, fixed: ChosenValues, first: range | None = None
    ) -> Generator[tuple[set[sliced_phases.Key], bool], sliced_phases.Received, UtilTables | None]:
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
    ) -> Generator[
        tuple[set[sliced_phases.Key], bool],
        sliced_phases.Received,
        tuple[sliced_phases.BestSlice, sliced_phases.BestSlice] | None,
    ]:
        """Return the best slices of all ranks by the lower and by the upper tables; the first rank's among equals."""
        if not self._divides:
            return (yield from super()._best_slices(context))
        first = yield from self._begin_share(context)
        own = (
            (yield from super()._best_slices(context, first))
            if first
            else (sliced_phases.BestSlice(), sliced_phases.BestSlice())
        )
        choices = () if own is None else tuple([(found.total, found.values) for found in own])
        by_rank = yield from self._merged(Share(own is None, None, choices, *self._since_begin))
        if by_rank is FAILED:
            return None
        best = sliced_phases.BestSlice(), sliced_phases.BestSlice()
        for of_rank in by_rank:
            for found, (total, values) in zip(best, of_rank, strict=True):
                found.replace_if_better(total, values)
        return best

    @property
    def _divides(self) -> bool:
        """Whether this agent divides its slices now."""
        return self.agent in self.job.cut and not self.division.is_inside(self.agent)

    def _begin_share(
        self, fixed: ChosenValues
    ) -> Generator[tuple[set[sliced_phases.Key], bool], sliced_phases.Received, range]:
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

    def _merged(self, share: Share) -> Generator[tuple[set[sliced_phases.Key], bool], sliced_phases.Received, Any]:
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
