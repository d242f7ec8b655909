"""A problem that is changed, one change at a time or several together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from numpy.typing import ArrayLike

from dmcmc.inference.model.problem import Problem
from dmcmc.session.changed_variables import Domain
from dmcmc.session.changes import Changes


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
