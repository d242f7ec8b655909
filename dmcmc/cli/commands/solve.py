"""The commands ``solve`` and ``run``.

``dmcmc solve FILE``: turn the command line into a configuration, and solve the problem file.

``dmcmc run CONFIG``: solve the problem of a configuration file, or of a calendar.
"""

from argparse import Namespace
from typing import Any, NamedTuple, Self

from dmcmc.algorithms.choice.choose_algorithm import solve_as_configured
from dmcmc.anytime.solve_private import solve_directory
from dmcmc.calendars.file.problem import problem_of as problem_of_calendar
from dmcmc.calendars.solve import calendar_of, set_defaults, set_start, variables_by_meeting, with_search
from dmcmc.cli.arguments import command_parsers
from dmcmc.cli.inputs import (
    check_options,
    check_run,
    configuration,
    is_calendar,
    is_configuration,
    options_of,
)
from dmcmc.cli.on_all_ranks import on_all_ranks
from dmcmc.cli.progress import progress_for
from dmcmc.cli.solve_tasks import SolveJob, explainer, queried_variables, requested_alternatives, run_events, work
from dmcmc.config.configuration import Config, config_of, option_place, override, problem_of, with_assigned_agents
from dmcmc.files.document import Document, value_of
from dmcmc.formats import registry as formats
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, Unavailable
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.mpi.world import World
from dmcmc.results.result import Output
from dmcmc.session.scenario import ScenarioEvent, read_scenario
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.planning.divided_problem import is_scattered

TASKS = ("mpe", "pr", "count", "mar", "max-marginals", "conflict")
_NO_CELL_LIMIT = 2**62  # local.cells without a time budget: exact wherever the memory allows it


def solve(arguments: Namespace) -> int:
    """Solve a problem file on all ranks; return this rank's exit code."""
    return on_all_ranks(arguments, prepare_solve, work)


def prepare_solve(arguments: Namespace) -> SolveJob:
    """Check the options and read the problem file; called on rank 0.

    Raises
    ------
    DmcmcError
        If an option is not allowed, or the file cannot be read.
    """
    path, task = arguments.file, arguments.task
    if task not in TASKS:
        raise ConfigError(f"--task: expected one of {', '.join(TASKS)}, got {task!r}")
    if is_configuration(path):
        raise ConfigError(f"{path}: is a configuration, not a problem file; use 'dmcmc run {path}'")
    if arguments.query is not None and task not in ("mar", "max-marginals"):
        raise ConfigError("--query: is for --task mar and max-marginals; marginal MAP is not available in this version")
    check_options(arguments, path)
    document = _document(arguments)
    with MEMORY_ACCOUNT.open(config_of(document).budget.bytes, resident_memory()):
        return _read(arguments, document)


def _read(arguments: Namespace, document: Document) -> SolveJob:
    """Read the problem file within the budget of the run."""
    path, task = arguments.file, arguments.task
    calendar = calendar_of(arguments, path) if is_calendar(path) else None
    given_start = "start" in document.data
    if calendar is not None and task == "mpe":
        set_start(document, calendar)
    config = config_of(document)
    check_run(config, document)
    given = {name: config.problem[name] for name in ("format", "evidence", "distribution") if name in config.problem}
    logarithms = False
    if calendar is not None and not given:
        problem = problem_of_calendar(calendar, copies=given_start or not _merges(config, task))
        if task == "mpe" and arguments.method == "auto" and arguments.z is None and "search" not in document.data:
            config = with_search(config, problem)
    else:
        file_format, problem = formats.load_with_format(path, **given)
        logarithms = file_format.logarithms
    groups = {} if calendar is None else variables_by_meeting(calendar)
    query = () if arguments.query is None else queried_variables(arguments.query, problem, groups)
    problem, max_marginals = with_assigned_agents(problem, config.problem, document.at), arguments.max_marginals
    request = requested_alternatives(arguments, problem, calendar)
    return SolveJob(config, problem, task, logarithms, arguments.explain, max_marginals, query, request, calendar)


def _merges(config: Config, task: str) -> bool:
    """Return whether a run merges the variables of all participants of a meeting."""
    is_plain = config.local.method in ("auto", "exact") and config.combine.method != "mini-bucket"
    return (
        task in ("mpe", "conflict")
        and config.presolve == "merge"
        and is_plain
        and config.algorithm_settings.name == "dmcmc"
    )


