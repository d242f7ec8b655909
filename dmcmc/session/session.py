"""A session: a problem that changes, its last result, and the work that stays valid from one run to the next.

The last run gives the next one a start, a bound, and settings that still make sense.
"""

from fractions import Fraction
from typing import NamedTuple, Unpack
from zlib import crc32

from msgspec.structs import replace

from dmcmc.algorithms.choice import choose_algorithm
from dmcmc.config.make_settings import Keywords, settings_from
from dmcmc.config.settings import Settings, Stay
from dmcmc.inference.bounds.continued_bound import largest_increase
from dmcmc.inference.building.builder import Builder, as_problem
from dmcmc.inference.model.arithmetic import round_up
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World, announce_end, have_same
from dmcmc.results.result import Result
from dmcmc.session.changes import ChangingProblem
from dmcmc.solving.warm_start.retained_work import RetainedWork


class LastRun(NamedTuple):
    """The last run of a session.

    Attributes
    ----------
    problem : Problem
        The problem that was solved.
    result : Result
        Its result.
    costs_of_moving : bool
        Whether the bound of the result contains costs of moving (``stay``).
    """

    problem: Problem
    result: Result
    costs_of_moving: bool


def settings_of_next_run(settings: Settings, problem: Problem, last: LastRun | None) -> Settings:
    """Return the settings of a run, which begins at the last assignment if it has a time budget or ``stay``.

    Parameters
    ----------
    settings : Settings
        The settings of the session.
    problem : Problem
        The problem as it stands. Variables and values that it does not have are left out of the start and of the costs
        of moving. Without a start nothing costs.
    last : LastRun or None
        The last run; None before the first one.
    """
    starts = settings.budget.time is not None or settings.stay is not None
    if starts and settings.start is None and last is not None:
        settings = replace(settings, start=_known_part(last.result, problem))
    if settings.stay is None:
        return settings
    if settings.start is None and not problem.initial_values:
        return replace(settings, stay=None)
    weight = settings.stay.weight
    if isinstance(weight, dict):
        return replace(settings, stay=Stay({name: weight[name] for name in problem.variables if name in weight}))
    return settings


def _known_part(result: Result, problem: Problem) -> dict[str, Label] | None:
    """Return the assignment of a result without variables and values that do not exist."""
    sizes = zip(problem.variables, problem.labels, problem.domains.tolist(), strict=True)
    known = {name: range(size) if labels is None else labels for name, labels, size in sizes}
    assignment = result.assignment or {}
    return {name: value for name, value in assignment.items() if value in known.get(name, ())} or None


def known_bound(settings: Settings, problem: Problem, last: LastRun | None) -> Number | None:
    """Return an upper bound on the utility of the problem as it stands, from the last result; None without one.

    It is the last bound plus the largest differences of the tables that have changed since. Costs of moving are
    different in each run, and a run without a time budget takes no bound from an earlier one. The parameters are those
    of :func:`settings_of_next_run`.
    """
    if settings.budget.time is None or settings.stay is not None:
        return None
    if last is None or last.costs_of_moving or last.result.bound is None:
        return None
    increase = 0.0 if last.problem is problem else largest_increase(last.problem, problem)
    if increase is None:
        return None
    exact = Fraction(problem.to_own_sense(last.result.bound)) + Fraction(increase)
    return int(exact) if exact.denominator == 1 else round_up(exact)


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


class Session(ChangingProblem):
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
        super().__init__(as_problem(problem))
        self.reused: Reused | None = None
        self.result: Result | None = None
        self._settings, self._world = settings_from(settings, keywords), world or World()
        self._retained = RetainedWork()
        self._last: LastRun | None = None
        self._agreed = self.problem  # before the changes since the last run
        announce_end(self._world)

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
        ProblemError
            On all ranks, if one of them has refused a change that another one has made. All changes since the last run
            are then undone.
        """
        self._agree_on_changes()
        settings = self._settings if timeout is None else settings_from(self._settings, {"timeout": timeout})
        settings = settings_of_next_run(settings, self.problem, self._last)
        self._retained.begin_run()
        if self.result is not None and len(self.result.agents) != self.problem.n_agents:
            self._retained.forget_others(self.problem.agents)
        self._retained.known_bound = known_bound(settings, self.problem, self._last)
        found = choose_algorithm.solve_as_configured(self.problem, settings, self._world, retained=self._retained)
        result: Result | None = found if self._retained.result_is_shared else self._world.bcast(found)
        assert result is not None
        self.reused = Reused(*self._retained.counts(self._world))
        self.result, self._last = result, LastRun(self.problem, result, settings.stay is not None)
        return result

    def _agree_on_changes(self) -> None:
        """Undo the changes since the last run, and raise an error on all ranks, if not all ranks refused the same."""
        if not have_same(self._world, crc32(repr(self.refusals).encode())):
            self.problem, refused = self._agreed, self._world.allgather(self.refusals)
            self.refusals.clear()
            rank, texts = next(item for item in enumerate(refused) if item[1])
            raise ProblemError(f"rank {rank} refused what other ranks changed or refused otherwise: {'; '.join(texts)}")
        self.refusals.clear()
        self._agreed = self.problem
