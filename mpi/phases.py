"""DPOP's two phases over ranks: UTIL messages up the agents' tree, VALUE messages down.

Every rank walks the same order of agents and does its own. A message between agents of one rank is handed over, one
between ranks is sent without waiting; both count alike. An agent's clock is the time at which it would be done if
every agent had a machine of its own (simulated time, Sultanik et al. 2008); it travels with the messages.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmcmc.inference.dpop.messages import UtilMessage, UtilStep, value_step
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.arithmetic import Table
from dmcmc.mpi.world import World

_WORD = 8  # bytes of a variable's or value's index in a message

Values = dict[int, int]


@dataclass(frozen=True)
class Sent:
    """What an agent sent: messages, and bytes in all of them."""

    count: int = 0
    size: int = 0


class Post:
    """Messages between agents, by (receiver's) key, within a rank and between ranks."""

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
            self._pending.append(self.world.comm.isend(message, dest=rank, tag=_tag(kind, agent)))

    def receive(self, kind: str, agent: int, sender: int) -> Any:
        """Wait for the message of the tree edge below which ``agent`` is."""
        rank = self.owner[sender]
        if rank == self.world.rank:
            return self._here.pop((kind, agent))
        return self.world.comm.recv(source=rank, tag=_tag(kind, agent))

    def close(self) -> None:
        """Wait until everything sent has left."""
        for request in self._pending:
            request.wait()
        self._pending.clear()


def _tag(kind: str, agent: int) -> int:
    return 3 * agent + ("UTIL", "VALUE", "OUTSIDE").index(kind)


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

    @property
    def message(self) -> Utils:
        """What is sent."""
        if self.upper is self.lower:
            return Utils(self.lower.message, self.lower.message)
        return Utils(self.lower.message, None if self.upper is None else self.upper.message)


NO_STEPS: Any = None  # of an agent that has failed: sent as it is, so that nobody waits


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
) -> tuple[dict[int, Steps], dict[int, Sent]]:
    """Run the UTIL phase for this rank's agents.

    Parameters
    ----------
    clocks
        When each of this rank's agents has finished its local table; moved on here.
    work
        ``work(agent, messages of its children)`` makes the agent's steps.
    """
    steps: dict[int, Steps] = {}
    sent: dict[int, Sent] = {}
    for agent in tree.bottom_up:
        if post.owner[agent] != post.world.rank:
            continue
        arrived = [post.receive("UTIL", child, child) for child in tree.children[agent]]
        start = time.perf_counter()
        steps[agent] = work(agent, [message for message, _ in arrived])
        ready = max([clocks[agent], *(clock for _, clock in arrived)])
        clocks[agent] = ready + time.perf_counter() - start
        parent = tree.parent[agent]
        if parent >= 0:
            message = None if steps[agent] is NO_STEPS else steps[agent].message
            sent[agent] = Sent(1, util_size(message))
            post.send("UTIL", agent, parent, (message, clocks[agent]))
    post.close()
    return steps, sent


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
    chosen: dict[int, Chosen] = {}
    sent: dict[int, Sent] = {}
    for agent in reversed(tree.bottom_up):
        if post.owner[agent] != post.world.rank:
            continue
        context: Chosen = Chosen({}, {})
        if tree.parent[agent] >= 0:
            context, clock = post.receive("VALUE", agent, tree.parent[agent])
            clocks[agent] = max(clocks[agent], clock)
        start = time.perf_counter()
        known = _known(steps[agent], separators[agent], context)
        upper = None if known.upper is None or context.upper is None else _without(known.upper, context.upper)
        chosen[agent] = Chosen(_without(known.lower, context.lower), upper)
        clocks[agent] += time.perf_counter() - start
        size = 0
        for child in tree.children[agent]:
            low, up = separators[child]
            message = Chosen({v: known.lower[v] for v in low}, known.upper and {v: known.upper[v] for v in up})
            size += 2 * _WORD * len(message.lower)
            if message.upper is not None and message.upper != message.lower:
                size += 2 * _WORD * len(message.upper)
            post.send("VALUE", child, child, (message, clocks[agent]))
        sent[agent] = Sent(len(tree.children[agent]), size)
    post.close()
    return chosen, sent


def outside_phase(
    tree: PseudoTree,
    post: Post,
    work: Callable[[int, UtilMessage], tuple[UtilMessage, list[UtilMessage]]],
) -> tuple[dict[int, UtilMessage], dict[int, Sent]]:
    """Tell this rank's agents what the rest of the problem adds to their rows; messages go down as in VALUE.

    Parameters
    ----------
    work
        ``work(agent, outside over its separator)`` is :func:`dmcmc.inference.dpop.messages.outside_steps` for an agent.
    """
    rests: dict[int, UtilMessage] = {}
    sent: dict[int, Sent] = {}
    for agent in reversed(tree.bottom_up):
        if post.owner[agent] != post.world.rank:
            continue
        outside: UtilMessage = ()
        if tree.parent[agent] >= 0:
            outside = post.receive("OUTSIDE", agent, tree.parent[agent])
        rests[agent], downs = work(agent, outside)
        for child, message in zip(tree.children[agent], downs, strict=True):
            post.send("OUTSIDE", child, child, message)
        sent[agent] = Sent(len(downs), sum(map(tables_size, downs)))
    post.close()
    return rests, sent


def _known(steps: Steps, separators: tuple[Sequence[int], Sequence[int]], context: Chosen) -> Chosen:
    """Return the values of interface and separator on both sides."""
    lower = value_step(steps.lower, separators[0], context.lower)
    if steps.upper is None or context.upper is None:
        return Chosen(lower, None)
    if steps.upper is steps.lower and context.upper == context.lower:
        return Chosen(lower, lower)
    return Chosen(lower, value_step(steps.upper, separators[1], context.upper))


def _without(values: Values, given: Values) -> Values:
    return {v: x for v, x in values.items() if v not in given}
