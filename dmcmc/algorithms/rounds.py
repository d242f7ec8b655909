"""Run the agents of a synchronous algorithm, in one process or on all ranks.

All agents work, then all messages are delivered: a round. With delays a round takes as long as its slowest message; a
lost message is missing in the receiver's round. Ranks exchange the messages between their agents after each round. A
run is the same on any number of ranks.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.agent import EVERYONE, SynchronousAgent
from dmcmc.algorithms.contract import Value
from dmcmc.algorithms.network import AgentNetwork
from dmcmc.algorithms.population import Delays, Population, Snapshot
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline


def run_in_rounds(
    algorithm: type[SynchronousAgent],
    network: AgentNetwork,
    given: Mapping[str, Value],
    seed: int = 0,
    delays: Delays | None = None,
    stop: Deadline = NO_DEADLINE,
) -> Iterator[Snapshot]:
    """Yield the values of all variables after each cycle; called by all ranks.

    Parameters
    ----------
    algorithm, network, given, seed
        As for :class:`dmcmc.algorithms.population.Population`.
    delays : Delays, optional
        Delays and losses of messages; none by default.
    stop : Deadline
        When to end. It is looked at between agents.
    """
    delays, rounds = delays or Delays(), algorithm.rounds_of(given)
    run = _Rounds(Population(algorithm, network, given, seed), delays, stop)
    if not run.advance():
        return
    cycle, known_not_optimal = 0, False
    yield Snapshot(run.values(), None, cycle)
    while run.active:
        before, running = run.all_values, True
        for _ in range(rounds):
            running = run.deliver() and run.advance()
            if not running:
                return
        values = run.values()
        if algorithm.optimal_for and values is not None and before is not None:
            if (values != before).any():
                known_not_optimal = False
            elif not known_not_optimal:
                looks_at_all = algorithm.optimal_for > 2
                if not delays.loss if looks_at_all else _is_optimal(network, values, algorithm.optimal_for):
                    return
                known_not_optimal = True
        cycle += 1
        yield Snapshot(values, None, cycle)
    network.ended = True


def _is_optimal(network: AgentNetwork, values: Any, group: int) -> bool:
    """Return whether no group of this many neighbouring variables can gain anything; called by all ranks."""
    scores = network.scores(values)
    if group == 1:
        return not (network.best_moves(values, scores)[1] > 0).any()
    (scores,) = network.tell(scores)
    row = np.empty(network.layout.max_domain, dtype=np.int64)
    return bool(kernels.is_2_optimal(network.layout, values, scores, row))


class _Rounds:
    """The agents of one rank between two rounds.

    Attributes
    ----------
    active : int
        Number of agents of all ranks that have not finished.
    all_values : (n,) int64 or None
        The values that :meth:`values` returned last.
    """

    def __init__(self, population: Population, delays: Delays, stop: Deadline) -> None:
        self.population, self.network, self.delays, self.stop = population, population.network, delays, stop
        agents = {v: agent for v, agent in population.agents.items() if isinstance(agent, SynchronousAgent)}
        self.agents = agents
        self._runs: dict[int, Any] = {v: population.call(agent.run) for v, agent in agents.items()}
        self._inbox: dict[int, dict[int, Any] | None] = dict.fromkeys(agents)  # None before the first round
        self._slowest = 0.0  # seconds of the slowest agent of this round
        self.active = network_size = self.network.problem.n_variables
        self.all_values = np.zeros(network_size, dtype=np.int64) if network_size == 0 else None
        self._is_alone = self.network.world.size == 1

    def advance(self) -> bool:
        """Let all agents of this rank work until the end of the round; return whether there is time left."""
        population, runs = self.population, self._runs
        for v, inbox in self._inbox.items():
            if v not in runs:
                continue
            if self._is_alone and self.stop.over:
                return False
            begin = time.perf_counter()
            try:
                population.call(runs[v].send, inbox)
            except StopIteration:
                del runs[v]
                self.agents[v].finished = True
            population.look(v)
            self._slowest = max(self._slowest, time.perf_counter() - begin)
        return True

    def deliver(self) -> bool:
        """Deliver the messages of the round; return whether all ranks go on."""
        network, population, delays = self.network, self.population, self.delays
        inboxes: dict[int, dict[int, Any]] = {v: {} for v in self.agents}
        clocks = {v: (agent.meter.checks, agent.meter.operations) for v, agent in self.agents.items()}
        away: list[tuple[int, int, Any, int, int]] = []
        plain, longest = delays.kind == "none" and not delays.loss, 0.0
        for v, agent in self.agents.items():
            for receiver, kind, content, checks, operations in agent.outbox:
                population.count(v, receiver, kind, content)
                for u in agent.neighbours if receiver == EVERYONE else (receiver,):
                    if not plain:
                        longest = max(longest, delays.of(v, u))
                        if delays.loses():
                            continue
                    if u in inboxes:
                        inboxes[u][v] = content
                        old = clocks[u]
                        if checks > old[0] or operations > old[1]:
                            clocks[u] = (max(old[0], checks), max(old[1], operations))
                    else:
                        away.append((u, v, content, checks, operations))
            agent.outbox.clear()
        goes_on = True
        if not self._is_alone:
            goes_on, longest = self._exchange(away, inboxes, clocks, longest)
        for v, agent in self.agents.items():
            agent.meter.checks, agent.meter.operations = clocks[v]
        self._inbox = dict(inboxes)
        network.simulated += self._slowest + longest
        network.delayed += longest
        self._slowest = 0.0
        return goes_on

    def _exchange(
        self, away: Any, inboxes: dict[int, dict[int, Any]], clocks: dict[int, tuple[int, int]], longest: float
    ) -> tuple[bool, float]:
        """Exchange messages with the other ranks; inboxes are then in the order of the senders."""
        parts = self.network.world.allgather((away, self.stop.over, longest, self._slowest), "messages")
        for u, v, content, checks, operations in (message for part in parts for message in part[0]):
            if u in inboxes:
                inboxes[u][v] = content
                clocks[u] = (max(clocks[u][0], checks), max(clocks[u][1], operations))
        for v, inbox in inboxes.items():
            inboxes[v] = dict(sorted(inbox.items()))
        self._slowest = max(part[3] for part in parts)
        return not any(part[1] for part in parts), max(part[2] for part in parts)

    def values(self) -> Any:
        """Return the values of all variables, or None if one has none; take the logical clocks of all agents."""
        network, population = self.network, self.population
        meters = [agent.meter for agent in self.agents.values()]
        checks = max((meter.checks for meter in meters), default=0)
        operations = max((meter.operations for meter in meters), default=0)
        counts = network.total_messages, network.total_bytes
        parts = network.world.allgather((checks, operations, len(self._runs), population.unassigned, *counts))
        network.add_counts(sum(part[4] for part in parts), sum(part[5] for part in parts))
        network.checks, network.operations = max(part[0] for part in parts), max(part[1] for part in parts)
        self.active = sum(part[2] for part in parts)
        (values,) = network.tell(population.values)
        self.all_values = None if any(part[3] for part in parts) else values.copy()
        return self.all_values