def _document(arguments: Namespace) -> Document:
    """Return the options as the sections of a configuration.

    Without a time budget, ``local.cells`` is so large that all agents whose tables fit the memory are solved exactly.
    Single options have precedence over ``--set``.
    """
    document = Document("", {"problem": {"file": arguments.file}})
    cells = _NO_CELL_LIMIT if arguments.timeout is None and not is_calendar(arguments.file) else "auto"
    document.data["local"] = {"cells": cells}
    for text in arguments.set:
        override(document, text)
    options = _method(arguments)
    options |= {key: (value, option_place(key)) for key, value in options_of(arguments).items()}
    for key, (value, place) in options.items():
        document.override(tuple(key.split(".")), value, place)
    if arguments.task in ("mpe", "max-marginals", "conflict") and is_calendar(arguments.file):
        set_defaults(document)
    return document


def _method(arguments: Namespace) -> dict[str, tuple[Any, str]]:
    """Return the keys that ``--method``, ``--z`` and ``--order`` set, each with its value and the option for errors."""
    method, z, task = arguments.method, arguments.z, arguments.task
    allowed = ("auto", "exact", "mini-bucket") if task == "pr" else ("auto", "exact")
    if task != "mpe":
        if method not in allowed:
            raise ConfigError(f"--method: --task {task} takes {', '.join(allowed)}, got {method!r}")
        limited = arguments.timeout is not None and task not in ("max-marginals", "conflict")
        if limited or arguments.gap is not None:
            name = "--timeout" if limited else "--gap"
            remedy = "; --z N is faster" if task == "pr" else ""
            raise ConfigError(f"{name}: --task {task} is one elimination, which cannot be interrupted{remedy}")
        if arguments.algorithm is not None:
            raise ConfigError(
                f"--algorithm: --task {task} is one elimination without a choice of algorithm; remove the option"
            )
        for name in ("start", "stay"):
            if getattr(arguments, name) is not None:
                raise ConfigError(f"--{name}: is for --task mpe; --task {task} is one elimination; remove the option")
        if arguments.max_marginals:
            raise ConfigError(f"--max-marginals: is for --task mpe, not for --task {task}; remove the option")
        if arguments.explain:
            raise ConfigError(f"--explain: is for --task mpe; --task {task} is one elimination; remove the option")
    if z is not None and (method == "exact" or task not in ("mpe", "pr")):
        what = "--method exact" if method == "exact" else f"--task {task}"
        raise ConfigError(f"--z: is for mini-buckets, not for {what}; remove the option")
    options: dict[str, tuple[Any, str]] = {}
    if arguments.order is not None:
        if method not in ("auto", "exact") or z is not None or task != "mpe":
            raise ConfigError("--order: is for --method auto and exact only; remove the option")
        options["local.order"] = (arguments.order, "--order")
    if method not in ("auto", "mini-bucket"):
        options["local.method"] = (method, "--method")
    if method == "exact":
        options["combine.method"] = ("exact", "--method")
    if method == "mini-bucket" or z is not None:
        options["combine.method"] = ("mini-bucket", "--method")
    if z is not None:
        options["combine.z"] = (value_of(z, "--z"), "--z")
    return options


def run(arguments: Namespace) -> int:
    """Solve the problem of a configuration file on all ranks; return this rank's exit code."""
    return on_all_ranks(arguments, prepare_run, _work)


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
        if self.events:
            return self
        scattered = self.problem is not None and is_scattered(self.problem, self.config, world)
        return self._replace(problem=None) if scattered else self


def prepare_run(arguments: Namespace) -> "_RunJob | SolveJob":
    """Read the configuration and the problem of ``dmcmc run``; a calendar becomes a job of ``dmcmc solve``."""
    if is_calendar(arguments.config):
        defaults = {action.dest: action.default for action in command_parsers()["solve"]._actions}
        return prepare_solve(Namespace(**defaults | vars(arguments) | {"file": arguments.config}))
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
    if arguments.explain:
        raise Unavailable("--explain: is not possible with problem.scenario, whose problem changes; remove it")
    return _RunJob(config, problem, False, events=tuple(read_scenario(config.problem["scenario"])))


def _work(job: "_RunJob | SolveJob", world: World, ending: RunHandle | None) -> Output | None:
    """Solve the problem of a job; return the result on rank 0.

    ``ending`` is the handle by which a signal ends the run.
    """
    if not isinstance(job, _RunJob):
        return work(job, world, ending)
    with progress_for(world.rank, job.config.budget.time) as progress:
        if job.events and job.problem is not None:
            return run_events(job.problem, job.config, job.events, world, progress, ending)
        if "directory" in job.config.problem:
            folder, shared = job.config.problem["directory"], job.share_assignment
            return solve_directory(folder, job.config, world, progress, shared, ending)
        return solve_as_configured(job.problem, job.config, world, progress, explainer(job.explain), ending)
