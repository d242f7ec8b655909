"""UTIL and VALUE where some variables are worked off value by value (:mod:`dmcmc.inference.dpop.slicing`).

An agent asks its children for messages about some values of its variables and of those above it (REQUEST), takes the
largest of what it makes of the answers (UTIL), and says at the end what was chosen (VALUE). It asks anew only where
those values are others than the last time. An edge of the tree has one message at a time, so nobody is sent more than
he has room for; agents that hear from each other by nobody work at the same time on their ranks.

By VALUE an agent's separator has one value each, so what it makes again to decide is small.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.dpop.util_and_value import UtilMessage, UtilStep, value_step
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.mailbox import Post
from dmcmc.mpi.message_contents import Chosen, Clock, Sent, Utils, Values, latest, util_size, value_size
from dmcmc.mpi.util_value_phases import FAILED, Phase, Steps, known_values, told

_KINDS = ("REQUEST", "UTIL", "VALUE")

Key = tuple[str, int]
Heard = dict[Key, tuple[Any, Clock]]
Program = Generator[tuple[set[Key], bool], Heard, None]
Work = Callable[[int, Chosen, list[Utils]], Steps]


@dataclass(frozen=True)
class Job:
    """What is to be done.

    Attributes
    ----------
    tree : PseudoTree
    separators : sequence of tuple of int
    cut : dict
        Of agents that cut some, their variables with domain sizes, first the one that is decided first.
    work
        ``work(agent, fixed values, messages of its children)`` makes the agent's steps with tables of those values.
    """

    tree: PseudoTree
    separators: Sequence[Sequence[int]]
    cut: Mapping[int, Sequence[tuple[int, int]]]
    work: Work


class Decided(NamedTuple):
    """What an agent knows at the end: its separator's values, these with its interface's; a root's best total.

    ``upper`` is what the root's subtree can be worth at most; None for other agents, and where there is no bound.
    """

    context: Chosen
    known: Chosen
    upper: Number | None


@dataclass
class Outcome:
    """What this rank's agents have decided, the last steps that each made, and what they have sent, by kind."""

    decided: dict[int, Decided] = field(default_factory=dict)
    steps: dict[int, Steps] = field(default_factory=dict)
    sent: dict[str, dict[int, Sent]] = field(default_factory=lambda: {kind: {} for kind in _KINDS})


def run_slices(job: Job, post: Post, clocks: dict[int, Clock]) -> Outcome:
    """Run both phases for this rank's agents; called by all ranks.

    Raises
    ------
    Exception
        What ``work`` raises on any rank, on all of them.
    """
    phase, outcome = Phase(post, job.tree.bottom_up), Outcome()
    programs = {a: _Agent(a, job, phase, clocks, outcome).program() for a in post.mine(job.tree.bottom_up)}
    _converse(post, programs)
    phase.close()
    return outcome


def _converse(post: Post, programs: dict[int, Program]) -> None:
    """Resume programs as what they wait for comes, until all have ended."""
    waiting: dict[Key, int] = {}
    wanted: dict[int, tuple[set[Key], bool]] = {}
    come, ready = set[Key](), deque(programs)

    def goes_on(agent: int) -> bool:
        keys, every = wanted[agent]
        return keys <= come if every else bool(keys & come)

    while programs:
        while ready:
            agent = ready.popleft()
            heard: Any = None
            if agent in wanted:
                keys, _ = wanted.pop(agent)
                heard = {key: post.taken(*key) for key in keys & come}
                come -= keys
                for key in keys:
                    del waiting[key]
            try:
                wanted[agent] = programs[agent].send(heard)
            except StopIteration:
                del programs[agent]
                continue
            waiting |= dict.fromkeys(wanted[agent][0], agent)
            come |= post.news(_KINDS, wait=False)
            ready.extend({waiting[key] for key in come if key in waiting and goes_on(waiting[key])} - {*ready})
        if programs:
            come |= post.news(_KINDS, wait=True)
            ready.extend({waiting[key] for key in come if key in waiting and goes_on(waiting[key])})


