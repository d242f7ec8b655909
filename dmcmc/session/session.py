"""A session: a problem that changes, its last result, and the work that stays valid from one run to the next."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import NamedTuple, Unpack

import msgspec
from numpy.typing import ArrayLike

from dmcmc.config.settings import Keywords, Settings, Stay, settings_from
from dmcmc.inference.bounds.continued_bound import largest_increase
from dmcmc.inference.model.arithmetic import round_up
from dmcmc.inference.model.builder import Builder, as_problem
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run.algorithms import choose_algorithm
from dmcmc.session.changes import Changes, Domain
from dmcmc.solving.warm_start.retained_work import RetainedWork


class Reused(NamedTuple):
    """Count the work that the last run of a session has used again, on all ranks.

    Attributes
    ----------
    tables : int
        Number of agents whose exact tables were kept.
    messages : int
        Number of UTIL steps, and so of UTIL messages, that were kept.
    bounds : int
        Number of agents (and of unions of all agents) whose bounds and sampled values were continued; 0 without a time
        budget.
    """

    tables: int
    messages: int
    bounds: int = 0


class Session:
    """A problem that changes and is solved again.

    The exact tables of agents and the UTIL messages of subtrees in which nothing has changed are kept. With a time
    budget the last assignment is the first incumbent, and the bounds of the last run are continued. Without one,
    objective and proof are those of a new run. With ``stay``, moving away from the last assignment costs something.

    Parameters
    ----------
    problem : Problem or Builder
        The problem.
    settings : Settings, optional
        As for :func:`dmcmc.solve`.
    world : World, optional
        The ranks, from :func:`dmcmc.mpi.world.connect`; all ranks make the same changes. None: this process alone.
    **keywords
        As for :func:`dmcmc.solve`.

    Attributes
    ----------
    problem : Problem
        The problem as it stands.
    result : Result or None
        The last result; None before the first run.
    reused : Reused or None
        Counts of the work that the last run has used again; None before the first run.

    Examples
    --------
    >>> problem = Problem.build().problem()
    >>> session = Session(problem)
    >>> with session.changes() as changes:
    ...     changes.add_agent("ann")
    ...     changes.add_variable("x", ["red", "green"], agent="ann")
    ...     changes.add_factor(("x",), [1, 2], name="taste")
    >>> session.solve().objective
    2
    >>> session.set_table("taste", [5, 2])
    >>> session.solve().assignment
    {'x': 'red'}
    """

    def __init__(
        self,
        problem: Problem | Builder,
        settings: Settings | None = None,
        *,
        world: World | None = None,
        **keywords: Unpack[Keywords],
    ) -> None:
        self.problem = as_problem(problem)
        self.reused: Reused | None = None
        self.result: Result | None = None
        self._settings, self._world = settings_from(settings, keywords), world or World()
        self._retained = RetainedWork()
        self._solved: Problem | None = None  # the problem of the last result
        self._costs_of_moving = False  # whether its bound contains costs of moving

    def solve(self, timeout: float | None = None) -> Result:
        """Solve the problem as it stands.

        Parameters
        ----------
        timeout : float or None
            Seconds of the time budget; None for that of the session's settings.

        Returns
        -------
        Result
            The result, the same on every rank.

        Raises
        ------
        DmcmcError
            As for :func:`dmcmc.solve`.
        """
        settings = self._settings if timeout is None else settings_from(self._settings, {"timeout": timeout})
        starts = settings.budget.time is not None or settings.stay is not None
        if starts and settings.start is None and self.result is not None:
            settings = msgspec.structs.replace(settings, start=self._known_part(self.result))
        settings = self._with_known_weights(settings)
        self._retained.begin_run()
        if self.result is not None and len(self.result.agents) != self.problem.n_agents:
            self._retained.forget_others(self.problem.agents)
        self._retained.known_bound = self._known_bound(settings)
        found = choose_algorithm.solve(self.problem, settings, self._world, retained=self._retained)
        result: Result | None = found if self._retained.result_is_shared else self._world.bcast(found)
        assert result is not None
        self.reused = Reused(*self._retained.counts(self._world))
        self.result, self._solved, self._costs_of_moving = result, self.problem, settings.stay is not None
        return result

    def _known_bound(self, settings: Settings) -> Number | None:
        """Return an upper bound on the utility of the problem as it stands, from the last result; None without one.

        It is the last bound plus the largest differences of the tables that have changed since. Costs of moving are
        different in each run, and a run without a time budget takes no bound from an earlier one.
        """
        result, solved = self.result, self._solved
        if settings.budget.time is None or settings.stay is not None or self._costs_of_moving:
            return None
        if result is None or solved is None or result.bound is None:
            return None
        increase = 0.0 if solved is self.problem else largest_increase(solved, self.problem)
        if increase is None:
            return None
        exact = Fraction(self.problem.to_own_sense(result.bound)) + Fraction(increase)
        return int(exact) if exact.denominator == 1 else round_up(exact)

    def _known_part(self, result: Result) -> dict[str, Label] | None:
        """Return the last assignment without variables and values that no longer exist."""
        sizes = zip(self.problem.variables, self.problem.labels, self.problem.domains.tolist(), strict=True)
        known = {name: range(size) if labels is None else labels for name, labels, size in sizes}
        assignment = result.assignment or {}
        return {name: value for name, value in assignment.items() if value in known.get(name, ())} or None

    def _with_known_weights(self, settings: Settings) -> Settings:
        """Return settings without costs of moving if there is no start; otherwise those of variables that exist."""
        if settings.stay is None:
            return settings
        weight = settings.stay.weight
        if settings.start is None and not self.problem.initial_values:
            return msgspec.structs.replace(settings, stay=None)
        if isinstance(weight, dict):
            known = {name: weight[name] for name in self.problem.variables if name in weight}
            return msgspec.structs.replace(settings, stay=Stay(known))
        return settings

    @contextmanager
    def changes(self) -> Iterator[Changes]:
        """Collect changes that are made together at the end of the block, or not at all if one is not valid.

        Yields
        ------
        Changes
            The batch of changes.
        """
        batch = Changes(self.problem)
        yield batch
        changed = batch.problem()
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
