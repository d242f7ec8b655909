"""Run the agents of an asynchronous algorithm on MPI ranks, with real messages between ranks.

Each rank works on the messages between its own agents until none is left, at most for a fixed number of events; then
all ranks exchange the messages to each other's agents. The run ends when no rank has a message left, or when all agents
have finished. It is the same for the same seed and number of ranks. Messages take no simulated time here; delays and
losses are for the simulator.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from dmcmc.algorithms.agent import EVERYONE, DcopAgent
from dmcmc.algorithms.population import Population, Snapshot
from dmcmc.inference.runtime.deadline import Deadline

_EVENTS = 1000  # events of a rank between two exchanges, at most

Message = tuple[int, int, str, Any, int, int, int]  # receiver, sender, kind, content, checks, operations, chain


def run_on_ranks(population: Population, stop: Deadline) -> Iterator[Snapshot]:
    """Yield the values of all variables after each exchange of messages; called by all ranks.

    Parameters
    ----------
    population : Population
        The agents of this rank.
    stop : Deadline
        When to end. All ranks end after the same exchange.
    """
    run = _Rank(population, stop)
    run.start()
    while True:
        parts = population.network.world.allgather((run.away, stop.over, run.state()), "messages")
        run.take([message for part in parts for message in part[0]])
        states = [part[2] for part in parts]
        network = population.network
        network.add_counts(sum(s[6] for s in states), sum(s[7] for s in states))
        network.checks, network.operations = max(s[0] for s in states), max(s[1] for s in states)
        (values,) = network.tell(population.values)
        chain = max(s[2] for s in states)
        yield Snapshot(None if any(s[3] for s in states) else values.copy(), None, chain)
        network.ended = not any(s[4] for s in states)
        quiet = not any(part[0] for part in parts) and not any(s[5] for s in states)
        if network.ended or quiet or any(part[1] for part in parts):
            return
        run.work()


class _Rank:
    """The agents of one rank, and the messages that wait for them.

    Attributes
    ----------
    away : list of Message
        Messages to agents of other ranks since the last exchange.
    """

    def __init__(self, population: Population, stop: Deadline) -> None:
        self.population, self.stop, self.agents = population, stop, population.agents
        self.away: list[Message] = []
        self._here: deque[Message] = deque()
        self._wakes: list[tuple[float, int, int]] = []  # time, number, agent
        self._number, self._now, self._chain = 0, 0.0, 0

    def start(self) -> None:
        """Start all agents."""
        for v, agent in self.agents.items():
            self.population.call(agent.start)
            self._send(v, agent)

    def take(self, messages: list[Message]) -> None:
        """Queue the messages from other ranks to agents of this rank."""
        self.away = []
        self._here.extend(message for message in messages if message[0] in self.agents)

    def work(self) -> None:
        """Work on waiting messages; wake agents up when there are none."""
        for _ in range(_EVENTS):
            if self.stop.over or not (self._here or self._wakes):
                return
            if self._here:
                v, sender, kind, content, checks, operations, chain = self._here.popleft()
                agent = self.agents[v]
                if agent.finished:
                    continue
                meter = agent.meter
                meter.checks, meter.operations = max(meter.checks, checks), max(meter.operations, operations)
                meter.chain = max(meter.chain, chain)
                self.population.call(agent.on_message, sender, kind, content)
            else:
                if self.away:
                    return  # the others may answer before this rank's next wake-up
                self._now, _, v = heapq.heappop(self._wakes)
                agent = self.agents[v]
                if agent.finished:
                    continue
                agent.meter.chain += 1
                self.population.call(agent.on_wake)
            self._chain = max(self._chain, agent.meter.chain)
            self._send(v, agent)

    def _send(self, v: int, agent: DcopAgent) -> None:
        """Queue the messages and wake-ups of an agent."""
        self.population.look(v)
        for to, kind, content, checks, operations in agent.outbox:
            self.population.count(v, to, kind, content)
            for u in agent.neighbours if to == EVERYONE else (to,):
                message = (u, v, kind, content, checks, operations, agent.meter.chain + 1)
                (self._here if u in self.agents else self.away).append(message)
        agent.outbox.clear()
        for after in agent.wakes:
            self._number += 1
            heapq.heappush(self._wakes, (self._now + after, self._number, v))
        agent.wakes.clear()

    def state(self) -> tuple[int, ...]:
        """Return clocks, the longest chain, numbers of agents without a value, running ones, events; sent messages."""
        meters = [agent.meter for agent in self.agents.values()]
        checks = max((meter.checks for meter in meters), default=0)
        operations = max((meter.operations for meter in meters), default=0)
        running = int(np.sum([not agent.finished for agent in self.agents.values()]))
        waiting = len(self._here) + len(self._wakes)
        sent = self.population.network.total_messages, self.population.network.total_bytes
        return checks, operations, self._chain, self.population.unassigned, running, waiting, *sent
