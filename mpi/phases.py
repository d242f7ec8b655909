"""DPOP's two phases over ranks: UTIL messages up the agents' tree, VALUE messages down.

Every rank walks the same order of agents and does its own. A message between agents of one rank is handed over, one
between ranks is sent without waiting; both count alike. An agent's clock is the time at which it would be done if
every agent had a machine of its own (simulated time, Sultanik et al. 2008); it travels with the messages.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dmcmc.inference.dpop import UtilMessage, UtilStep, value_step
from dmcmc.inference.pseudotree import PseudoTree
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
    return 2 * agent + (kind == "VALUE")


def util_size(message: UtilMessage) -> int:
    """Return the bytes of a UTIL message: its tables' entries, and one word for each variable of a scope."""
    return sum(table.nbytes + _WORD * len(scope) for scope, table in message)


def util_phase(
    tree: PseudoTree,
    post: Post,
    clocks: dict[int, float],
    work: Callable[[int, list[UtilMessage]], UtilStep],
) -> tuple[dict[int, UtilStep], dict[int, Sent]]:
    """Run the UTIL phase for this rank's agents.

    Parameters
    ----------
    clocks
        When each of this rank's agents has finished its local table; moved on here.
    work
        ``work(agent, messages of its children)`` makes the agent's step.
    """
    steps: dict[int, UtilStep] = {}
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
            message = steps[agent].message
            sent[agent] = Sent(1, util_size(message))
            post.send("UTIL", agent, parent, (message, clocks[agent]))
    post.close()
    return steps, sent


def value_phase(
    tree: PseudoTree,
    post: Post,
    clocks: dict[int, float],
    steps: Mapping[int, UtilStep],
    witness: Callable[[int, Values], Values],
) -> tuple[Values, dict[int, Sent]]:
    """Run the VALUE phase for this rank's agents; return the values of all their variables.

    Parameters
    ----------
    witness
        ``witness(agent, interface values)`` returns the values of the agent's hidden variables.
    """
    values: Values = {}
    sent: dict[int, Sent] = {}
    for agent in reversed(tree.bottom_up):
        if post.owner[agent] != post.world.rank:
            continue
        context: Values = {}
        if tree.parent[agent] >= 0:
            context, clock = post.receive("VALUE", agent, tree.parent[agent])
            clocks[agent] = max(clocks[agent], clock)
        start = time.perf_counter()
        known = value_step(steps[agent], tree.separators[agent], context)
        interface = {v: x for v, x in known.items() if v not in context}
        values |= interface | witness(agent, interface)
        clocks[agent] += time.perf_counter() - start
        size = 0
        for child in tree.children[agent]:
            message = {v: known[v] for v in tree.separators[child]}
            size += 2 * _WORD * len(message)
            post.send("VALUE", child, child, (message, clocks[agent]))
        sent[agent] = Sent(len(tree.children[agent]), size)
    post.close()
    return values, sent
