"""Numbers of variables and agents that stay the same while others are removed.

A problem numbers its variables and agents without gaps, so that a removal changes the numbers of all that follow. A
continued run keeps the first number of each name instead. A removed variable keeps its number, with one value, no
factor and no agent that chooses it; a removed agent keeps its number without variables. A name that returns gets its
former number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Label, Problem


@dataclass(frozen=True)
class Numbering:
    """The numbers in a continued run of the variables and agents of the problem as it stands.

    Attributes
    ----------
    known_variables, known_agents : dict of str to int
        The number of every name since the run began.
    variables, agents : (variables,) and (agents,) int64
        The number of each variable and of each agent of the problem as it stands.
    """

    known_variables: dict[str, int]
    known_agents: dict[str, int]
    variables: NDArray[np.int64]
    agents: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem) -> "Numbering":
        """Return the numbering of a new run: that of the problem."""
        variables, agents = ({name: i for i, name in enumerate(part)} for part in (problem.variables, problem.agents))
        return cls(variables, agents, np.arange(problem.n_variables), np.arange(problem.n_agents))

    def of_changed(self, problem: Problem) -> "Numbering":
        """Return the numbering of a changed problem; new names get the next numbers."""
        variables, agents = dict(self.known_variables), dict(self.known_agents)
        return Numbering(variables, agents, _numbers(problem.variables, variables), _numbers(problem.agents, agents))

    def renumbered(self, problem: Problem, before: Problem) -> Problem:
        """Return the variables and agents of a problem by these numbers, without factors.

        Parameters
        ----------
        problem
            The problem as it stands.
        before
            The result of this method for the last problem, or the problem of the first run: the owner of removed
            variables is taken from there.
        """
        domains = np.ones(len(self.known_variables), dtype=np.int64)
        domains[self.variables] = problem.domains
        owner = np.zeros(len(domains), dtype=np.int64)
        owner[: before.n_variables] = before.owner
        owner[self.variables] = self.agents[problem.owner]
        labels: list[tuple[Label, ...] | None] = [None] * len(domains)
        for number, own in zip(self.variables.tolist(), problem.labels, strict=True):
            labels[number] = own
        return Problem.of_parts(
            variables=tuple(self.known_variables),
            domains=domains,
            agents=tuple(self.known_agents),
            owner=owner,
            labels=tuple(labels),
            sense=problem.sense,
            name=problem.name,
            initial_values={},
            factors=(),
        )


def _numbers(names: Sequence[str], known: dict[str, int]) -> NDArray[np.int64]:
    """Return the numbers of some names; names that are not known get the next ones, in ``known``."""
    for name in names:
        known.setdefault(name, len(known))
    return np.fromiter((known[name] for name in names), dtype=np.int64, count=len(names))
