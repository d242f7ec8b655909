"""DPOP's two phases over ranks: UTIL messages up the agents' tree, VALUE messages down.

Every rank walks the same order of agents and does its own. A message between agents of one rank is handed over, one
between ranks is sent without waiting; both count alike: one message a tree edge and phase, of so many bytes as its
tables' entries and indices have, whatever MPI makes of it. An agent's clock is the time at which it would be done if
every agent had a machine like this one's share of it to itself and messages took no time (simulated time, Sultanik et
al. 2008); it travels with the messages.

An agent whose work fails sends on that it has, and so does who hears of it: so every rank comes to the end of a phase,
where all of them raise the error.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.dpop.util_and_value import UtilMessage, UtilStep, value_step
from dmcmc.inference.model.arithmetic import Table
from dmcmc.mpi.world import World

_WORD = 8  # bytes of a variable's or value's index in a message

Values = dict[int, int]
T = TypeVar("T")


@dataclass(frozen=True)
class Sent:
    """What an agent sent: messages, and bytes in all of them."""

    count: int = 0
    size: int = 0


_KINDS = ("UTIL", "VALUE", "OUTSIDE")  # a message's tag is its kind: the MPI standard promises no more than 32,768 tags
_FAILED = None  # in place of a message of an agent that has failed, so that nobody waits for it


class Post:
    """Messages between agents, within a rank and between ranks, each known by its kind and the lower agent of its edge.

    A rank takes all messages of a kind that another one sends it in the order in which they were sent; those that come
    before they are asked for are kept.
    """

    def __init__(self, world: World, owner: tuple[int, ...]) -> None:
        self.world, self.owner = world, owner
        self._here: dict[tuple[str, int], Any] = {}
        self._pending: list[Any] = []

    def send(self, kind: str, agent: int, receiver: int, message: Any) -> None:
        """Send the message of the tree edge below which ``agent`` is; returns at once."""
        rank = self.owner[receiver]
        if rank == self.world.rank:
            self._here[kind, agent] = message
        else:
            self._pending.append(self.world.comm.isend((agent, message), dest=rank, tag=_KINDS.index(kind)))

    def receive(self, kind: str, agent: int, sender: int) -> Any:
        """Wait for the message of the tree edge below which ``agent`` is."""
        rank = self.owner[sender]
        while rank != self.world.rank and (kind, agent) not in self._here:
            early, message = self.world.comm.recv(source=rank, tag=_KINDS.index(kind))
            self._here[kind, early] = message
        return self._here.pop((kind, agent))

    def close(self) -> None:
        """Wait until everything sent has left."""
        for request in self._pending:
            request.wait()
        self._pending.clear()

    def mine(self, agents: Iterable[int]) -> list[int]:
        """Return those of some agents that this rank works for, in their order."""
        return [agent for agent in agents if self.owner[agent] == self.world.rank]


class _Phase:
    """One phase on this rank: what went wrong, and the end that all ranks come to together."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self.failure: Exception | None = None

    def attempt(self, work: Callable[[], T], *arrived: Any) -> T | None:
        """Return what an agent makes; None if it fails, or one that it hears from has failed."""
        try:
            return None if any(message is _FAILED for message in arrived) else work()
        except Exception as error:
            if self.post.world.size == 1:
                raise
            self.failure = self.failure or error
            return None

    def close(self) -> None:
        """Wait for all ranks; raise what went wrong on one of them on all."""
        self.post.close()
        self.post.world.agree(self.failure)


class Utils(NamedTuple):
    """One UTIL message: tables from below, and from above; the same object where they do not differ."""

    lower: UtilMessage
    upper: UtilMessage | None


class Steps(NamedTuple):
    """An agent's UTIL steps with both kinds of tables; ``upper`` is ``lower`` where they do not differ, None without.

    ``received`` are the children's messages.
    """

    lower: UtilStep
    upper: UtilStep | None
    received: tuple[Utils, ...] = ()

    def finished(self) -> "Steps":
        """Return the steps without what only VALUE asks for."""
        lower = self.lower.finished()
        upper = None if self.upper is None else lower if self.upper is self.lower else self.upper.finished()
        return Steps(lower, upper, self.received)

    @property
    def message(self) -> Utils:
        """What is sent."""
        if self.upper is self.lower:
            return Utils(self.lower.message, self.lower.message)
        return Utils(self.lower.message, None if self.upper is None else self.upper.message)


def util_size(message: Utils | None) -> int:
    """Return the bytes of a UTIL message: its tables' entries, and one word for each variable of a scope."""
    if message is None:
        return 0
    tables = [*message.lower, *(message.upper or () if message.upper is not message.lower else ())]
    return tables_size(tables)


def tables_size(tables: Sequence[Table]) -> int:
    """Return the bytes of some tables in a message."""
    return sum(table.nbytes + _WORD * len(scope) for scope, table in tables)


