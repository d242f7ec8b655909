"""DPOP's UTIL and VALUE phases with some variables fixed to one value at a time, so that tables fit in memory.

In DPOP, each agent sends its parent a table over its separator, the variables that it shares with its ancestors (UTIL).
Then the agents choose the values of their interface (boundary variables) from the root down (VALUE).

The *cut* variables of an agent are conditioned (cycle-cutset style): the agent repeats its work for each assignment of
them, a *slice*, see :mod:`dmcmc.inference.dpop.slicing`. An agent requests its children's messages for given values of
cut variables (REQUEST), combines the answers over its own cut values by their maximum (UTIL), and at the end sends the
chosen values (VALUE). It repeats a request only if the values that the child depends on have changed. A tree edge has
one message at a time, so no agent receives more than it has memory for. Agents that do not wait for each other work
concurrently on their ranks; :mod:`.divided_phases` divides the slices among ranks.

Each agent is a coroutine (Python generator): it yields the keys of the messages that it waits for, and whether it needs
all of them, and is resumed with the messages. A key is (kind, lower agent of the tree edge). In place of a message or
result, ``FAILED`` (which is None) says that an agent's work has failed; receivers pass it on.

By VALUE each variable of an agent's separator has one value, so repeating the step to choose values is cheap.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.dpop import agent_step
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_phases import FAILED, Phase, UtilStepPair, known_values, message_to_child

_KINDS = ("REQUEST", "UTIL", "VALUE")  # of messages

Key = tuple[str, int]
Received = dict[Key, tuple[Any, agent_step.Clock]]
# Yields the keys that an agent waits for, and whether it needs all of them; receives (message, sender's clock) per key.
AgentCoroutine = Generator[tuple[set[Key], bool], Received, None]
Work = Callable[[int, agent_step.ChosenValues, list[agent_step.UtilTables]], UtilStepPair]


@dataclass(frozen=True)
class SlicedPhaseInput:
    """The input of the sliced phases.

    Attributes
    ----------
    tree : PseudoTree
        The agents' tree.
    separators : sequence of (sequence of int)
        For each agent, the variables of its UTIL message.
    cut : dict
        For each agent that cuts variables, (variable, domain size) of each, in the order in which they are decided.
    work : callable
        ``work(agent, fixed values, messages of its children)`` makes the agent's steps with tables at those values: a
        ``UtilStepPair``, one elimination for the lower and one for the upper tables.
    """

    tree: "PseudoTree"
    separators: Sequence[Sequence[int]]
    cut: Mapping[int, Sequence[tuple[int, int]]]
    work: Work


class AgentDecision(NamedTuple):
    """The final values of an agent.

    Attributes
    ----------
    context : ChosenValues
        Values of its separator.
    known : ChosenValues
        Those, and the values of its interface.
    upper : number or None
        For a root, an upper bound on the utility of its tree; None for other agents, and for runs without upper tables.
    """

    context: agent_step.ChosenValues
    known: agent_step.ChosenValues
    upper: Number | None


@dataclass
class SlicedPhaseResult:
    """The results of this rank's agents.

    Attributes
    ----------
    decided : dict
        The decision of each agent.
    steps : dict
        The last steps of each agent.
    sent : dict
        For each kind of message, the message statistics of each agent.
    """

    decided: dict[int, AgentDecision] = field(default_factory=dict)
    steps: dict[int, UtilStepPair] = field(default_factory=dict)
    sent: dict[str, dict[int, agent_step.SentMessages]] = field(default_factory=lambda: {kind: {} for kind in _KINDS})


def run_slices(job: SlicedPhaseInput, mailbox: Mailbox, clocks: dict[int, agent_step.Clock]) -> SlicedPhaseResult:
    """Run both phases for this rank's agents; a collective call.

    Parameters
    ----------
    job : SlicedPhaseInput
        The input.
    mailbox : Mailbox
        Sends and receives the messages.
    clocks : dict
        The agents' simulated clocks; advanced here.

    Raises
    ------
    Exception
        An exception of ``work`` on any rank is raised on all of them.
    """
    return run_agents(job, mailbox, clocks, SlicedAgent)


def run_agents(
    job: SlicedPhaseInput,
    mailbox: Mailbox,
    clocks: dict[int, agent_step.Clock],
    make: Callable[[int, SlicedPhaseInput, Phase, dict[int, agent_step.Clock], SlicedPhaseResult], "SlicedAgent"],
) -> SlicedPhaseResult:
    """Run both phases for the agents of a mailbox, which ``make`` makes."""
    phase, outcome = Phase(mailbox, job.tree.bottom_up), SlicedPhaseResult()
    coroutines = {a: make(a, job, phase, clocks, outcome).program() for a in mailbox.local_agents(job.tree.bottom_up)}
    _run_coroutines(mailbox, coroutines)
    phase.close()
    return outcome


def _run_coroutines(mailbox: Mailbox, coroutines: dict[int, AgentCoroutine]) -> None:
    """Resume agents' coroutines when the messages that they wait for have arrived, until all have ended."""
    waiting_agent: dict[Key, int] = {}
    wanted: dict[int, tuple[set[Key], bool]] = {}
    arrived, ready = set[Key](), deque(coroutines)

    def can_resume(agent: int) -> bool:
        """Return whether the messages that an agent waits for have arrived: all of them, or one."""
        keys, wait_for_all = wanted[agent]
        return keys <= arrived if wait_for_all else bool(keys & arrived)

    while coroutines:
        while ready:
            agent = ready.popleft()
            received: Any = None
            if agent in wanted:
                keys, _ = wanted.pop(agent)
                received = {key: mailbox.pop(*key) for key in keys & arrived}
                arrived -= keys
                for key in keys:
                    del waiting_agent[key]
            try:
                wanted[agent] = coroutines[agent].send(received)
            except StopIteration:
                del coroutines[agent]
                continue
            waiting_agent |= dict.fromkeys(wanted[agent][0], agent)
            arrived |= mailbox.new_messages(_KINDS, wait=False)
            ready.extend(
                {waiting_agent[key] for key in arrived if key in waiting_agent and can_resume(waiting_agent[key])}
                - {*ready}
            )
        if coroutines:
            arrived |= mailbox.new_messages(_KINDS, wait=True)
            ready.extend(
                {waiting_agent[key] for key in arrived if key in waiting_agent and can_resume(waiting_agent[key])}
            )


