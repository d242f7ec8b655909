"""Run the agents of an asynchronous algorithm in one process: events in the order of simulated time.

An event is a message that arrives, or a wake-up. Simulated time passes only by delays and wake-ups; events at the same
time happen in the order in which they were caused. The run therefore depends on the seed only. Two messages of one link
do not overtake each other. A run ends when all agents have finished, or when no event is left.
"""

import heapq
import time
from collections.abc import Iterator, Mapping

from dmcmc.algorithms.agent import EVERYONE, DcopAgent, SynchronousAgent
from dmcmc.algorithms.als import anytime
from dmcmc.algorithms.contract import Value
from dmcmc.algorithms.network import AgentNetwork
from dmcmc.algorithms.population import Delays, Population, Snapshot
from dmcmc.algorithms.ranks import run_on_ranks
from dmcmc.algorithms.rounds import run_in_rounds
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline

_WAKE = None  # kind of a wake-up, which is no message
_CHECKED_EVENTS = 256  # events between two looks at the clock and reports of the state


def run_agents(
    algorithm: type[DcopAgent],
    network: AgentNetwork,
    given: Mapping[str, Value],
    seed: int = 0,
    delays: Delays | None = None,
    stop: Deadline = NO_DEADLINE,
) -> Iterator[Snapshot]:
    """Yield the state of all agents after each cycle (synchronous), or after each change of a value.

    ``network`` receives all measures: messages, clocks, and in ``network.ended`` whether all agents have finished.

    Parameters
    ----------
    algorithm, network, given, seed
        As for :class:`dmcmc.algorithms.population.Population`.
    delays : Delays, optional
        Delays and losses of messages; none by default.
    stop : Deadline
        When to end. It is looked at between the steps of agents.
    """
    if issubclass(algorithm, SynchronousAgent):
        algorithm = anytime(algorithm) if given.get("anytime") else algorithm
        return run_in_rounds(algorithm, network, given, seed, delays, stop)
    population = Population(algorithm, network, given, seed)
    if network.world.size > 1:
        return run_on_ranks(population, stop)
    return _Events(population, delays or Delays(), stop).run()


class _Events:
    """The queue of events of all agents.

    An event is a tuple: time, number, receiver, sender, kind, content, checks, operations and chain (the sender's
    logical clocks), and seconds (of simulated time with computation).
    """

    def __init__(self, population: Population, delays: Delays, stop: Deadline) -> None:
        self.population, self.network, self.delays, self.stop = population, population.network, delays, stop
        self.agents = population.agents
        self._queue: list[tuple[float, int, int, int, str | None, object, int, int, int, float]] = []
        self._number = 0  # of events so far
        self._last: dict[tuple[int, int], float] = {}  # arrival of the last message of each link
        self._busy = dict.fromkeys(self.agents, 0.0)  # simulated seconds until which each agent has worked
        self.chain = 0
        self._running = len(self.agents)

    def run(self) -> Iterator[Snapshot]:
        """Yield the state after each change of a value, and now and then."""
        population, network, queue = self.population, self.network, self._queue
        agents, busy = self.agents, self._busy
        for v, agent in agents.items():
            begin = time.perf_counter()
            population.call(agent.start)
            busy[v] += time.perf_counter() - begin
            population.look(v)
            self._send(v, 0.0, agent)
            if self.stop.over:
                return
        score = None if population.unassigned else network.total_score(population.values)
        yield self._snapshot(score)
        handled, pop, clock = 0, heapq.heappop, time.perf_counter
        while queue and self._running:
            now, _, v, sender, kind, content, checks, operations, chain, seconds = pop(queue)
            agent = agents[v]
            if agent.finished:
                continue
            meter = agent.meter
            if checks > meter.checks:
                meter.checks = checks
            if operations > meter.operations:
                meter.operations = operations
            if chain > meter.chain:
                meter.chain = chain
                if chain > self.chain:
                    self.chain = chain
            begin = clock()
            if kind is _WAKE:
                population.call(agent.on_wake)
            else:
                population.call(agent.on_message, sender, kind, content)
            busy[v] = (seconds if seconds > busy[v] else busy[v]) + clock() - begin
            if busy[v] > network.simulated:
                network.simulated = busy[v]
            if meter.checks > network.checks:
                network.checks = meter.checks
            if meter.operations > network.operations:
                network.operations = meter.operations
            network.delayed = now
            value, old, complete = agent.value, population.values[v], not population.unassigned
            changed = value is not None and population.look(v) is not None
            if agent.outbox or agent.wakes or agent.finished:
                self._send(v, now, agent)
            handled += 1
            if changed:
                if complete and score is not None:
                    score += population.gain(v, int(old))
                elif not population.unassigned:
                    score = network.total_score(population.values)
                yield self._snapshot(score)
            elif not handled % _CHECKED_EVENTS:
                yield self._snapshot(score)
            if self.stop.over:
                return
        network.ended = not self._running
        yield self._snapshot(score)

    def _snapshot(self, score: int | None) -> Snapshot:
        """Return the state of all agents."""
        return Snapshot(None if score is None else self.population.values, score, self.chain)

    def _send(self, v: int, now: float, agent: DcopAgent) -> None:
        """Queue the messages and wake-ups of an agent, and take it out if it has finished."""
        population, delays, queue, meter = self.population, self.delays, self._queue, agent.meter
        chain, seconds, push = meter.chain + 1, self._busy[v], heapq.heappush
        plain = delays.kind == "none" and not delays.loss
        for to, kind, content, checks, operations in agent.outbox:
            population.count(v, to, kind, content)
            for u in agent.neighbours if to == EVERYONE else (to,):
                arrival = now
                if not plain:
                    if delays.loses():
                        continue
                    arrival += delays.of(v, u)
                    if delays.may_overtake:
                        arrival = self._last[v, u] = max(arrival, self._last.get((v, u), 0.0))
                self._number += 1
                event = (arrival, self._number, u, v, kind, content, checks, operations, chain)
                push(queue, (*event, seconds + arrival - now))
        agent.outbox.clear()
        for after in agent.wakes:
            self._number += 1
            wake_up = (now + after, self._number, v, v, _WAKE, None, meter.checks, meter.operations, chain)
            push(queue, (*wake_up, seconds + after))
        agent.wakes.clear()
        self._running -= agent.finished
