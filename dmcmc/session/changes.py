"""Changes of a problem, and the problem that they change.

Changes of a problem: tables, factors, variables, domains and agents, collected and then checked together.

A problem that is changed, one change at a time or several together.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from dmcmc.inference.building.builder import as_names
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.presolve.presolve import restrict_factor
from dmcmc.session.changed_factors import NUMBERS, ChangedFactors, ChangedVariables, Domain


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