class SlicedAgent:
    """One agent: the latest answers of its children, and what it does on requests.

    An agent first answers requests, any number of times, then receives VALUE once, decides, and ends. A root receives
    neither: it decides at once.

    Attributes
    ----------
    agent, parent, children : int, int, sequence of int
        Numbers of the agent, of its parent (negative for a root) and of its children.
    _latest_answers : dict
        For each child, the values in the latest request to it, and the answer.
    _reusable_step : UtilStepPair or None
        The step of the latest answer if no variable was fixed in it. Then the decision uses it instead of repeating the
        work, and sets it to None to release its tables. Each answer replaces it.
    _message_buffer : UtilTables or None
        The latest message that combines slices. The next such message overwrites its tables if they have the same
        shape.
    """

    def __init__(
        self,
        agent: int,
        job: SlicedPhaseInput,
        phase: Phase,
        clocks: dict[int, agent_step.Clock],
        outcome: SlicedPhaseResult,
    ) -> None:
        self.agent, self.job, self.phase, self.clocks, self.outcome = agent, job, phase, clocks, outcome
        self.parent, self.children = job.tree.parent[agent], job.tree.children[agent]
        self._latest_answers: dict[int, tuple[agent_step.ChosenValues, agent_step.UtilTables]] = {}
        self._reusable_step: UtilStepPair | None = None  # a step that does not depend on cut variables
        self._message_buffer: agent_step.UtilTables | None = (
            None  # the last message over this agent's cut values; its memory can be reused
        )

    def program(self) -> AgentCoroutine:
        """Answer requests until VALUE arrives, then decide and send VALUE to the children.

        The result is the agent's coroutine, see the module.
        """
        message: agent_step.ChosenValues | None = agent_step.ChosenValues({}, {})
        while True:
            key: Key = ("VALUE", self.agent)
            if self.parent >= 0:
                ((key, message),) = (
                    yield from self._wait_for({("REQUEST", self.agent), key}, wait_for_all=False)
                ).items()
            if key[0] == "VALUE":
                break
            answer = FAILED if message is FAILED else (yield from self._util_message(message))
            self._send(
                "UTIL", self.agent, self.parent, answer, agent_step.util_size(answer), agent_step.util_entries(answer)
            )
        decided = FAILED if message is FAILED else (yield from self._decide(message))
        if decided is not None:
            self.outcome.decided[self.agent] = decided
        for child in self.children:
            value = FAILED if decided is None else message_to_child(decided.known, (self.job.separators[child],) * 2)
            self._send("VALUE", child, child, value, agent_step.value_size(value))

    def _util_message(
        self, fixed: agent_step.ChosenValues, first: range | None = None
    ) -> Generator[tuple[set[Key], bool], Received, agent_step.UtilTables | None]:
        """Return the message for fixed values: the maximum over all values of this agent's cut variables.

        The result is ``FAILED`` if a step fails here or in the subtree. If ``first`` is given, it holds the values of
        the first cut variable.
        """
        best: agent_step.UtilTables | None = FAILED
        for cut_values in self._cut_assignments(first):
            step = yield from self._make_step(_merged_assignment(fixed, cut_values))
            if step is None:
                return FAILED
            if cut_values:  # the next step may overwrite these tables
                best = (
                    _copy_message(step.message, self._message_buffer) if best is None else _maximum(best, step.message)
                )
                self._message_buffer = best
            else:
                best = step.message
            self._reusable_step = step if not cut_values and not fixed.lower and not fixed.upper else None
            del step  # release its tables
        return best

    def _decide(
        self, context: agent_step.ChosenValues
    ) -> Generator[tuple[set[Key], bool], Received, AgentDecision | None]:
        """Choose the interface's values, given the separator's; return ``FAILED`` if a step fails.

        If there is a reusable step, it decides. Otherwise the steps are made again, slice by slice, and the best slice
        decides, for the lower and the upper tables separately. Answers for some values of cut variables are asked for
        again, whichever slice was the last one, so that the messages do not depend on which rank has made it.
        """
        separator = self.job.separators[self.agent]
        for child in [child for child, (request, _) in self._latest_answers.items() if request.lower]:
            del self._latest_answers[child]
        if self.parent < 0 and self.agent not in self.job.cut and (yield from self._util_message(context)) is None:
            return None
        if self._reusable_step is not None:
            step_made, self._reusable_step = self._reusable_step, None
            values = self._work(partial(known_values, step_made, (separator, separator), context))
            total = step_made.upper.total if step_made.upper is not None and self.parent < 0 else None
            self._record_step(step_made)
            return None if values is None else AgentDecision(context, values, total)
        best = yield from self._best_slices(context)
        if best is None:
            return None
        lower, upper = best
        values = agent_step.ChosenValues(context.lower | lower.values, None)
        if upper.total is not None and context.upper is not None:
            values = values._replace(upper=context.upper | upper.values)
        return AgentDecision(context, values, upper.total if self.parent < 0 else None)

    def _best_slices(
        self, context: agent_step.ChosenValues, first: range | None = None
    ) -> Generator[tuple[set[Key], bool], Received, tuple["BestSlice", "BestSlice"] | None]:
        """Return the best slices by the lower and by the upper tables; ``first`` is as for :meth:`_util_message`."""
        lower, upper, separator = BestSlice(), BestSlice(), self.job.separators[self.agent]
        for cut_values in self._cut_assignments(first):
            step = yield from self._make_step(_merged_assignment(context, cut_values))
            if step is None:
                return None
            lower.consider(step.lower, separator, cut_values)
            if step.upper is not None and context.upper is not None:
                upper.consider(step.upper, separator, cut_values)
            self._record_step(step)
            del step  # release its tables
        return lower, upper

    def _make_step(
        self, fixed: agent_step.ChosenValues
    ) -> Generator[tuple[set[Key], bool], Received, UtilStepPair | None]:
        """Make the agent's steps with tables at fixed values, from the children's messages for these values.

        Children whose latest answers do not hold for these values are asked again. The result is ``FAILED`` if a child
        or the agent's own work fails.
        """
        if not (yield from self._ask(self.children, fixed)):
            return FAILED
        messages = [self._latest_answers[child][1] for child in self.children]
        steps: UtilStepPair | None = self._work(partial(self.job.work, self.agent, fixed, messages))
        return steps

    def _ask(
        self, children: Sequence[int], fixed: agent_step.ChosenValues
    ) -> Generator[tuple[set[Key], bool], Received, bool]:
        """Ask some children for their messages for fixed values, if their latest answers do not hold.

        The result says whether no child has failed.
        """
        requests = {child: self._request_for(child, fixed) for child in children}
        outdated = [child for child in children if not _holds(self._latest_answers.get(child), requests[child])]
        for child in outdated:
            self._latest_answers.pop(child, None)
            self._send("REQUEST", child, child, requests[child], agent_step.value_size(requests[child]))
        answers = (yield from self._wait_for({("UTIL", child) for child in outdated})) if outdated else {}
        if any(message is FAILED for message in answers.values()):
            return False
        self._latest_answers |= {child: (requests[child], answers["UTIL", child]) for child in outdated}
        return True

    def _work(self, work: Callable[[], Any]) -> Any:
        """Return the result of some work of the agent, and advance its clock; None if the work fails."""
        start, result = time.perf_counter(), None
        with self.phase.storing_errors(self.agent):
            result = work()
        checks = result.cells if isinstance(result, UtilStepPair) else 0
        self.clocks[self.agent] = self.clocks[self.agent].after(time.perf_counter() - start, checks)
        return result

    def _record_step(self, step: UtilStepPair) -> None:
        """Store the agent's last steps in the result."""
        self.outcome.steps[self.agent] = step.finished()

    def _wait_for(
        self, keys: set[Key], wait_for_all: bool = True
    ) -> Generator[tuple[set[Key], bool], Received, dict[Key, Any]]:
        """Wait for all of some messages, or for at least one of them; return those that have arrived, by key."""
        received = yield keys, wait_for_all
        self.clocks[self.agent] = agent_step.latest(
            [self.clocks[self.agent], *(clock for _, clock in received.values())]
        )
        return {key: message for key, (message, _) in received.items()}

    def _send(self, kind: str, edge: int, receiver: int, message: Any, size: int, entries: int = 0) -> None:
        """Send a message of ``size`` bytes along the edge with the lower agent ``edge``; count it and its entries."""
        sent = self._counted(kind)
        before = sent.get(self.agent, agent_step.SentMessages(0, 0, kind))
        sent[self.agent] = agent_step.added(before, agent_step.SentMessages(1, size, kind, entries))
        self.phase.mailbox.send(kind, edge, receiver, message, self.clocks[self.agent])

    def _counted(self, kind: str) -> dict[int, agent_step.SentMessages]:
        """Return the statistics, by agent, in which a message of a kind that is sent now is counted."""
        return self.outcome.sent[kind]

    def _cut_assignments(self, first: range | None) -> Iterator[agent_step.Values]:
        """Yield the assignments of this agent's cut variables in lexicographic order; the first one wins ties.

        Without cut variables there is one assignment, the empty one. If ``first`` is given, it holds the values of the
        first cut variable.
        """
        cut = self.job.cut.get(self.agent, ())
        ranges = [range(size) for _, size in cut]
        for values in product(*(ranges if first is None else [first, *ranges[1:]])):
            yield dict(zip((v for v, _ in cut), values, strict=True))

    def _request_for(self, child: int, fixed: agent_step.ChosenValues) -> agent_step.ChosenValues:
        """Return the fixed values that a child's message depends on: those of the variables in its separator."""
        separator = set(self.job.separators[child])
        lower = {v: x for v, x in fixed.lower.items() if v in separator}
        return agent_step.ChosenValues(lower, fixed.upper and {v: x for v, x in fixed.upper.items() if v in separator})


