"""``dmcmc run CONFIG``: solve the problem of a configuration file, or of a calendar."""

from argparse import Namespace
from typing import TYPE_CHECKING, NamedTuple, Self

from dmcmc.cli.file_roles import check_options, is_calendar
from dmcmc.cli.inputs import check_run, configuration, explainer, options_of
from dmcmc.cli.on_all_ranks import on_all_ranks
from dmcmc.cli.progress import progress_for
from dmcmc.config.configuration import Config
from dmcmc.config.problem_section import problem_of
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, Unavailable
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.mpi.world import World
from dmcmc.results.result import Output
from dmcmc.session.scenario import ScenarioEvent
from dmcmc.solving.monitoring.interrupt import RunHandle

if TYPE_CHECKING:
    from dmcmc.cli.solve_tasks.solve_job import SolveJob


def run(arguments: Namespace) -> int:
    """Solve the problem of a configuration file on all ranks; return this rank's exit code."""
    return on_all_ranks(arguments, prepare, _work)


class _RunJob(NamedTuple):
    """The data of ``dmcmc run`` that all ranks need.

    Attributes
    ----------
    config : Config
        The configuration.
    problem : Problem or None
        The problem; None if each rank reads its agents' files, or gets their parts from rank 0.
    explain : bool
        Whether to print the plan first.
    share_assignment : bool
        Whether rank 0 gathers the assignment of a problem with one file per agent.
    events : tuple of ScenarioEvent
        The events of a scenario; empty without one.
    calendar : None
        Calendars are jobs of ``dmcmc solve``.
    """

    config: Config
    problem: Problem | None
    explain: bool
    share_assignment: bool = False
    events: tuple[ScenarioEvent, ...] = ()
    calendar: None = None

    def for_other_ranks(self, world: World) -> Self:
        """Return the job without the problem if its parts are scattered over the ranks."""
        from dmcmc.solving.planning.divided_problem import is_scattered

        if self.events:
            return self
        scattered = self.problem is not None and is_scattered(self.problem, self.config, world)
        return self._replace(problem=None) if scattered else self


def prepare(arguments: Namespace) -> "_RunJob | SolveJob":
    """Read the configuration and the problem of ``dmcmc run``; a calendar becomes a job of ``dmcmc solve``."""
    if is_calendar(arguments.config):
        from dmcmc.cli.arguments import command_parsers
        from dmcmc.cli.commands import solve as solve_command

        defaults = {action.dest: action.default for action in command_parsers()["solve"]._actions}
        return solve_command.prepare(Namespace(**defaults | vars(arguments) | {"file": arguments.config}))
    check_options(arguments, arguments.config)
    config, document = configuration(arguments.config, arguments.set, options_of(arguments))
    check_run(config, document)
    if "directory" in config.problem:
        if arguments.explain:
            raise Unavailable("--explain: is not possible with problem.directory: no rank knows all agents; remove it")
        shared = arguments.share_assignment or config.problem.get("share_assignment", False)
        return _RunJob(config, None, False, shared)
    if arguments.share_assignment:
        raise ConfigError("--share-assignment: is for problem.directory; other results are complete without it")
    with MEMORY_ACCOUNT.open(config.budget.bytes, resident_memory()):
        problem = problem_of(config.problem, document)
    if "scenario" not in config.problem:
        return _RunJob(config, problem, arguments.explain)
    from dmcmc.session.scenario import read_scenario

    if arguments.explain:
        raise Unavailable("--explain: is not possible with problem.scenario, whose problem changes; remove it")
    return _RunJob(config, problem, False, events=tuple(read_scenario(config.problem["scenario"])))


def _work(job: "_RunJob | SolveJob", world: World, ending: RunHandle | None) -> Output | None:
    """Solve the problem of a job; return the result on rank 0.

    ``ending`` is the handle by which a signal ends the run.
    """
    if not isinstance(job, _RunJob):
        from dmcmc.cli.solve_tasks import solve_job

        return solve_job.work(job, world, ending)
    from dmcmc.algorithms.choice.choose_algorithm import solve_as_configured
    from dmcmc.anytime.solve_private import solve_directory

    with progress_for(world.rank, job.config.budget.time) as progress:
        if job.events and job.problem is not None:
            from dmcmc.cli.solve_tasks.scenario import run_events

            return run_events(job.problem, job.config, job.events, world, progress, ending)
        if "directory" in job.config.problem:
            folder, shared = job.config.problem["directory"], job.share_assignment
            return solve_directory(folder, job.config, world, progress, shared, ending)
        return solve_as_configured(job.problem, job.config, world, progress, explainer(job.explain), ending)
