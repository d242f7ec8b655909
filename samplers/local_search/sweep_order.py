"""In which order a sweep goes over the variables: agents of one colour share no factor, so they may move at once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem


class SweepOrder(NamedTuple):
    """Variables sorted by their agents' colours, then by agents.

    Attributes
    ----------
    variables : (n,) int64
    colours : (colours + 1,) int64
        The variables of colour c are ``variables[colours[c]:colours[c + 1]]``.
    agents : (runs + 1,) int64
        Likewise the variables of each agent, those without any left out.
    """

    variables: NDArray[np.int64]
    colours: NDArray[np.int64]
    agents: NDArray[np.int64]


def sweep_order(problem: Problem) -> SweepOrder:
    """Colour the agents of a problem so that neighbours differ, those with most neighbours first."""
    colour = np.array(colour_agents(neighbours_of(problem)), dtype=np.int64)
    of_variable = colour[problem.owner] if problem.n_variables else np.zeros(0, dtype=np.int64)
    variables = np.lexsort((np.arange(problem.n_variables), problem.owner, of_variable))
    counts = np.bincount(of_variable, minlength=1)
    turns = np.flatnonzero(np.diff(problem.owner[variables])) + 1
    agents = np.concatenate([[0], turns, [problem.n_variables]])[problem.n_variables == 0 :]
    return SweepOrder(variables, np.append(0, np.cumsum(counts[counts > 0])), agents)


def neighbours_of(problem: Problem) -> list[set[int]]:
    """Return for each agent those that share a factor with it."""
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
    """Return a colour for each agent: the first that none of its neighbours has."""
    colours = [-1] * len(neighbours)
    for agent in sorted(range(len(neighbours)), key=lambda a: (-len(neighbours[a]), a)):
        taken = {colours[other] for other in neighbours[agent]}
        colours[agent] = next(c for c in range(len(neighbours)) if c not in taken)
    return colours