class BestSlice:
    """The best slice (assignment of cut variables) so far, for the lower or the upper tables.

    Attributes
    ----------
    total : number or None
        Its utility; None before the first slice.
    values : dict
        The interface's values in it, with those of the cut variables.
    """

    def __init__(self) -> None:
        self.total: Number | None = None
        self.values: agent_step.Values = {}

    def consider(self, step: agent_step.UtilStep, separator: Sequence[int], cut_values: agent_step.Values) -> None:
        """Replace the best slice by another one if that has more utility.

        The step's tables have one value for each separator variable. So each table of its message has a single entry,
        and the index of the separator's values is 0.
        """
        lowest, total = step.elimination.arithmetic.lowest, 0
        for table in step.message:
            total = max(total + table.values.item(), lowest)
        if self.total is None or total > self.total:
            all_values = agent_step.value_step(step, separator, dict.fromkeys(separator, 0))
            separator_variables = set(separator)
            self.replace_if_better(
                total, {v: x for v, x in all_values.items() if v not in separator_variables} | cut_values
            )

    def replace_if_better(self, total: Number | None, values: agent_step.Values) -> None:
        """Replace the best slice by another one if that has more utility."""
        if total is not None and (self.total is None or total > self.total):
            self.total, self.values = total, values


def _holds(
    answer: tuple[agent_step.ChosenValues, agent_step.UtilTables] | None, request: agent_step.ChosenValues
) -> bool:
    """Return whether a child's latest answer, given with its request, holds for another request.

    It may have been requested with fewer values fixed; then its tables have entries for all values of the others.
    """
    if answer is None:
        return False
    sides = zip(answer[0], request, strict=True)
    return all((old_values or {}).items() <= (new_values or {}).items() for old_values, new_values in sides)