def util_phase(
    tree: PseudoTree,
    post: Post,
    clocks: dict[int, float],
    work: Callable[[int, list[Utils]], Steps],
    sent: dict[int, Sent],
) -> dict[int, Steps]:
    """Run the UTIL phase for this rank's agents.

    Parameters
    ----------
    clocks
        When each of this rank's agents has finished its local table; moved on here.
    work
        ``work(agent, messages of its children)`` makes the agent's steps.
    sent
        Takes what each agent sends, also where the phase fails.

    Raises
    ------
    Exception
        What ``work`` raises on any rank, on all of them (:meth:`dmcmc.mpi.world.World.agree`).
    """
    phase, steps = _Phase(post), dict[int, Steps]()
    for agent in post.mine(tree.bottom_up):
        arrived = [post.receive("UTIL", child, child) for child in tree.children[agent]]
        start, messages = time.perf_counter(), [message for message, _ in arrived]
        step = phase.attempt(partial(work, agent, messages), *messages)
        ready = max([clocks[agent], *(clock for _, clock in arrived)])
        clocks[agent] = ready + time.perf_counter() - start
        if step is not None:
            steps[agent] = step
        if tree.parent[agent] >= 0:
            message = _FAILED if step is None else step.message
            sent[agent] = Sent(1, util_size(message))
            post.send("UTIL", agent, tree.parent[agent], (message, clocks[agent]))
    phase.close()
    return steps


class Chosen(NamedTuple):
    """Interface values that the VALUE phase gave an agent: by the tables from below, and by those from above."""

    lower: Values
    upper: Values | None


def value_phase(
    tree: PseudoTree,
    post: Post,
    clocks: dict[int, float],
    steps: Mapping[int, Steps],
    separators: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> tuple[dict[int, Chosen], dict[int, Sent]]:
    """Run the VALUE phase for this rank's agents; return the values of their interface variables.

    The maximisers of the upper tables go along where they differ: they show where the gap comes from.

    Parameters
    ----------
    separators
        Of each agent, as the tables from below and from above are indexed.
    """
    phase, chosen, sent = _Phase(post), dict[int, Chosen](), dict[int, Sent]()
    for agent in post.mine(reversed(tree.bottom_up)):
        context: Chosen = Chosen({}, {})
        if tree.parent[agent] >= 0:
            context, clock = post.receive("VALUE", agent, tree.parent[agent])
            clocks[agent] = max(clocks[agent], clock)
        start = time.perf_counter()
        known = phase.attempt(partial(_known, steps[agent], separators[agent], context), context)
        if known is not None:
            chosen[agent] = _new(known, context)
        clocks[agent] += time.perf_counter() - start
        messages = {child: _told(known, separators[child]) for child in tree.children[agent]}
        for child, message in messages.items():
            post.send("VALUE", child, child, (message, clocks[agent]))
        sent[agent] = Sent(len(messages), sum(map(_value_size, messages.values())))
    phase.close()
    return chosen, sent


def _told(known: Chosen | None, separators: tuple[Sequence[int], Sequence[int]]) -> Chosen | None:
    """Return what a child is told of the values that its parent knows."""
    if known is None:
        return _FAILED
    low, up = separators
    return Chosen({v: known.lower[v] for v in low}, known.upper and {v: known.upper[v] for v in up})


def _value_size(message: Chosen | None) -> int:
    """Return the bytes of a VALUE message: two words a value, and values from above where they differ."""
    if message is None:
        return 0
    differs = message.upper is not None and message.upper != message.lower
    return 2 * _WORD * (len(message.lower) + (len(message.upper or ()) if differs else 0))


def outside_phase(
    tree: PseudoTree,
    post: Post,
    work: Callable[[int, UtilMessage], tuple[UtilMessage, list[UtilMessage]]],
) -> tuple[dict[int, UtilMessage], dict[int, Sent]]:
    """Tell this rank's agents what all others add to their rows; messages go down as in VALUE.

    Parameters
    ----------
    work
        ``work(agent, outside over its separator)`` is :func:`.outside_steps` for an agent.
    """
    phase, outsides, sent = _Phase(post), dict[int, UtilMessage](), dict[int, Sent]()
    for agent in post.mine(reversed(tree.bottom_up)):
        above: UtilMessage = ()
        if tree.parent[agent] >= 0:
            above = post.receive("OUTSIDE", agent, tree.parent[agent])
        made = phase.attempt(partial(work, agent, above), above)
        downs: list[UtilMessage | None] = [_FAILED] * len(tree.children[agent])
        if made is not None:
            outsides[agent], downs = made[0], [*made[1]]
        for child, message in zip(tree.children[agent], downs, strict=True):
            post.send("OUTSIDE", child, child, message)
        sent[agent] = Sent(len(downs), sum(tables_size(down or ()) for down in downs))
    phase.close()
    return outsides, sent


def _known(steps: Steps, separators: tuple[Sequence[int], Sequence[int]], context: Chosen) -> Chosen:
    """Return the values of interface and separator on both sides."""
    lower = value_step(steps.lower, separators[0], context.lower)
    if steps.upper is None or context.upper is None:
        return Chosen(lower, None)
    if steps.upper is steps.lower and context.upper == context.lower:
        return Chosen(lower, lower)
    return Chosen(lower, value_step(steps.upper, separators[1], context.upper))


def _new(known: Chosen, context: Chosen) -> Chosen:
    """Return the values of the interface: those known, without those that the parent told."""
    upper = None if known.upper is None or context.upper is None else _without(known.upper, context.upper)
    return Chosen(_without(known.lower, context.lower), upper)


def _without(values: Values, told: Values) -> Values:
    return {v: x for v, x in values.items() if v not in told}