class _Agent:
    """One agent: what it has heard last, and what it does when asked."""

    def __init__(self, agent: int, job: Job, phase: Phase, clocks: dict[int, Clock], outcome: Outcome) -> None:
        self.agent, self.job, self.phase, self.clocks, self.outcome = agent, job, phase, clocks, outcome
        self.parent, self.children = job.tree.parent[agent], job.tree.children[agent]
        self._heard: dict[int, tuple[Chosen, Utils]] = {}
        self._held: Steps | None = None  # of a step that no cut variable has a part in
        self._said: Utils | None = None  # the last message about all values that are cut here: nobody reads it any more

    def program(self) -> Program:
        """Answer requests, until VALUE comes."""
        message: Chosen | None = Chosen({}, {})
        while True:
            key: Key = ("VALUE", self.agent)
            if self.parent >= 0:
                ((key, message),) = (yield from self._listen({("REQUEST", self.agent), key}, every=False)).items()
            if key[0] == "VALUE":
                break
            answer = FAILED if message is FAILED else (yield from self._util(message))
            self._send("UTIL", self.agent, self.parent, answer, util_size(answer))
        decided = FAILED if message is FAILED else (yield from self._decide(message))
        if decided is not None:
            self.outcome.decided[self.agent] = decided
        for child in self.children:
            value = FAILED if decided is None else told(decided.known, (self.job.separators[child],) * 2)
            self._send("VALUE", child, child, value, value_size(value))

    def _util(self, fixed: Chosen) -> Generator[tuple[set[Key], bool], Heard, Utils | None]:
        """Return the message about fixed values: the largest over all values that are cut here."""
        best: Utils | None = FAILED
        for own in self._slices():
            step = yield from self._step(_both(fixed, own))
            if step is None:
                return FAILED
            if own:  # what it makes next may lie where this does
                best = _copied(step.message, self._said) if best is None else _larger(best, step.message)
                self._said = best
            else:
                best = step.message
            self._held = step if not own and not fixed.lower and not fixed.upper else None
            del step  # its tables
        return best

    def _decide(self, context: Chosen) -> Generator[tuple[set[Key], bool], Heard, Decided | None]:
        """Choose the interface's values, given the separator's."""
        separator = self.job.separators[self.agent]
        if self.parent < 0 and self.agent not in self.job.cut and (yield from self._util(context)) is None:
            return None
        if self._held is not None:
            held, self._held = self._held, None
            known = self._work(partial(known_values, held, (separator, separator), context))
            total = held.upper.total if held.upper is not None and self.parent < 0 else None
            self._finish(held)
            return None if known is None else Decided(context, known, total)
        lower, upper = _Best(), _Best()
        for own in self._slices():
            step = yield from self._step(_both(context, own))
            if step is None:
                return None
            lower.see(step.lower, separator, own)
            if step.upper is not None and context.upper is not None:
                upper.see(step.upper, separator, own)
            self._finish(step)
            del step  # its tables
        known = Chosen(context.lower | lower.values, None)
        if upper.total is not None and context.upper is not None:
            known = known._replace(upper=context.upper | upper.values)
        return Decided(context, known, upper.total if self.parent < 0 else None)

    def _step(self, fixed: Chosen) -> Generator[tuple[set[Key], bool], Heard, Steps | None]:
        """Make the agent's steps with tables of fixed values, by the children's messages about them."""
        asked = {child: self._about(child, fixed) for child in self.children}
        new = [child for child in self.children if not self._knows(child, asked[child])]
        for child in new:
            self._heard.pop(child, None)
            self._send("REQUEST", child, child, asked[child], value_size(asked[child]))
        come = (yield from self._listen({("UTIL", child) for child in new})) if new else {}
        if any(message is FAILED for message in come.values()):
            return FAILED
        self._heard |= {child: (asked[child], come["UTIL", child]) for child in new}
        heard = [self._heard[child][1] for child in self.children]
        made: Steps | None = self._work(partial(self.job.work, self.agent, fixed, heard))
        return made

    def _knows(self, child: int, asked: Chosen) -> bool:
        """Return whether what was heard last holds for some values: it may hold for others besides."""
        if child not in self._heard:
            return False
        sides = zip(self._heard[child][0], asked, strict=True)
        return all((had or {}).items() <= (now or {}).items() for had, now in sides)

    def _work(self, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        made = self.phase.attempt(self.agent, work)
        checks = made.cells if isinstance(made, Steps) else 0
        self.clocks[self.agent] = self.clocks[self.agent].after(time.perf_counter() - start, checks)
        return made

    def _finish(self, step: Steps) -> None:
        self.outcome.steps[self.agent] = step.finished()

    def _listen(self, keys: set[Key], every: bool = True) -> Generator[tuple[set[Key], bool], Heard, dict[Key, Any]]:
        """Wait for all of some messages, or for one of them."""
        heard = yield keys, every
        self.clocks[self.agent] = latest([self.clocks[self.agent], *(clock for _, clock in heard.values())])
        return {key: message for key, (message, _) in heard.items()}

    def _send(self, kind: str, edge: int, receiver: int, message: Any, size: int) -> None:
        so_far = self.outcome.sent[kind].get(self.agent, Sent(0, 0, kind))
        self.outcome.sent[kind][self.agent] = Sent(so_far.count + 1, so_far.size + size, kind)
        self.phase.post.send(kind, edge, receiver, message, self.clocks[self.agent])

    def _slices(self) -> Iterator[Values]:
        """Yield values of what is cut here: ties go to the lowest of what is decided first."""
        cut = self.job.cut.get(self.agent, ())
        for values in product(*(range(size) for _, size in cut)):
            yield dict(zip((v for v, _ in cut), values, strict=True))

    def _about(self, child: int, fixed: Chosen) -> Chosen:
        """Return what of some values a child's message is about."""
        separator = set(self.job.separators[child])
        lower = {v: x for v, x in fixed.lower.items() if v in separator}
        return Chosen(lower, fixed.upper and {v: x for v, x in fixed.upper.items() if v in separator})


class _Best:
    """The best slice that has been seen, on one side: what it is worth, and the interface's values."""

    def __init__(self) -> None:
        self.total: Number | None = None
        self.values: Values = {}

    def see(self, step: UtilStep, separator: Sequence[int], own: Values) -> None:
        """Look at a slice in which all of the separator has one value."""
        lowest, total = step.elimination.arithmetic.lowest, 0
        for table in step.message:
            total = max(total + table.values.item(), lowest)
        if self.total is None or total > self.total:
            found = value_step(step, separator, dict.fromkeys(separator, 0))
            known = set(separator)
            self.total, self.values = total, {v: x for v, x in found.items() if v not in known} | own


def _copied(message: Utils, into: Utils | None) -> Utils:
    """Return a message that is no view, in the memory of another one if that has the same tables."""

    def copied(tables: UtilMessage, old: UtilMessage | None) -> UtilMessage:
        found = []
        for number, table in enumerate(tables):
            room = None if old is None or number >= len(old) else old[number]
            if isinstance(room, Table) and (room.scope, room.values.shape) == (table.scope, table.values.shape):
                np.copyto(room.values, table.values)
                found.append(room)
            else:
                found.append(Table(table.scope, table.values.copy()))
        return tuple(found)

    lower = copied(message.lower, into and into.lower)
    if message.upper is None or message.upper is message.lower:
        return Utils(lower, None if message.upper is None else lower)
    same = into is None or into.upper is into.lower
    return Utils(lower, copied(message.upper, None if same or into is None else into.upper))


def _both(fixed: Chosen, own: Values) -> Chosen:
    return Chosen(fixed.lower | own, None if fixed.upper is None else fixed.upper | own)


def _larger(one: Utils, other: Utils) -> Utils:
    """Return the larger of two messages over the same tables, entry by entry; the first is written over."""

    def larger(left: UtilMessage, right: UtilMessage) -> UtilMessage:
        pairs = zip(left, right, strict=True)
        dense = ((a.scope, a.values, b.values.transpose([b.scope.index(v) for v in a.scope])) for a, b in pairs)
        return tuple(Table(scope, np.maximum(one, two, out=one)) for scope, one, two in dense)

    lower = larger(one.lower, other.lower)
    if one.upper is one.lower and other.upper is other.lower:
        return Utils(lower, lower)
    return Utils(lower, None if one.upper is None or other.upper is None else larger(one.upper, other.upper))
