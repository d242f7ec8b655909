"""Factors and variables after changes.

The factors of a problem while it is changed: found by name or position, each with its level of the objective.

The variables and agents of a problem while it is changed: found by name, with domains, labels and owners.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dmcmc.inference.building.given_tables import domain_labels
from dmcmc.inference.building.levels import weighted_again
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.names import suggest_name, whole_number
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import ProblemError

NUMBERS = "numbers of factors"  # attribute of a problem that caches the positions of its factors by name


class ChangedFactors:
    """The factors of a problem, which may be replaced, added and removed.

    Where the objective has levels, the utilities of new factors are in the unit of their level. The weights of all
    levels are computed again, so that an earlier level still counts more than all later ones.

    Parameters
    ----------
    problem : Problem
        The problem, which is not changed.

    Attributes
    ----------
    factors : list of Factor
        The factors; those of the problem are weighted by their levels, new ones are not.
    """

    def __init__(self, problem: Problem) -> None:
        self._given, self.factors = problem, list(problem.factors)
        self._same_names = True
        # Per factor: its level, and the weight by which its utilities are multiplied (1 for new factors)
        self._level_of = list(problem.level_of) or [0] * len(self.factors)
        self._weights = [1] * len(self.factors)
        if problem.levels:
            self._weights = [problem.levels[level].weight for level in self._level_of]

    def parts(self) -> dict[str, Any]:
        """Return the attributes of the changed problem: ``factors``, and ``levels`` and ``level_of`` with levels."""
        names = [level.name for level in self._given.levels]
        if not names:
            return {"factors": tuple(self.factors)}
        factors, levels = weighted_again(self.factors, self._weights, names, self._level_of)
        return {"factors": factors, "levels": levels, "level_of": tuple(self._level_of)}

    def replace(self, position: int, factor: Factor) -> None:
        """Replace the factor at a position by another one of the same name and level."""
        self.factors[position], self._weights[position] = factor, 1

    def append(self, factor: Factor, level: str) -> None:
        """Add a factor at the end, to a level of the objective; the first level if its name is empty."""
        names = [one.name for one in self._given.levels]
        if level != "" and level not in names:
            raise ProblemError(f"level {level!r} does not exist{suggest_name(level, names, 'known levels')}")
        self._same_names = False
        self.factors.append(factor)
        self._level_of.append(names.index(level) if level else 0)
        self._weights.append(1)

    def remove(self, positions: Iterable[int]) -> None:
        """Remove the factors at some positions."""
        self._same_names, gone = False, set(positions)
        kept = [position for position in range(len(self.factors)) if position not in gone]
        self.factors = [self.factors[position] for position in kept]
        self._level_of = [self._level_of[position] for position in kept]
        self._weights = [self._weights[position] for position in kept]

    def change_all(self, change: Callable[[Factor], Factor]) -> None:
        """Replace each factor by a function of it that keeps name and weight."""
        self.factors = [change(factor) for factor in self.factors]

    def position(self, factor: str | int) -> int:
        """Return the position of a factor that is given by its position or by its name."""
        if not isinstance(factor, str):
            number = whole_number(factor, "a factor, which is given by its name (text) or its position,")
            if not 0 <= number < len(self.factors):
                raise ProblemError(f"factor {number} does not exist; there are {len(self.factors)} factors")
            return number
        numbers = self._numbers_by_name().get(factor, ())
        if len(numbers) != 1:
            what = "is not unique; give its position" if numbers else "does not exist"
            names = [] if numbers else [one.name for one in self.factors if one.name]
            raise ProblemError(f"factor {factor!r} {what}{suggest_name(factor, names, 'known factors')}")
        return numbers[0]

    def _numbers_by_name(self) -> Mapping[str, Sequence[int]]:
        """Return the positions of the factors by name; kept from one problem to the next while the names stay."""
        known: Mapping[str, Sequence[int]] | None = self._given.__dict__.get(NUMBERS) if self._same_names else None
        if known is not None:
            return known
        found: dict[str, list[int]] = {}
        for number, factor in enumerate(self.factors):
            found.setdefault(factor.name, []).append(number)
        if self._same_names:
            self._given.__dict__[NUMBERS] = found
        return found


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
