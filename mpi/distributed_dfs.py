"""A depth-first tree that agents find by messages: each agent knows its neighbours only.

Neighbours send each other their numbers of neighbours (DEGREE). In each component, the agent with the most neighbours
becomes the root; ties go to the lowest number. An agent that ``combine.root`` names sends the number of all agents,
which is more than any agent has neighbours, so it becomes the root of its component.

The root is elected by the echo algorithm with extinction (Tel 2000, §7.3): each agent that precedes all its neighbours
in this order starts a wave (WAVE). Agents pass the largest wave on and ignore smaller ones. The agent whose wave has
returned from all its neighbours is the root. The root sends a token. Each agent passes it on to the unvisited neighbour
with the most neighbours (TOKEN). It returns from an agent that was visited before, or that has no unvisited neighbour
left (BACK). The resulting tree is that of :func:`dmcmc.inference.dpop.trees.depth_first` on the whole graph.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dmcmc.inference.dpop.agent_step import SentMessages
from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.pseudotree import PseudoTree, complete_tree, neighbours_of, root_agent
from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.world import World, exchange

_INTEGER_BYTES = 8  # bytes per integer of a message, as it is counted
_DEGREE, _WAVE, _TOKEN, _BACK = range(4)
_MESSAGE_INTEGERS = (3, 5, 3, 3)  # integers per message: kind, sender, receiver, and contents


class DfsMessage(NamedTuple):
    """A message between neighbours.

    Attributes
    ----------
    kind : int
        ``_DEGREE``, ``_WAVE``, ``_TOKEN`` or ``_BACK``.
    sender, receiver : int
        The agents.
    degree : int
        In a degree message, the sender's number of neighbours, or that of all agents if it is to be the root; in a
        wave, that of the wave's initiator.
    agent : int
        In a wave, the initiator.
    """

    kind: int
    sender: int
    receiver: int
    degree: int = 0
    agent: int = 0


@dataclass
class _DfsAgent:
    """The knowledge of one agent.

    Attributes
    ----------
    number : int
        The agent.
    neighbours : sequence of int
        Its neighbours.
    degree : int
        The number that it sends in its degree messages.
    degrees : dict
        Number of neighbours of each neighbour, as far as received.
    wave : (int, int)
        Degree and minus the number of the initiator of the largest wave received.
    before : int
        The neighbour that sent that wave first; −1 for its initiator.
    echoes : int
        Number of neighbours from which that wave has arrived.
    parent : int or None
        The parent in the tree; −1 for a root, None until the token arrives.
    tried : set of int
        Neighbours that have had the token.
    """

    number: int
    neighbours: Sequence[int]
    degree: int
    degrees: dict[int, int] = field(default_factory=dict)
    wave: tuple[int, int] = (-1, 0)  # (−1, 0) before the first wave: smaller than all waves
    before: int = -1  # the neighbour that sent the wave first
    echoes: int = 0
    parent: int | None = None  # −1 for a root
    tried: set[int] = field(default_factory=set)

    def begin(self) -> list[DfsMessage]:
        """Return the messages with this agent's degree."""
        if not self.neighbours:
            self.parent = -1
        return [DfsMessage(_DEGREE, self.number, other, self.degree) for other in self.neighbours]

    def receive(self, message: DfsMessage) -> list[DfsMessage]:
        """Return the messages that this agent sends when it receives a message."""
        if message.kind == _DEGREE:
            self.degrees[message.sender] = message.degree
            return self._start_wave() if len(self.degrees) == len(self.neighbours) else []
        if message.kind == _WAVE:
            return self._receive_wave(message)
        self.tried.add(message.sender)
        if message.kind == _TOKEN:
            if self.parent is not None:
                return [DfsMessage(_BACK, self.number, message.sender)]
            self.parent = message.sender
        return self._pass_on()

    def _start_wave(self) -> list[DfsMessage]:
        """Return the messages of this agent's wave if no neighbour precedes it."""
        this_wave = (self.degree, -self.number)
        if any((degree, -other) > this_wave for other, degree in self.degrees.items()) or self.wave > this_wave:
            return []
        self.wave, self.before, self.echoes = this_wave, -1, 0
        return self._wave_messages(self.neighbours)

    def _wave_messages(self, receivers: Sequence[int]) -> list[DfsMessage]:
        """Return messages that pass the largest wave on."""
        return [DfsMessage(_WAVE, self.number, other, self.wave[0], -self.wave[1]) for other in receivers]

    def _receive_wave(self, message: DfsMessage) -> list[DfsMessage]:
        """Return the messages that this agent sends when it receives a wave."""
        wave = (message.degree, -message.agent)
        if wave < self.wave:
            return []
        messages = list[DfsMessage]()
        if wave > self.wave:
            self.wave, self.before, self.echoes = wave, message.sender, 0
            messages = self._wave_messages([other for other in self.neighbours if other != message.sender])
        self.echoes += 1
        if self.echoes < len(self.neighbours):
            return messages
        if self.before >= 0:
            return messages + self._wave_messages([self.before])
        self.parent = -1
        return messages + self._pass_on()

    def _pass_on(self) -> list[DfsMessage]:
        """Return the message that sends the token to the next neighbour, or back; none if the root has it back."""
        unvisited = [other for other in self.neighbours if other not in self.tried and other != self.parent]
        if unvisited:
            best = min(unvisited, key=lambda other: (-self.degrees[other], other))
            self.tried.add(best)
            return [DfsMessage(_TOKEN, self.number, best)]
        return [] if self.parent is None or self.parent < 0 else [DfsMessage(_BACK, self.number, self.parent)]