def _copy_message(message: agent_step.UtilTables, into: agent_step.UtilTables | None) -> agent_step.UtilTables:
    """Return a copy of a message, in the memory of ``into`` where that has tables of the same scope and shape.

    If lower and upper tables are the same object, they are so in the copy.
    """

    def copied(tables: agent_step.UtilMessage, buffers: agent_step.UtilMessage | None) -> agent_step.UtilMessage:
        """Return copies of some tables."""
        tables_copied = []
        for number, table in enumerate(tables):
            buffer = None if buffers is None or number >= len(buffers) else buffers[number]
            if isinstance(buffer, EncodedTable) and (buffer.scope, buffer.values.shape) == (
                table.scope,
                table.values.shape,
            ):
                np.copyto(buffer.values, table.values)
                tables_copied.append(buffer)
            else:
                tables_copied.append(EncodedTable(table.scope, table.values.copy()))
        return tuple(tables_copied)

    lower = copied(message.lower, into and into.lower)
    if message.upper is None or message.upper is message.lower:
        return agent_step.UtilTables(lower, None if message.upper is None else lower)
    same = into is None or into.upper is into.lower
    return agent_step.UtilTables(lower, copied(message.upper, None if same or into is None else into.upper))


def _merged_assignment(fixed: agent_step.ChosenValues, cut_values: agent_step.Values) -> agent_step.ChosenValues:
    """Return fixed values together with values of cut variables."""
    return agent_step.ChosenValues(fixed.lower | cut_values, None if fixed.upper is None else fixed.upper | cut_values)


def _maximum(target: agent_step.UtilTables, other: agent_step.UtilTables) -> agent_step.UtilTables:
    """Return the elementwise maximum of two messages with the same scopes; the first is overwritten."""

    def larger(left: agent_step.UtilMessage, right: agent_step.UtilMessage) -> agent_step.UtilMessage:
        """Return the elementwise maximum of two lists of tables."""
        pairs = zip(left, right, strict=True)
        dense = ((a.scope, a.values, b.values.transpose([b.scope.index(v) for v in a.scope])) for a, b in pairs)
        return tuple(
            EncodedTable(scope, np.maximum(target, right_values, out=target)) for scope, target, right_values in dense
        )

    lower = larger(target.lower, other.lower)
    if target.upper is target.lower and other.upper is other.lower:
        return agent_step.UtilTables(lower, lower)
    return agent_step.UtilTables(
        lower, None if target.upper is None or other.upper is None else larger(target.upper, other.upper)
    )
