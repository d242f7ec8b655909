"""Agents of one variable each, on ranks: their scores, what they tell each other, and how many messages that takes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.layout import Layout, lay_out
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Ints
from dmcmc.mpi.placement import place_agents
from dmcmc.mpi.world import World

BYTES = 8  # of a value, a gain or a utility in a message
_LOWEST = -(2**62)  # the score of a value that a variable does not have


class Network:
    """What an algorithm works on. Each rank computes for the agents that it has; all ranks know all values.

    Attributes
    ----------
    problem : Problem
        Of dense tables.
    layout : Layout
        Its tables as whole numbers, hard constraints as large ones.
    world : World
    place : tuple of int
        The rank of each agent.
    source, neighbour : (pairs,) int64
        All ordered pairs of variables that share a factor, by source.
    messages, bytes : (agents,) int64
        What each agent has sent so far. Variables of one agent tell each other for nothing.
    parallel : float
        Which share of the work of a cycle the busiest agent of this rank has, where all work at the same time.
    """

    def __init__(self, problem: Problem, world: World | None = None) -> None:
        self.problem, self.world = problem, world or World()
        work = _work(problem)
        self.place = place_agents(np.bincount(problem.owner, work, problem.n_agents).tolist(), self.world.size)
        rank = np.array(self.place, dtype=np.int64)[problem.owner]
        self._own = [np.flatnonzero(rank == r) for r in range(self.world.size)]
        self.layout: Layout = lay_out(problem, rank == self.world.rank)
        self.neighbour = self.layout.neighbour
        self.source = np.repeat(np.arange(problem.n_variables), np.diff(self.layout.pair_start))
        self.messages = np.zeros(problem.n_agents, dtype=np.int64)
        self.bytes = np.zeros(problem.n_agents, dtype=np.int64)
        self._links = _links(problem, self.source, self.neighbour)
        mine = np.where(self.layout.mine, work, 0.0)
        self.parallel = float(np.bincount(problem.owner, mine, problem.n_agents).max(initial=0) / max(mine.sum(), 1.0))

    @property
    def links(self) -> Ints:
        """Of each agent: from its variables to other agents with neighbours of theirs, both counted (agents,)."""
        return self._links

    def sends(self, rounds: int, size: "int | Ints" = BYTES, links: "Ints | None" = None) -> None:
        """Note that all variables have told something of ``size`` bytes to the agents of their neighbours.

        Parameters
        ----------
        rounds
            How often.
        links
            How many messages each agent sends a round, in place of :attr:`links`.
        """
        count = rounds * (self._links if links is None else links)
        self.messages += count
        self.bytes += count * size

    def start(self, rng: np.random.Generator) -> Ints:
        """Return a random assignment."""
        return rng.integers(self.layout.domains, dtype=np.int64)

    def scores(self, values: Ints, layout: Layout | None = None) -> Ints:
        """Return what every value is worth to every variable of this rank (n, largest domain), all others fixed."""
        layout = layout or self.layout
        scores = np.full((values.size, layout.most), _LOWEST, dtype=np.int64)
        kernels.fill_scores(layout, values, scores)
        return scores

    def move(self, values: Ints, scores: Ints, new: Ints, layout: Layout | None = None) -> None:
        """Let variables take new values, in place, and keep the scores up to date."""
        kernels.move(layout or self.layout, values, scores, new)

    def best_moves(self, values: Ints, scores: Ints) -> tuple[Ints, Ints]:
        """Return each variable's best value, the lowest at a tie, and its gain."""
        everyone = np.arange(values.size)
        best = scores.argmax(axis=1) if values.size else values
        found: tuple[Ints, Ints] = self.tell(best, scores[everyone, best] - scores[everyone, values])
        return found

    def leads(self, gain: Ints, partner: Ints | None = None) -> NDArray[np.bool_]:
        """Return who gains more than all neighbours, a partner left out; at a tie the lowest index leads."""
        own = np.arange(gain.size)
        ahead = gain[self.neighbour] > gain[self.source]
        if partner is not None:
            own = np.where(partner >= 0, np.minimum(own, partner), own)
        ahead |= (gain[self.neighbour] == gain[self.source]) & (own[self.neighbour] < own[self.source])
        if partner is not None:
            ahead &= partner[self.source] != self.neighbour
        beaten = np.zeros(gain.size, dtype=np.bool_)
        beaten[self.source[ahead]] = True
        return ~beaten

    def near(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which variables are flagged themselves or have a neighbour that is."""
        found = flags.copy()
        found[self.source[flags[self.neighbour]]] = True
        return found

    def worth(self, values: Ints) -> int:
        """Return what an assignment is worth, in the layout's whole numbers."""
        return sum(self.world.allgather(int(kernels.worth(self.layout, values))))

    def tell(self, *rows: NDArray[Any]) -> Any:
        """Return arrays, a row a variable, in which every rank's own rows are as that rank has them."""
        if self.world.size == 1:
            return rows
        own = self._own[self.world.rank]
        whole = tuple(row.copy() for row in rows)
        for variables, parts in zip(self._own, self.world.allgather(tuple(row[own] for row in rows)), strict=True):
            for row, part in zip(whole, parts, strict=True):
                row[variables] = part
        return whole


def _work(problem: Problem) -> NDArray[np.float64]:
    """Return how many table entries each variable looks at in a cycle."""
    work = np.ones(problem.n_variables)
    for factor in problem.factors:
        for v in factor.scope:
            work[v] += float(problem.domains[v])
    return work


def _links(problem: Problem, source: Ints, neighbour: Ints) -> Ints:
    """Return how many messages each agent sends when each variable tells something to all neighbours' agents."""
    told = problem.owner[neighbour]
    pairs = np.unique(np.stack([source, told])[:, told != problem.owner[source]], axis=1)
    return np.bincount(problem.owner[pairs[0]], minlength=problem.n_agents).astype(np.int64)
