"""Changes of a problem: tables, factors, variables, domains and agents, collected and then checked together."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from dmcmc.inference.model.building.unknown_names import suggest_name
from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.session.changed_factors import NUMBERS, ChangedFactors

Domain = int | Sequence[Label]


class Changes:
    """A copy of a problem that can be changed; :meth:`problem` checks it and returns it as a problem.

    Parameters
    ----------
    problem : Problem
        The problem, which is not changed. Factors that no change concerns stay the same objects.
    """

    def __init__(self, problem: Problem) -> None:
        self._given, self._factors = problem, ChangedFactors(problem)
        self._only_tables = True  # whether all changes so far are new tables of the right shapes

    @cached_property
    def _variables(self) -> list[str]:
        """The names of the variables."""
        return list(self._given.variables)

    @cached_property
    def _agents(self) -> list[str]:
        """The names of the agents."""
        return list(self._given.agents)

    @cached_property
    def _domains(self) -> list[int]:
        """The number of values of each variable."""
        sizes: list[int] = self._given.domains.tolist()
        return sizes

    @cached_property
    def _labels(self) -> list[tuple[Label, ...] | None]:
        """The labels of each variable's values."""
        return list(self._given.labels)

    @cached_property
    def _owner(self) -> list[str]:
        """The name of the agent that owns each variable."""
        return [self._given.agents[a] for a in self._given.owner.tolist()]

    def problem(self) -> Problem:
        """Return the changed problem.

        Returns
        -------
        Problem
            The changed problem.

        Raises
        ------
        ProblemError
            If its parts do not fit together, such as a table and the domains of its variables.
        """
        if self._only_tables:
            return self._with_tables()
        position = {name: number for number, name in enumerate(self._agents)}
        sizes = zip(self._variables, self._labels, self._domains, strict=True)
        known = {name: range(size) if labels is None else labels for name, labels, size in sizes}
        initial = (self._given.initial_values or {}).items()
        return Problem(
            variables=tuple(self._variables),
            domains=np.array(self._domains, dtype=np.int64),
            agents=tuple(self._agents),
            owner=np.array([position[name] for name in self._owner], dtype=np.int64),
            labels=tuple(self._labels),
            sense=self._given.sense,
            name=self._given.name,
            initial_values={name: value for name, value in initial if value in known.get(name, ())},
            **self._factors.parts(),
        )

    def _with_tables(self) -> Problem:
        """Return the problem with the new tables, which are checked already; all else is shared with the given one."""
        given = self._given
        names = ("variables", "domains", "agents", "owner", "labels", "sense", "name", "initial_values")
        parts = {name: getattr(given, name) for name in names}
        changed = Problem.of_parts(**parts, **self._factors.parts())
        for derived in ("shape_facts", "dense", NUMBERS):
            if derived in given.__dict__:
                changed.__dict__[derived] = given.__dict__[derived]
        return changed

    def set_table(self, factor: str | int, table: ArrayLike | Factor) -> None:
        """Replace the utilities (or costs, by the problem's sense) of a factor; its scope and its level stay.

        Parameters
        ----------
        factor : str or int
            The factor, by its name or by its position in ``problem.factors``.
        table : array_like or Factor
            Utilities, or costs of a minimisation problem, with one axis per variable; or a factor with the same scope.
        """
        position = self._factors.position(factor)
        old = self._factors.factors[position]
        if isinstance(table, Factor):
            new = table.renamed(old.scope, old.name)
        else:
            new = Factor.of(old.scope, table, self._given.sense, old.name)
        self._only_tables = self._only_tables and type(old) is Factor and new.shape == old.shape
        self._factors.replace(position, new)

    def add_factor(self, scope: Sequence[str], table: ArrayLike, name: str = "", level: str = "") -> None:
        """Add a factor at the end, over variables given by name.

        Parameters
        ----------
        scope : sequence of str
            Names of the variables.
        table : array_like
            Utilities, or costs of a minimisation problem, with one axis per variable.
        name : str
            Name of the factor.
        level : str
            Level of the objective; the first one if none is given.
        """
        self._only_tables = False
        indices = [_position(variable, self._variables) for variable in scope]
        self._factors.append(Factor.of(indices, table, self._given.sense, name), level)

    def remove_factor(self, factor: str | int) -> None:
        """Remove a factor; the positions of the factors after it go down by one.

        Parameters
        ----------
        factor : str or int
            The factor, by its name or by its position in ``problem.factors``.
        """
        self._only_tables = False
        self._factors.remove([self._factors.position(factor)])

    def add_variable(self, name: str, domain: Domain, agent: str) -> None:
        """Add a variable with a number of values, or with the labels of its values, to an agent that exists.

        Parameters
        ----------
        name : str
            Name of the variable.
        domain : int or sequence of label
            Number of values, or the labels of the values.
        agent : str
            Name of the agent that owns the variable.
        """
        self._only_tables = False
        _position(agent, self._agents, "agent")
        size, labels = _size_and_labels(domain)
        self._variables.append(name)
        self._domains.append(size)
        self._labels.append(labels)
        self._owner.append(agent)

    def remove_variable(self, name: str) -> None:
        """Remove a variable and all factors over it.

        Parameters
        ----------
        name : str
            Name of the variable.
        """
        self._remove_variables({_position(name, self._variables)})

    def move_variable(self, name: str, agent: str) -> None:
        """Give a variable to another agent, for instance before its agent leaves.

        Parameters
        ----------
        name : str
            Name of the variable.
        agent : str
            Name of the agent that owns the variable from now on.
        """
        self._only_tables = False
        _position(agent, self._agents, "agent")
        self._owner[_position(name, self._variables)] = agent

    def set_domain(self, name: str, domain: Domain) -> None:
        """Replace the domain of a variable.

        If all values are known, the tables over the variable keep their entries. If one is new, they need new tables
        in the same batch of changes.

        Parameters
        ----------
        name : str
            Name of the variable.
        domain : int or sequence of label
            Number of values, or the labels of the values.
        """
        self._only_tables = False
        variable = _position(name, self._variables)
        old = self._labels[variable]
        known: list[Label] = list(range(self._domains[variable]) if old is None else old)
        self._domains[variable], self._labels[variable] = _size_and_labels(domain)
        chosen: list[Label] = list(self._labels[variable] or range(self._domains[variable]))
        if all(value in known for value in chosen):
            positions = [known.index(value) for value in chosen]
            self._factors.change_all(lambda factor: _with_values(factor, variable, positions))

    def add_agent(self, name: str) -> None:
        """Add an agent without variables.

        Parameters
        ----------
        name : str
            Name of the agent.
        """
        self._only_tables = False
        self._agents.append(name)

    def remove_agent(self, name: str) -> None:
        """Remove an agent with its variables and all factors over them.

        Parameters
        ----------
        name : str
            Name of the agent.
        """
        self._only_tables = False
        _position(name, self._agents, "agent")
        self._remove_variables({variable for variable, owner in enumerate(self._owner) if owner == name})
        self._agents.remove(name)

    def _remove_variables(self, removed: set[int]) -> None:
        """Remove variables by their indices, and all factors over them."""
        self._only_tables = False
        kept = [v for v in range(len(self._variables)) if v not in removed]
        index = {v: i for i, v in enumerate(kept)}
        self._variables[:] = [self._variables[v] for v in kept]
        self._domains[:] = [self._domains[v] for v in kept]
        self._labels[:] = [self._labels[v] for v in kept]
        self._owner[:] = [self._owner[v] for v in kept]
        self._factors.remove(i for i, f in enumerate(self._factors.factors) if not removed.isdisjoint(f.scope))
        self._factors.change_all(lambda factor: _renumbered(factor, index))


