"""DPOP's two phases over ranks: UTIL messages up the agents' tree, VALUE messages down.

Every rank does its own agents, those first whose messages have come. A message between agents of one rank is handed
over, one between ranks is sent without waiting; both count alike: one message a tree edge and phase, of so many bytes
as its tables' entries and indices have, whatever MPI makes of it. An agent's clock is the time at which it would be
done if every agent had a machine like this one's share of it to itself and messages took no time (simulated time,
Sultanik et al. 2008); it travels with the messages.

An agent whose work fails sends on that it has, and so does who hears of it: so every rank comes to the end of a phase,
where all of them raise the error.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, TypeVar

from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.dpop.util_and_value import UtilMessage, UtilStep, value_step
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.mpi.mailbox import Post
from dmcmc.mpi.message_contents import Chosen, Clock, Sent, Utils, Values, latest, tables_size, util_size, value_size

T = TypeVar("T")

FAILED = None  # in place of a message of an agent that has failed, so that nobody waits for it


class Phase:
    """One phase on this rank: what went wrong, and the end that all ranks come to together."""

    def __init__(self, post: Post, order: Sequence[int]) -> None:
        self.post = post
        self._place = {agent: place for place, agent in enumerate(post.mine(order))}
        self._failures: list[tuple[int, int, Exception]] = []

    def attempt(self, agent: int, work: Callable[[], T], *arrived: Any) -> T | None:
        """Return what an agent makes; None if it fails, or one that it hears from has failed."""
        try:
            return None if any(message is FAILED for message in arrived) else work()
        except Exception as error:
            if self.post.world.size == 1:
                self.post.forget()
                raise
            first = error.order if isinstance(error, DmcmcError) else -1
            self._failures.append((first, self._place[agent], error))
            return None

    def close(self) -> None:
        """Wait for all ranks; raise what went wrong on one of them on all.

        Of several errors of this rank it is that of the first agent, in whatever order messages came.
        """
        self.post.close()
        worst = min(self._failures, key=lambda failure: failure[:2], default=None)
        self.post.world.agree(None if worst is None else worst[2])


def _as_they_come(post: Post, kind: str, awaited: Mapping[int, Sequence[int]]) -> Iterator[int]:
    """Yield this rank's agents, those whose messages have come before others, else in their order.

    Parameters
    ----------
    awaited
        Agents in their order; of each the lower agents of the edges along which it waits for messages.
    """
    place = {agent: number for number, agent in enumerate(awaited)}
    receiver = {edge: agent for agent, edges in awaited.items() for edge in edges}
    missing = {agent: len(edges) for agent, edges in awaited.items()}
    ready = [place[agent] for agent, count in missing.items() if not count]
    agents, left = list(awaited), len(awaited)
    heapify(ready)
    while left:
        for edge in post.arrived(kind, wait=not ready):
            agent = receiver[edge]
            missing[agent] -= 1
            if not missing[agent]:
                heappush(ready, place[agent])
        if ready:
            left -= 1
            yield agents[heappop(ready)]


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
    def cells(self) -> int:
        """Cells that were joined for both."""
        above = 0 if self.upper is None or self.upper is self.lower else self.upper.elimination.plan.cells
        return self.lower.elimination.plan.cells + above

    @property
    def message(self) -> Utils:
        """What is sent."""
        if self.upper is self.lower:
            return Utils(self.lower.message, self.lower.message)
        return Utils(self.lower.message, None if self.upper is None else self.upper.message)


def util_phase(
    tree: PseudoTree,
    post: Post,
    clocks: dict[int, Clock],
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
    phase, steps = Phase(post, tree.bottom_up), dict[int, Steps]()
    awaited = {agent: tree.children[agent] for agent in post.mine(tree.bottom_up)}
    for agent in _as_they_come(post, "UTIL", awaited):
        arrived = [post.receive("UTIL", child, child) for child in tree.children[agent]]
        start, messages = time.perf_counter(), [message for message, _ in arrived]
        step = phase.attempt(agent, partial(work, agent, messages), *messages)
        ready, checks = latest([clocks[agent], *(clock for _, clock in arrived)]), 0 if step is None else step.cells
        clocks[agent] = ready.after(time.perf_counter() - start, checks)
        if step is not None:
            steps[agent] = step
        if tree.parent[agent] >= 0:
            message = FAILED if step is None else step.message
            sent[agent] = Sent(1, util_size(message), "UTIL")
            post.send("UTIL", agent, tree.parent[agent], message, clocks[agent])
    phase.close()
    return steps


def value_phase(
    tree: PseudoTree,
    post: Post,
    clocks: dict[int, Clock],
    steps: Mapping[int, Steps],
    separators: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> tuple[dict[int, Chosen], dict[int, Values], dict[int, Sent]]:
    """Run the VALUE phase for this rank's agents.

    The maximisers of the upper tables go along where they differ: they show where the gap comes from.

    Parameters
    ----------
    separators
        Of each agent, as the tables from below and from above are indexed.

    Returns
    -------
    chosen : dict
        Values of each agent's interface variables.
    contexts : dict
        Values of its separator, by the tables from below.
    sent : dict
        What each agent has sent.
    """
    order = tree.bottom_up[::-1]
    phase, chosen, sent = Phase(post, order), dict[int, Chosen](), dict[int, Sent]()
    contexts: dict[int, Values] = {}
    for agent in _as_they_come(post, "VALUE", _from_above(tree, post.mine(order))):
        nothing: Values = {}
        context = Chosen(nothing, nothing)
        if tree.parent[agent] >= 0:
            context, clock = post.receive("VALUE", agent, tree.parent[agent])
            clocks[agent] = latest([clocks[agent], clock])
        start = time.perf_counter()
        known = phase.attempt(agent, partial(known_values, steps[agent], separators[agent], context), context)
        if known is not None:
            chosen[agent], contexts[agent] = chosen_of(known, context), context.lower
        clocks[agent] = clocks[agent].after(time.perf_counter() - start)
        messages = {child: told(known, separators[child]) for child in tree.children[agent]}
        for child, message in messages.items():
            post.send("VALUE", child, child, message, clocks[agent])
        sent[agent] = Sent(len(messages), sum(map(value_size, messages.values())), "VALUE")
    phase.close()
    return chosen, contexts, sent


def told(known: Chosen | None, separators: tuple[Sequence[int], Sequence[int]]) -> Chosen | None:
    """Return what a child is told of the values that its parent knows."""
    if known is None:
        return FAILED
    low, up = separators
    lower = {v: known.lower[v] for v in low}
    if known.upper is known.lower and up == low:
        return Chosen(lower, lower)
    return Chosen(lower, known.upper and {v: known.upper[v] for v in up})


def _from_above(tree: PseudoTree, agents: Sequence[int]) -> dict[int, list[int]]:
    """Return the edges along which agents wait for messages from above: their own, but for roots."""
    return {agent: [agent] if tree.parent[agent] >= 0 else [] for agent in agents}


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
    order = tree.bottom_up[::-1]
    phase, outsides, sent = Phase(post, order), dict[int, UtilMessage](), dict[int, Sent]()
    for agent in _as_they_come(post, "OUTSIDE", _from_above(tree, post.mine(order))):
        above: UtilMessage = ()
        if tree.parent[agent] >= 0:
            above, _ = post.receive("OUTSIDE", agent, tree.parent[agent])
        made = phase.attempt(agent, partial(work, agent, above), above)
        downs: list[UtilMessage | None] = [FAILED] * len(tree.children[agent])
        if made is not None:
            outsides[agent], downs = made[0], [*made[1]]
        for child, message in zip(tree.children[agent], downs, strict=True):
            post.send("OUTSIDE", child, child, message)
        sent[agent] = Sent(len(downs), sum(tables_size(down or ()) for down in downs), "OUTSIDE")
    phase.close()
    return outsides, sent


def known_values(steps: Steps, separators: tuple[Sequence[int], Sequence[int]], context: Chosen) -> Chosen:
    """Return the values of interface and separator on both sides."""
    lower = value_step(steps.lower, separators[0], context.lower)
    if steps.upper is None or context.upper is None:
        return Chosen(lower, None)
    if steps.upper is steps.lower and (context.upper is context.lower or context.upper == context.lower):
        return Chosen(lower, lower)
    return Chosen(lower, value_step(steps.upper, separators[1], context.upper))


def chosen_of(known: Chosen, context: Chosen) -> Chosen:
    """Return the values of the interface: those known, without those that the parent told."""
    lower = _without(known.lower, context.lower)
    if known.upper is known.lower and context.upper is context.lower:
        return Chosen(lower, lower)
    upper = None if known.upper is None or context.upper is None else _without(known.upper, context.upper)
    return Chosen(lower, upper)


def _without(values: Values, told: Values) -> Values:
    return {v: x for v, x in values.items() if v not in told}