def distributed_dfs_tree(
    problem: Problem, division: Division, world: World, root: str | None = None
) -> tuple[PseudoTree, dict[int, SentMessages]]:
    """Return the tree that the agents find, and each agent's message statistics, on every rank; a collective call.

    Each rank works for an equal number of agents. ``root`` is the name of an agent that is to be a root, or None.

    Raises
    ------
    ConfigError
        If no agent has the name of the root; raised on every rank.
    """
    root_index = world.on_first_rank(lambda: root_agent(problem, root))
    agents = len(division.locals)
    owner = [agent * world.size // agents for agent in range(agents)]
    neighbours = neighbours_of(problem, division)
    local_neighbours = {agent: neighbours[agent] for agent, rank in enumerate(owner) if rank == world.rank}
    parents, sent = depth_first_by_token(local_neighbours, owner, world, root_index)
    all_parents = world.union(parents)
    return complete_tree(problem, division, [all_parents[agent] for agent in range(len(owner))]), world.union(sent)


def depth_first_by_token(
    neighbours: Mapping[int, Iterable[int]], owner: Sequence[int], world: World, root: int | None = None
) -> tuple[dict[int, int], dict[int, SentMessages]]:
    """Return the parent of each of this rank's agents, −1 for roots, and its message statistics; a collective call.

    Parameters
    ----------
    neighbours : dict
        Neighbours of each of this rank's agents.
    owner : sequence of int
        The rank of each agent.
    world : World
        The ranks.
    root : int, optional
        The agent that is to be the root of its component.
    """
    agents = {
        number: _DfsAgent(number, sorted(others), len(owner) if number == root else len(list(others)))
        for number, others in neighbours.items()
    }
    counts, sizes = dict.fromkeys(agents, 0), dict.fromkeys(agents, 0)
    local, outgoing = deque[DfsMessage](), [list[DfsMessage]() for _ in range(world.size)]

    def send(messages: Sequence[DfsMessage]) -> None:
        """Count messages and put them into the queues of their receivers' ranks."""
        for message in messages:
            counts[message.sender] += 1
            sizes[message.sender] += _INTEGER_BYTES * _MESSAGE_INTEGERS[message.kind]
            (local if owner[message.receiver] == world.rank else outgoing[owner[message.receiver]]).append(message)

    for agent in agents.values():
        send(agent.begin())
    while True:
        while local:
            message = local.popleft()
            send(agents[message.receiver].receive(message))
        received = exchange(
            world,
            [np.array(messages, dtype="<i8").reshape(-1, len(DfsMessage._fields)) for messages in outgoing],
            "tree",
        )
        if received is None:
            break
        outgoing = [list[DfsMessage]() for _ in range(world.size)]
        local.extend(DfsMessage(*row) for messages in received for row in messages.tolist())
    parents = {number: -1 if agent.parent is None else agent.parent for number, agent in agents.items()}
    return parents, {number: SentMessages(counts[number], sizes[number], "TREE") for number in agents}