def _position(name: str, names: Sequence[str], noun: str = "variable") -> int:
    """Return the position of a name that exists."""
    if name not in names:
        raise ProblemError(f"{noun} {name!r} does not exist{suggest_name(name, names, f'known {noun}s')}")
    return names.index(name)


def _size_and_labels(domain: Domain) -> tuple[int, tuple[Label, ...] | None]:
    """Return the number of values of a domain, and their labels if it has some."""
    if isinstance(domain, str):
        raise ProblemError(f"a domain is a number of values or a list of labels, not {domain!r}")
    return (len(domain), tuple(domain)) if isinstance(domain, Sequence) else (int(domain), None)


def _renumbered(factor: Factor, index: Mapping[int, int]) -> Factor:
    """Return a factor with new indices of its variables; the same object if they are the old ones."""
    scope = tuple([index[v] for v in factor.scope])
    return factor if scope == factor.scope else factor.renamed(scope, factor.name)


def _with_values(factor: Factor, variable: int, positions: list[int]) -> Factor:
    """Return a factor with the given values of a variable, by their old positions."""
    if variable not in factor.scope:
        return factor
    axis = factor.scope.index(variable)
    if positions == list(range(factor.shape[axis])):
        return factor
    return Factor(factor.scope, normalise(np.take(factor.table, positions, axis)), factor.name)
