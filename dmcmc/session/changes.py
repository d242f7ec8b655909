"""Changes of a problem: tables, factors, variables, domains and agents, one at a time or several checked together.

While a problem is changed, its factors are found by name or position, each with its level of the objective, and its
variables and agents by name, with domains, labels and owners.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dmcmc.inference.building.builder import as_names
from dmcmc.inference.building.given_tables import domain_labels
from dmcmc.inference.building.levels import weighted_again
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.names import suggest_name, whole_number
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.presolve.presolve import restrict_factor
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
    def _variables(self) -> ChangedVariables:
        """The variables and agents; made only if they are needed, because there may be many."""
        return ChangedVariables(self._given)

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
        return Problem(
            sense=self._given.sense, name=self._given.name, **self._variables.parts(), **self._factors.parts()
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
        indices = [self._variables.position(variable) for variable in as_names(scope)]
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
        self._variables.add(name, domain, agent)

    def remove_variable(self, name: str) -> None:
        """Remove a variable and all factors over it.

        Parameters
        ----------
        name : str
            Name of the variable.
        """
        self._remove_variables({self._variables.position(name)})

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
        self._variables.move(name, agent)

    def set_domain(self, name: str, domain: Domain) -> None:
        """Replace the domain of a variable.

        If all values are known, the tables and constraints over the variable keep their entries and their kinds. If
        one is new, they need new tables in the same batch of changes.

        Parameters
        ----------
        name : str
            Name of the variable.
        domain : int or sequence of label
            Number of values, or the labels of the values.
        """
        self._only_tables = False
        variable, positions = self._variables.position(name), self._variables.set_domain(name, domain)
        if positions is not None:
            self._factors.change_all(lambda factor: _with_values(factor, variable, positions))

    def add_agent(self, name: str) -> None:
        """Add an agent without variables.

        Parameters
        ----------
        name : str
            Name of the agent.
        """
        self._only_tables = False
        self._variables.add_agent(name)

    def remove_agent(self, name: str) -> None:
        """Remove an agent with its variables and all factors over them.

        Parameters
        ----------
        name : str
            Name of the agent.
        """
        self._remove_variables(self._variables.owned_by(name))
        self._variables.remove_agent(name)

    def _remove_variables(self, removed: set[int]) -> None:
        """Remove variables by their indices, and all factors over them."""
        self._only_tables = False
        index = self._variables.remove(removed)
        self._factors.remove(i for i, f in enumerate(self._factors.factors) if not removed.isdisjoint(f.scope))
        self._factors.change_all(lambda factor: _renumbered(factor, index))


def _renumbered(factor: Factor, index: Mapping[int, int]) -> Factor:
    """Return a factor with new indices of its variables; the same object if they are the old ones."""
    scope = tuple([index[v] for v in factor.scope])
    return factor if scope == factor.scope else factor.renamed(scope, factor.name)


def _with_values(factor: Factor, variable: int, positions: list[int]) -> Factor:
    """Return a factor with the given values of a variable, by their old positions."""
    if variable not in factor.scope:
        return factor
    sizes = zip(factor.scope, factor.shape, strict=True)
    return restrict_factor(factor, [np.array(positions) if v == variable else np.arange(size) for v, size in sizes])


class ChangingProblem:
    """A problem that changes; every change gives a new problem that is valid.

    Parameters
    ----------
    problem : Problem
        The problem at first.

    Attributes
    ----------
    problem : Problem
        The problem as it stands.
    refusals : list of str
        The errors of the changes that were not valid, since the list was cleared.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.refusals = problem, list[str]()

    @contextmanager
    def changes(self) -> Iterator[Changes]:
        """Collect changes that are made together at the end of the block, or not at all if one is not valid.

        Yields
        ------
        Changes
            The batch of changes.
        """
        batch = Changes(self.problem)
        try:
            yield batch
            changed = batch.problem()
        except Exception as error:
            self.refusals.append(str(error))
            raise
        if changed.agents is not self.problem.agents:
            changed.share_shape_facts(self.problem)
        self.problem = changed

    def set_table(self, factor: str | int, table: ArrayLike) -> None:
        """Replace the table of a factor; see :meth:`Changes.set_table`.

        Parameters
        ----------
        factor : str or int
            The factor, by its name or by its position in ``problem.factors``.
        table : array_like
            Utilities, or costs of a minimisation problem, with one axis per variable.
        """
        with self.changes() as batch:
            batch.set_table(factor, table)

    def add_factor(self, scope: Sequence[str], table: ArrayLike, name: str = "", level: str = "") -> None:
        """Add a factor; see :meth:`Changes.add_factor`.

        Parameters
        ----------
        scope : sequence of str
            Names of the variables.
        table : array_like
            Utilities, or costs of a minimisation problem, with one axis per variable.
        name : str
            Name of the factor.
        level : str
            Level of the objective; the first one by default.
        """
        with self.changes() as batch:
            batch.add_factor(scope, table, name, level)

    def remove_factor(self, factor: str | int) -> None:
        """Remove a factor; see :meth:`Changes.remove_factor`.

        Parameters
        ----------
        factor : str or int
            The factor, by its name or by its position in ``problem.factors``.
        """
        with self.changes() as batch:
            batch.remove_factor(factor)

    def add_variable(self, name: str, domain: Domain, agent: str) -> None:
        """Add a variable; see :meth:`Changes.add_variable`.

        Parameters
        ----------
        name : str
            Name of the variable.
        domain : int or sequence of label
            Number of values, or the labels of the values.
        agent : str
            Name of the agent that owns the variable.
        """
        with self.changes() as batch:
            batch.add_variable(name, domain, agent)

    def remove_variable(self, name: str) -> None:
        """Remove a variable and its factors; see :meth:`Changes.remove_variable`.

        Parameters
        ----------
        name : str
            Name of the variable.
        """
        with self.changes() as batch:
            batch.remove_variable(name)

    def move_variable(self, name: str, agent: str) -> None:
        """Give a variable to another agent; see :meth:`Changes.move_variable`.

        Parameters
        ----------
        name : str
            Name of the variable.
        agent : str
            Name of the agent that owns the variable from now on.
        """
        with self.changes() as batch:
            batch.move_variable(name, agent)

    def set_domain(self, name: str, domain: Domain) -> None:
        """Replace the domain of a variable; see :meth:`Changes.set_domain`.

        Parameters
        ----------
        name : str
            Name of the variable.
        domain : int or sequence of label
            Number of values, or the labels of the values.
        """
        with self.changes() as batch:
            batch.set_domain(name, domain)

    def add_agent(self, name: str) -> None:
        """Add an agent; see :meth:`Changes.add_agent`.

        Parameters
        ----------
        name : str
            Name of the agent.
        """
        with self.changes() as batch:
            batch.add_agent(name)

    def remove_agent(self, name: str) -> None:
        """Remove an agent with its variables and factors; see :meth:`Changes.remove_agent`.

        Parameters
        ----------
        name : str
            Name of the agent.
        """
        with self.changes() as batch:
            batch.remove_agent(name)
