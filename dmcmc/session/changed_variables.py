"""The variables and agents of a problem while it is changed: found by name, with domains, labels and owners."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dmcmc.inference.building.given_tables import domain_labels
from dmcmc.inference.model.names import suggest_name
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import ProblemError

Domain = int | Iterable[Label]


class ChangedVariables:
    """The variables and agents of a problem, which may be added, removed and moved.

    Parameters
    ----------
    problem : Problem
        The problem, which is not changed.

    Attributes
    ----------
    names : list of str
        The names of the variables.
    """

    def __init__(self, problem: Problem) -> None:
        self._given, self.names = problem, list(problem.variables)
        self._agents: list[str] = list(problem.agents)
        # Per variable: the number of its values, their labels, and the name of its agent
        self._sizes: list[int] = problem.domains.tolist()
        self._labels = list(problem.labels)
        self._owner = [problem.agents[a] for a in problem.owner.tolist()]

    def parts(self) -> dict[str, Any]:
        """Return the attributes of the changed problem that concern its variables and agents."""
        position = {name: number for number, name in enumerate(self._agents)}
        sizes = zip(self.names, self._labels, self._sizes, strict=True)
        known = {name: range(size) if labels is None else labels for name, labels, size in sizes}
        initial = (self._given.initial_values or {}).items()
        return {
            "variables": tuple(self.names),
            "domains": np.array(self._sizes, dtype=np.int64),
            "agents": tuple(self._agents),
            "owner": np.array([position[name] for name in self._owner], dtype=np.int64),
            "labels": tuple(self._labels),
            "initial_values": {name: value for name, value in initial if value in known.get(name, ())},
        }

    def position(self, name: str) -> int:
        """Return the position of a variable."""
        return _position(name, self.names, "variable")

    def add(self, name: str, domain: Domain, agent: str) -> None:
        """Add a variable to an agent that exists."""
        _position(agent, self._agents, "agent")
        size, labels = _size_and_labels(name, domain)
        self.names.append(name)
        self._sizes.append(size)
        self._labels.append(labels)
        self._owner.append(agent)

    def move(self, name: str, agent: str) -> None:
        """Give a variable to another agent that exists."""
        _position(agent, self._agents, "agent")
        self._owner[self.position(name)] = agent

    def set_domain(self, name: str, domain: Domain) -> list[int] | None:
        """Replace the domain of a variable; return the old positions of its values, or None if a value is new."""
        variable = self.position(name)
        known = self._values(variable)
        self._sizes[variable], self._labels[variable] = _size_and_labels(name, domain)
        chosen = self._values(variable)
        return [known.index(value) for value in chosen] if all(value in known for value in chosen) else None

    def _values(self, variable: int) -> list[Label]:
        """Return the labels of a variable's values, or their numbers if they have none."""
        return list(self._labels[variable] or range(self._sizes[variable]))

    def remove(self, removed: set[int]) -> dict[int, int]:
        """Remove variables by their positions; return the new position of each variable that stays."""
        kept = [v for v in range(len(self.names)) if v not in removed]
        self.names[:] = [self.names[v] for v in kept]
        self._sizes[:] = [self._sizes[v] for v in kept]
        self._labels[:] = [self._labels[v] for v in kept]
        self._owner[:] = [self._owner[v] for v in kept]
        return {v: i for i, v in enumerate(kept)}

    def owned_by(self, agent: str) -> set[int]:
        """Return the positions of the variables of an agent that exists."""
        _position(agent, self._agents, "agent")
        return {variable for variable, owner in enumerate(self._owner) if owner == agent}

    def add_agent(self, name: str) -> None:
        """Add an agent without variables."""
        self._agents.append(name)

    def remove_agent(self, name: str) -> None:
        """Remove an agent, whose variables are removed already."""
        self._agents.remove(name)


def _position(name: str, names: Sequence[str], noun: str) -> int:
    """Return the position of a name that exists."""
    if name not in names:
        raise ProblemError(f"{noun} {name!r} does not exist{suggest_name(name, names, f'known {noun}s')}")
    return names.index(name)


def _size_and_labels(name: str, domain: Domain) -> tuple[int, tuple[Label, ...] | None]:
    """Return the number of values of a domain, and their labels unless these are 0, 1, ..."""
    labels = domain_labels(domain, f"variable {name!r}")
    return len(labels), None if isinstance(labels, range) else tuple(labels)
