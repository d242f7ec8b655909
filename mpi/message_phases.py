"""DPOP's two phases on several ranks: UTIL messages go up the agents' tree, VALUE messages go down.

Every rank runs its agents, first those whose messages have arrived. A message between agents of one rank is passed
directly; one between ranks is sent without waiting. Both are counted in the same way: one message per tree edge and
phase, with the bytes of its tables' entries and indices, independent of MPI's overhead. A tree edge is identified by
its lower agent.

An agent's clock is a simulated time, sent with its messages (Sultanik et al. 2008). It is the time at which the agent
would finish if messages took no time and every agent had its own machine, as fast as this rank's share of its node.

If an agent's work fails, it sends a failure message (``FAILED``) in place of its messages, and so does an agent that
receives one. So every rank reaches the end of the phase, where all ranks raise the error.

Two other phases go down the tree (:func:`send_down`): which rows of a child's UTIL message its parent can use, before
the UTIL phase, and bounds on what all other agents can add, after the VALUE phase.

For some agents, lower and upper tables differ: sums of lower tables are attained utilities, sums of upper tables are
upper bounds. The steps of both go through a phase together.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dmcmc.inference.dpop import agent_step
from dmcmc.inference.runtime.errors import DmcmcError

if TYPE_CHECKING:
    from dmcmc.inference.dpop.pseudotree import PseudoTree
    from dmcmc.mpi.mailbox import Mailbox

T = TypeVar("T")

FAILED = None  # sent in place of a message by an agent that has failed, so that no agent waits for the message


class Phase:
    """One phase on this rank, or several in turn: the errors of its agents, and the common end of all ranks.

    Parameters
    ----------
    mailbox : Mailbox
        The messages.
    order : sequence of int
        All agents in the order of the phase.
    """

    def __init__(self, mailbox: "Mailbox", order: Sequence[int] = ()) -> None:
        self.mailbox = mailbox
        self._failures: list[tuple[int, int, Exception]] = []
        self._end = 0
        self.proceed(order)

    def proceed(self, order: Sequence[int]) -> None:
        """Begin the next phase, whose errors are raised together with those of the phases before.

        Parameters
        ----------
        order : sequence of int
            All agents in the order of the next phase.
        """
        self._position = {agent: self._end + i for i, agent in enumerate(self.mailbox.local_agents(order))}
        self._end += len(self._position)

    @contextmanager
    def storing_errors(self, agent: int) -> Iterator[None]:
        """Store an error of an agent's work in this block until :meth:`close`.

        If there is only one rank, the error is raised at once.
        """
        try:
            yield
        except Exception as error:
            if self.mailbox.world.size == 1:
                self.mailbox.discard()
                raise
            order = error.order if isinstance(error, DmcmcError) else -1
            self._failures.append((order, self._position[agent], error))

    def close(self) -> None:
        """Wait for all ranks; raise an error of any rank on all of them.

        If several agents of this rank have failed, the error with the lowest ``DmcmcError.order`` is raised, or among
        equal ones that of the first agent in the order of the phase. So the choice does not depend on timing. Other
        exceptions have the order −1.
        """
        self.mailbox.close()
        self.mailbox.world.agree(self._first_failure())

    def report(self) -> None:
        """Raise an error of any rank on all of them, as :meth:`close` does; all ranks make a collective call next.

        Without an error nothing is exchanged: the other ranks learn of an error in that call.
        """
        self.mailbox.close()
        if (failure := self._first_failure()) is not None:
            self.mailbox.world.agree(failure)

    def _first_failure(self) -> Exception | None:
        """Return the error that :meth:`close` raises for this rank; None if no agent has failed."""
        failure = min(self._failures, key=lambda failure: failure[:2], default=None)
        return None if failure is None else failure[2]


def _agents_as_messages_arrive(mailbox: "Mailbox", kind: str, awaited: Mapping[int, Sequence[int]]) -> Iterator[int]:
    """Yield each of this rank's agents once all its messages have arrived.

    If several agents are ready, the first in the order of ``awaited`` is next.

    Parameters
    ----------
    mailbox : Mailbox
        The messages.
    kind : str
        The kind of message.
    awaited : dict
        For each agent, in the order of the phase, the edges along which it waits for messages, by their lower agents.
    """
    position = {agent: place for place, agent in enumerate(awaited)}
    receiver = {edge: agent for agent, edges in awaited.items() for edge in edges}
    missing = {agent: len(edges) for agent, edges in awaited.items()}
    ready = [position[agent] for agent, count in missing.items() if not count]
    agents, remaining = list(awaited), len(awaited)
    heapify(ready)
    while remaining:
        for edge in mailbox.arrived(kind, wait=not ready):
            agent = receiver[edge]
            missing[agent] -= 1
            if not missing[agent]:
                heappush(ready, position[agent])
        if ready:
            remaining -= 1
            yield agents[heappop(ready)]


class UtilStepPair(NamedTuple):
    """An agent's UTIL steps for lower and upper tables.

    Attributes
    ----------
    lower : UtilStep
        The step with the lower tables.
    upper : UtilStep or None
        The step with the upper tables; the same object as ``lower`` if the tables do not differ, None without upper
        tables.
    received : tuple of UtilTables
        The children's messages.
    """

    lower: agent_step.UtilStep
    upper: agent_step.UtilStep | None
    received: tuple[agent_step.UtilTables, ...] = ()

    def finished(self) -> "UtilStepPair":
        """Return the steps without the data that only the VALUE phase needs."""
        lower = self.lower.without_tables()
        upper = None if self.upper is None else lower if self.upper is self.lower else self.upper.without_tables()
        return UtilStepPair(lower, upper, self.received)

    @property
    def cells(self) -> int:
        """Number of cells that both steps join."""
        upper_cells = 0 if self.upper is None or self.upper is self.lower else self.upper.elimination.plan.cells
        return self.lower.elimination.plan.cells + upper_cells

    @property
    def message(self) -> agent_step.UtilTables:
        """The message to the parent."""
        if self.upper is self.lower:
            return agent_step.UtilTables(self.lower.message, self.lower.message)
        return agent_step.UtilTables(self.lower.message, None if self.upper is None else self.upper.message)


def util_turns(
    tree: "PseudoTree",
    mailbox: "Mailbox",
    clocks: dict[int, agent_step.Clock],
    steps: dict[int, UtilStepPair],
    sent: dict[int, agent_step.SentMessages],
) -> Iterator[tuple[int, list[agent_step.UtilTables]]]:
    """Yield this rank's agents in the UTIL phase, each with the messages of its children, and send their messages.

    The caller puts the steps of an agent into ``steps`` before it asks for the next agent. An agent without steps has
    failed (:meth:`Phase.storing_errors`), and so have the agents above it, which are not yielded.

    Parameters
    ----------
    tree : PseudoTree
        The agents' tree.
    mailbox : Mailbox
        The messages.
    clocks : dict
        For each of this rank's agents, the simulated time at which its local table was finished; advanced here.
    steps : dict
        The steps of each agent.
    sent : dict
        Receives the message statistics of each agent, even if the phase fails.
    """
    awaited = {agent: tree.children[agent] for agent in mailbox.local_agents(tree.bottom_up)}
    for agent in _agents_as_messages_arrive(mailbox, "UTIL", awaited):
        arrived = [mailbox.receive("UTIL", child, child) for child in tree.children[agent]]
        start, messages = time.perf_counter(), [message for message, _ in arrived]
        if all(message is not FAILED for message in messages):
            yield agent, messages
        step = steps.get(agent)
        ready, checks = (
            agent_step.latest([clocks[agent], *(clock for _, clock in arrived)]),
            0 if step is None else step.cells,
        )
        clocks[agent] = ready.after(time.perf_counter() - start, checks)
        if tree.parent[agent] >= 0:
            message = FAILED if step is None else step.message
            sent[agent] = agent_step.SentMessages(
                1, agent_step.util_size(message), "UTIL", agent_step.util_entries(message)
            )
            mailbox.send("UTIL", agent, tree.parent[agent], message, clocks[agent])


def value_phase(
    tree: "PseudoTree",
    mailbox: "Mailbox",
    clocks: dict[int, agent_step.Clock],
    steps: Mapping[int, UtilStepPair],
    separators: Sequence[tuple[Sequence[int], Sequence[int]]],
    whole: Phase | None = None,
) -> tuple[dict[int, agent_step.ChosenValues], dict[int, agent_step.Values], dict[int, agent_step.SentMessages]]:
    """Run the VALUE phase for this rank's agents: choose the values that maximise the lower tables.

    The maximisers of the upper tables are sent too if they differ: they show which factors cause the gap between the
    bounds.

    Parameters
    ----------
    tree : PseudoTree
        The agents' tree.
    mailbox : Mailbox
        The messages.
    clocks : dict
        The agents' simulated clocks; advanced here.
    steps : dict
        The agents' UTIL steps. An agent without one has failed.
    separators : sequence of (sequence of int, sequence of int)
        For each agent, the variables of its UTIL message's lower and upper tables.
    whole : Phase or None
        The phases of which this is one; the caller ends them. None if this phase ends by itself.

    Returns
    -------
    chosen : dict
        Values of each agent's interface variables.
    contexts : dict
        For each agent, the values of its message's variables that maximise the lower tables; its parent sent them.
    sent : dict
        Message statistics of each agent.
    """
    order = tree.bottom_up[::-1]
    phase, chosen, sent = (
        _phase(mailbox, order, whole),
        dict[int, agent_step.ChosenValues](),
        dict[int, agent_step.SentMessages](),
    )
    contexts: dict[int, agent_step.Values] = {}
    for agent in _agents_as_messages_arrive(mailbox, "VALUE", _parent_edges(tree, mailbox.local_agents(order))):
        empty: agent_step.Values = {}
        context = agent_step.ChosenValues(empty, empty)
        if tree.parent[agent] >= 0:
            context, clock = mailbox.receive("VALUE", agent, tree.parent[agent])
            clocks[agent] = agent_step.latest([clocks[agent], clock])
        start = time.perf_counter()
        known = None
        if context is not FAILED and agent in steps:
            with phase.storing_errors(agent):
                known = known_values(steps[agent], separators[agent], context)
        if known is not None:
            chosen[agent], contexts[agent] = interface_values(known, context), context.lower
        clocks[agent] = clocks[agent].after(time.perf_counter() - start)
        messages = {child: message_to_child(known, separators[child]) for child in tree.children[agent]}
        for child, message in messages.items():
            mailbox.send("VALUE", child, child, message, clocks[agent])
        sent[agent] = agent_step.SentMessages(
            len(messages), sum(map(agent_step.value_size, messages.values())), "VALUE"
        )
    if whole is None:
        phase.close()
    return chosen, contexts, sent


def _phase(mailbox: "Mailbox", order: Sequence[int], whole: Phase | None) -> Phase:
    """Return the phase that begins: a new one, or the next one of several."""
    if whole is None:
        return Phase(mailbox, order)
    whole.proceed(order)
    return whole


def message_to_child(
    known: agent_step.ChosenValues | None, separators: tuple[Sequence[int], Sequence[int]]
) -> agent_step.ChosenValues | None:
    """Return the VALUE message for a child, from the values that its parent knows; FAILED if these are None."""
    if known is None:
        return FAILED
    lower_separator, upper_separator = separators
    lower = {v: known.lower[v] for v in lower_separator}
    if known.upper is known.lower and upper_separator == lower_separator:
        return agent_step.ChosenValues(lower, lower)
    return agent_step.ChosenValues(lower, known.upper and {v: known.upper[v] for v in upper_separator})


def _parent_edges(tree: "PseudoTree", agents: Sequence[int]) -> dict[int, list[int]]:
    """Return the edges along which agents wait for a message from their parent; none for roots."""
    return {agent: [agent] if tree.parent[agent] >= 0 else [] for agent in agents}


def send_down(
    tree: "PseudoTree",
    mailbox: "Mailbox",
    kind: str,
    work: Callable[[int, tuple[Any, ...]], tuple[T, Sequence[tuple[Any, ...]]]],
    size_of: Callable[[tuple[Any, ...]], int],
) -> tuple[dict[int, T], dict[int, agent_step.SentMessages]]:
    """Send messages from parents to children, as in the VALUE phase; each depends on the one that the parent received.

    Parameters
    ----------
    tree : PseudoTree
        The agents' tree.
    mailbox : Mailbox
        The messages.
    kind : str
        ``OUTSIDE``: an upper bound on the utility that all other agents can add to each row of an agent's table.
        ``USABLE``: the rows of its UTIL message that the parent can use.
    work : callable
        ``work(agent, message from its parent)`` returns the agent's result and the messages to its children; the
        message to a root is empty.
    size_of : callable
        The bytes of a message.

    Returns
    -------
    results : dict
        The result of each agent.
    sent : dict
        Message statistics of each agent.
    """
    order = tree.bottom_up[::-1]
    phase, results, sent = Phase(mailbox, order), dict[int, T](), dict[int, agent_step.SentMessages]()
    for agent in _agents_as_messages_arrive(mailbox, kind, _parent_edges(tree, mailbox.local_agents(order))):
        from_parent: tuple[Any, ...] = ()
        if tree.parent[agent] >= 0:
            from_parent, _ = mailbox.receive(kind, agent, tree.parent[agent])
        result = None
        if from_parent is not FAILED:
            with phase.storing_errors(agent):
                result = work(agent, from_parent)
        messages: list[tuple[Any, ...] | None] = [FAILED] * len(tree.children[agent])
        if result is not None:
            results[agent], messages = result[0], [*result[1]]
        for child, message in zip(tree.children[agent], messages, strict=True):
            mailbox.send(kind, child, child, message)
        sent[agent] = agent_step.SentMessages(
            len(messages), sum(size_of(contents or ()) for contents in messages), kind
        )
    phase.close()
    return results, sent


def known_values(
    steps: UtilStepPair, separators: tuple[Sequence[int], Sequence[int]], context: agent_step.ChosenValues
) -> agent_step.ChosenValues:
    """Return the values of an agent's interface variables and separator, for the lower and the upper tables.

    ``context`` has the values of the separator, as the parent sent them.
    """
    lower = agent_step.value_step(steps.lower, separators[0], context.lower)
    if steps.upper is None or context.upper is None:
        return agent_step.ChosenValues(lower, None)
    if steps.upper is steps.lower and (context.upper is context.lower or context.upper == context.lower):
        return agent_step.ChosenValues(lower, lower)
    return agent_step.ChosenValues(lower, agent_step.value_step(steps.upper, separators[1], context.upper))


def interface_values(known: agent_step.ChosenValues, context: agent_step.ChosenValues) -> agent_step.ChosenValues:
    """Return the values of the interface: the known values without those that the parent has sent."""
    lower = _without_known(known.lower, context.lower)
    if known.upper is known.lower and context.upper is context.lower:
        return agent_step.ChosenValues(lower, lower)
    upper = None if known.upper is None or context.upper is None else _without_known(known.upper, context.upper)
    return agent_step.ChosenValues(lower, upper)


def _without_known(values: agent_step.Values, known: agent_step.Values) -> agent_step.Values:
    """Return the values of the variables that are not in ``known``."""
    return {v: x for v, x in values.items() if v not in known}
