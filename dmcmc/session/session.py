"""A session: a problem that changes, its last result, and the work that stays valid from one run to the next."""

from typing import Unpack
from zlib import crc32

from dmcmc.algorithms.choice import choose_algorithm
from dmcmc.config.settings import Keywords, Settings, settings_from
from dmcmc.inference.building.builder import Builder, as_problem
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.mpi.world import World, announce_end, have_same
from dmcmc.results.result import Result
from dmcmc.session.changing_problem import ChangingProblem
from dmcmc.session.last_run import LastRun, known_bound, settings_of_next_run
from dmcmc.session.reused import Reused
from dmcmc.solving.warm_start.retained_work import RetainedWork


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
