"""The order in which a sweep visits the variables: agents of one colour share no factor and can move simultaneously."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem


class SweepOrder(NamedTuple):
    """Variables sorted by the colours of their agents, then by agent.

    Attributes
    ----------
    variables : (n,) int64
        Variables in the order of the sweep.
    colours : (colours + 1,) int64
        The variables of colour c are ``variables[colours[c]:colours[c + 1]]``.
    agents : (agents with variables + 1,) int64
        Offsets of the agents' variables in ``variables``; agents without variables are left out.
    """

    variables: NDArray[np.int64]
    colours: NDArray[np.int64]
    agents: NDArray[np.int64]


def sweep_order(problem: Problem) -> SweepOrder:
    """Return a sweep order by a greedy colouring of the agents, those with the most neighbours first."""
    colour = np.array(colour_agents(neighbours_of(problem)), dtype=np.int64)
    of_variable = colour[problem.owner] if problem.n_variables else np.zeros(0, dtype=np.int64)
    variables = np.lexsort((np.arange(problem.n_variables), problem.owner, of_variable))
    counts = np.bincount(of_variable, minlength=1)
    changes = np.flatnonzero(np.diff(problem.owner[variables])) + 1
    agents = np.concatenate([[0], changes, [problem.n_variables]])[problem.n_variables == 0 :]
    return SweepOrder(variables, np.append(0, np.cumsum(counts[counts > 0])), agents)


def neighbours_of(problem: Problem) -> list[set[int]]:
    """Return for each agent the set of agents that share a factor with it."""
    owner = problem.owner.tolist()
    neighbours: list[set[int]] = [set() for _ in problem.agents]
    for factor in problem.factors:
        owners = {owner[v] for v in factor.scope}
        if len(owners) > 1:
            for agent in owners:
                neighbours[agent] |= owners
    for agent, others in enumerate(neighbours):
        others.discard(agent)
    return neighbours


def colour_agents(neighbours: Sequence[set[int]]) -> list[int]:
    """Return a colour for each agent: the smallest colour that none of its neighbours has."""
    colours = [-1] * len(neighbours)
    for agent in sorted(range(len(neighbours)), key=lambda a: (-len(neighbours[a]), a)):
        taken, colour = {colours[other] for other in neighbours[agent]}, 0
        while colour in taken:
            colour += 1
        colours[agent] = colour
    return colours
