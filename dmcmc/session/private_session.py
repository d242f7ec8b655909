"""A session on private inputs: each rank reads its own agents' parts, changes them, and keeps them to itself."""

import os
from collections.abc import Mapping
from typing import Any, Unpack

from numpy.typing import ArrayLike

from dmcmc.anytime.solve_private import read_inputs, solve_parts
from dmcmc.config.make_settings import Keywords, settings_from
from dmcmc.config.settings import Settings
from dmcmc.inference.model.names import suggest_name
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import ProblemError, Unavailable
from dmcmc.mpi.world import World, announce_end
from dmcmc.results.result import Result
from dmcmc.session.changes import Changes
from dmcmc.session.incremental.private_run import solve_private_again
from dmcmc.session.session import Reused
from dmcmc.solving.private.private_inputs import PrivateAnswer, RankInputs
from dmcmc.solving.warm_start.retained_work import RetainedWork


class PrivateSession:
    """A problem with private inputs that changes and is solved again; all ranks create it together.

    Each rank reads the files of its agents, which ``dmcmc split`` has written, and changes their tables. No factor
    leaves its rank: the ranks exchange UTIL and VALUE messages and sums, as in a private run, and the names of the
    changed agents. After an exact run only agents between a change and the root of the pseudo-tree make UTIL messages.
    Otherwise exact tables, bounds and UTIL steps of agents whose inputs have not changed are used again.

    Parameters
    ----------
    folder : str or path
        Folder of the agents' files.
    settings : Settings, optional
        As for :func:`dmcmc.solve`.
    world : World, optional
        The ranks, from :func:`dmcmc.mpi.world.connect`; at most one per agent. None: this process alone.
    share_assignment : bool
        Whether rank 0 gathers the values of all agents.
    **keywords
        As for :func:`dmcmc.solve`.

    Attributes
    ----------
    problems : dict of str to Problem
        The parts of this rank's agents, by the agents' names.
    result : Result or None
        The last result on rank 0; None on the other ranks, and before the first run.
    assignment : dict of str to label
        The values of this rank's agents in the last result, by the names of their variables.
    reused : Reused or None
        Counts of the work that the last run has used again on all ranks; None before the first run.

    Raises
    ------
    DmcmcError
        If a file is wrong, a setting needs the whole problem, or there are more ranks than agents.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: Settings | None = None,
        *,
        world: World | None = None,
        share_assignment: bool = False,
        **keywords: Unpack[Keywords],
    ) -> None:
        self._settings, self._world = settings_from(settings, keywords), world or World()
        self._share_assignment = share_assignment
        if self._settings.stay is not None:
            raise Unavailable("stay: is not possible in a session with private inputs; remove it")
        self._inputs = read_inputs(folder, self._settings, self._world)
        agents = self._inputs.index.agents
        if self._world.size > len(agents):
            raise Unavailable(f"a session with private inputs needs at most {len(agents)} ranks, one per agent")
        self._number = {agents[agent]: agent for agent in self._inputs.parts}
        self.problems: dict[str, Problem] = {name: self._inputs.parts[agent] for name, agent in self._number.items()}
        self.result: Result | None = None
        self.assignment: Mapping[str, Label] = {}
        self.reused: Reused | None = None
        self._known: Mapping[int, int] | None = None
        self._retained = RetainedWork()
        announce_end(self._world)

    def set_table(self, agent: str, factor: str | int, table: ArrayLike) -> None:
        """Replace a table over the variables of one agent of this rank; other ranks need not do anything.

        Parameters
        ----------
        agent : str
            Name of an agent of this rank.
        factor : str or int
            The factor, by its name or by its position in ``problems[agent].factors``.
        table : array_like
            Utilities, or costs of a minimisation problem, with one axis per variable.

        Raises
        ------
        ProblemError
            If the agent is on another rank, the table does not fit, or the factor is shared with other agents, who
            would need the table, too.
        """
        if agent not in self.problems:
            raise ProblemError(f"agent {agent!r} is not on this rank{suggest_name(agent, list(self.problems))}")
        before = self.problems[agent]
        changes = Changes(before)
        changes.set_table(factor, table)
        after = changes.problem()
        own = {v for v, owner in enumerate(before.owner.tolist()) if before.agents[owner] == agent}
        for one, other in zip(before.factors, after.factors, strict=True):
            if one is not other and not own.issuperset(one.scope):
                raise ProblemError(f"factor {factor!r} is shared with other agents; only own tables can be changed")
        self.problems[agent] = after

    def solve(self, timeout: float | None = None) -> Result | None:
        """Solve the problem as it stands; called by all ranks.

        Parameters
        ----------
        timeout : float or None
            Seconds of the time budget; None for that of the session's settings.

        Returns
        -------
        Result or None
            The result on rank 0, None on the others. ``assignment`` has the values of this rank's agents.

        Raises
        ------
        DmcmcError
            As for :func:`dmcmc.solve`.
        """
        world, keywords = self._world, dict[str, Any]() if timeout is None else {"timeout": timeout}
        try:
            settings = settings_from(self._settings, keywords) if keywords else self._settings
            self._retained.begin_run()
            given = self._parts(), settings, world, self._retained, self._share_assignment, self._solve_anew
            answer = solve_private_again(*given)
            self.reused = Reused(*self._retained.counts(world))
        except BaseException as error:
            world.abort_on_exit(error)
            raise
        self.result, self.assignment, self._known = answer.result, answer.assignment, answer.known
        return self.result

    def _parts(self) -> dict[int, Problem]:
        """Return the parts of this rank's agents by the agents' numbers."""
        return {agent: self.problems[name] for name, agent in self._number.items()}

    def _solve_anew(self, settings: Settings) -> tuple[RankInputs, PrivateAnswer]:
        """Solve the problem without continuing the messages of the last run; called by all ranks."""
        given = self._inputs, self._parts(), settings, self._world, self._share_assignment
        self._inputs, answer = solve_parts(*given, self._retained, self._known)
        return self._inputs, answer
