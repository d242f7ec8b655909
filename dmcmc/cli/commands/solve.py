"""The commands ``solve`` and ``run``.

``dmcmc solve FILE``: turn the command line into a configuration, read the problem file, and carry out the task that the
options name. ``dmcmc run CONFIG``: solve the problem of a configuration file or of a calendar, or go through the events
of a scenario and write a line of result for each as soon as it is known.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

from msgspec import structs

from dmcmc.algorithms.choice.choose_algorithm import solve_as_configured
from dmcmc.anytime.solve_private import solve_directory
from dmcmc.calendars.file.plan import Calendar
from dmcmc.calendars.file.problem import problem_of as problem_of_calendar
from dmcmc.calendars.solve import (
    calendar_of,
    find_calendar_conflict,
    set_defaults,
    set_start,
    variables_by_meeting,
    with_search,
)
from dmcmc.cli import inputs
from dmcmc.cli.arguments import command_parsers
from dmcmc.cli.on_all_ranks import on_all_ranks
from dmcmc.cli.progress import progress_for
from dmcmc.compilation.small_problems import interpreted_if_small
from dmcmc.config.configuration import Config, config_of, option_place, override, problem_of, with_assigned_agents
from dmcmc.config.settings import Settings
from dmcmc.files.document import Document, value_of
from dmcmc.files.text import STANDARD_INPUT
from dmcmc.files.write import replace_file
from dmcmc.formats import registry as formats
from dmcmc.formats.uai import read_query
from dmcmc.inference.model.names import suggest_name
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, FileError, Unavailable
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.mpi.world import World
from dmcmc.questions.alternatives import AlternativesRequest, solve_with_alternatives
from dmcmc.questions.conflict import find_conflict
from dmcmc.questions.max_marginals import timed_max_marginals
from dmcmc.questions.mini_buckets import solve_single_agent
from dmcmc.questions.sums import marginals, sums, with_max_marginals
from dmcmc.report.explain import plan_of, print_explanation
from dmcmc.results.questions import EventResult, Marginals, ScenarioResult, as_explanation
from dmcmc.results.result import Output, Result
from dmcmc.session.scenario import ScenarioEvent, external_tables, read_scenario, run_scenario
from dmcmc.session.session import Session
from dmcmc.solving.observe import Explain, ProgressReporter, RunHandle
from dmcmc.solving.planning.divided_problem import is_scattered, with_memory_limit


class SolveJob(NamedTuple):
    """The data of a job that all ranks need.

    Attributes
    ----------
    config : Config
        The configuration.
    problem : Problem or None
        The problem. None on ranks that do not need it: rank 0 works alone, or sends each rank its agents' parts.
    task : str
        ``mpe`` (find the best assignment), ``pr`` (partition function), ``count`` (number of solutions), ``mar``
        (marginals), ``max-marginals`` or ``conflict`` (hard constraints that cannot hold together).
    logarithms : bool
        Whether utilities are natural logarithms of the numbers in the file.
    explain : bool
        Whether to print the plan first.
    max_marginals : bool
        Whether to compute the best objective for each value as well.
    query : tuple of str
        The variables whose marginals are wanted (``--query``); empty for all.
    alternatives : AlternativesRequest or None
        The alternatives that are wanted (``--alternatives``); None for the best assignment only.
    calendar : Calendar or None
        The calendar that the problem was made from, on rank 0.
    """

    config: Config
    problem: Problem | None
    task: Literal["mpe", "pr", "count", "mar", "max-marginals", "conflict"]
    logarithms: bool
    explain: bool
    max_marginals: bool = False
    query: tuple[str, ...] = ()
    alternatives: AlternativesRequest | None = None
    calendar: "Calendar | None" = None

    def for_other_ranks(self, world: World) -> Self:
        """Return the job without the problem if other ranks do not need it: it is scattered, or rank 0 works alone."""
        alone = self.task != "mpe" or self.alternatives is not None
        omit = alone or (self.problem is not None and is_scattered(self.problem, self.config, world))
        return self._replace(problem=None if omit else self.problem, calendar=None)


def work(job: SolveJob, world: World, ending: RunHandle | None) -> Output | None:
    """Solve the problem of a job and return the result on rank 0; called by every rank.

    Rank 0 alone computes mini-buckets of a problem with one agent, partition functions, counts, marginals and
    alternatives.
    ``ending`` is the handle by which a signal ends the run.
    """
    config, problem = job.config, job.problem
    single_rank_config = with_memory_limit(config, World())
    if job.task != "mpe":
        if world.rank != 0 or problem is None:
            return None
        if job.task == "mar" or job.task == "max-marginals":
            return _marginals(job, problem, single_rank_config)
        if job.task == "conflict" and job.calendar is not None:
            return find_calendar_conflict(job.calendar, single_rank_config)
        if job.task == "conflict":
            return find_conflict(problem, single_rank_config)
        return sums(problem, single_rank_config, job.task)
    has_one_agent = problem is not None and problem.n_agents == 1
    uses_mini_buckets = (
        config.combine.method == "mini-bucket" and has_one_agent and config.algorithm_settings.name == "dmcmc"
    )
    if uses_mini_buckets and config.local.method != "auto":
        raise ConfigError(f"--z: is for problems with several agents with --method {config.local.method}; remove it")
    for name, value in (("start", config.start), ("stay", config.stay)):
        if uses_mini_buckets and value is not None:
            what = "mini-buckets of one agent, which search nothing"
            raise ConfigError(f"--{name}: is not for {what}; remove one of the two")
    if (uses_mini_buckets or job.alternatives is not None) and world.rank != 0:
        return None
    result: Result | None
    if uses_mini_buckets and problem is not None:
        if job.explain:
            print("one agent: mini-buckets of the whole problem, as set by the options", file=sys.stderr, flush=True)
        with interpreted_if_small(problem, single_rank_config):
            result = solve_single_agent(problem, single_rank_config, ending)
    elif job.alternatives is not None and problem is not None:
        with progress_for(world.rank, config.budget.time) as progress:
            explain = explainer(job.explain)
            result = solve_with_alternatives(problem, single_rank_config, job.alternatives, progress, explain, ending)
    else:
        with progress_for(world.rank, config.budget.time) as progress:
            settings = with_memory_limit(config, world)
            result = solve_as_configured(problem, settings, world, progress, explainer(job.explain), ending)
    if result is not None and problem is not None and job.max_marginals:
        result = with_max_marginals(result, problem, single_rank_config)
    return as_explanation(result) if result is not None and job.logarithms else result


def _marginals(job: SolveJob, problem: Problem, config: Settings) -> Marginals:
    """Return the marginals or max-marginals of the variables that are wanted, within the time budget if there is one.

    In a calendar, the values of each meeting are fixed once, for its first participant.
    """
    if job.task == "max-marginals" and config.budget.time is not None:
        fixed = job.query or (() if job.calendar is None else job.calendar.variables)
        found = timed_max_marginals(problem, config, fixed)
    else:
        found = marginals(problem, config, "mar" if job.task == "mar" else "max-marginals")
    return found.only(job.query) if job.query else found


def explainer(is_wanted: bool) -> Explain | None:
    """Return a function that prints the plan of a run (``--explain``); None if it is not wanted."""
    return (lambda setup: print_explanation(plan_of(setup))) if is_wanted else None


def requested_alternatives(
    arguments: Namespace, problem: Problem, calendar: Calendar | None
) -> AlternativesRequest | None:
    """Return the alternatives that a command line asks for; None without ``--alternatives``.

    ``calendar`` is the calendar in the problem file, if it is one.

    In a calendar each meeting counts once for ``--distance``, by the variable of its first participant.

    Raises
    ------
    ConfigError
        If an option is not allowed.
    """
    given = {name: getattr(arguments, name) for name in ("alternatives", "within", "distance")}
    if given["alternatives"] is None:
        for name in ("within", "distance"):
            if given[name] is not None:
                raise ConfigError(f"--{name}: needs --alternatives K; add it, or remove --{name}")
        return None
    if arguments.task != "mpe":
        raise ConfigError(f"--alternatives: is for --task mpe, not for --task {arguments.task}; remove the option")
    if arguments.method == "mini-bucket" or arguments.z is not None:
        raise ConfigError("--alternatives: is not for mini-buckets; remove the option, or --z and --method mini-bucket")
    words = {name: text for name, text in given.items() if text is not None}
    values: dict[str, Any] = {"distance": 1} | {name: value_of(text, f"--{name}") for name, text in words.items()}
    over = None
    if calendar is not None and values["distance"] != 1:
        over = calendar.variables
    return AlternativesRequest(values["alternatives"], values.get("within"), values["distance"], over).checked(problem)


def queried_variables(query: str, problem: Problem, groups: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names of the variables that are asked, the most wanted first.

    Parameters
    ----------
    query
        The name of a variable, several names with commas between them, or a file as UAI has it.
    problem
        The problem.
    groups
        Further names, each for some variables, such as the meetings of a calendar.

    Raises
    ------
    DmcmcError
        If there is neither such a file nor such a variable, or the file is malformed.
    """
    if query == STANDARD_INPUT or os.path.exists(query):
        return read_query(query, problem)
    known = {**groups, **{name: (name,) for name in problem.variables}}
    names = [query] if query in known else [name.strip() for name in query.split(",")]
    for name in names:
        if name not in known:
            hint = suggest_name(name, (*groups, *problem.variables))
            raise ConfigError(f"--query: neither a file nor a variable is called {name!r}{hint}")
    return tuple(dict.fromkeys(variable for name in names for variable in known[name]))


def run_events(
    problem: Problem,
    config: Config,
    events: Sequence[ScenarioEvent],
    world: World,
    progress: ProgressReporter,
    ending: RunHandle | None,
) -> ScenarioResult | None:
    """Go through the events of a scenario on all ranks; return the results on rank 0.

    After a signal, the results so far are delivered.
    """
    lines = _Lines(config.output if world.rank == 0 else None)
    if ending is not None:
        ending.best = lines.so_far
    path, distribution = config.problem.get("file"), config.problem.get("distribution")
    external = None if path is None else external_tables(str(path), distribution)
    settings = Settings(**{name: getattr(config, name) for name in Settings.__struct_fields__})

    def finished(event: EventResult) -> None:
        lines.add(event)
        progress.advance()

    progress.stage("events", len(events))
    settings = structs.replace(settings, output=None)
    session = Session(problem, settings, world=world)
    found = run_scenario(session, events, settings.budget.time, external=external, on_event=finished)
    return found if world.rank == 0 else None


class _Lines:
    """The results so far, which are also written to a file."""

    def __init__(self, path: str | None) -> None:
        self.path, self.events = path, list[EventResult]()
        if path is not None:
            replace_file(path, [])

    def add(self, event: EventResult) -> None:
        """Keep a result, and write its line."""
        self.events.append(event)
        if self.path is not None:
            try:
                with open(self.path, "a", encoding="utf-8") as stream:
                    stream.write(event.to_line())
            except OSError as error:
                raise FileError(f"{self.path}: cannot be written: {error.strerror or error}") from None

    def so_far(self) -> ScenarioResult | None:
        """Return the results so far; None if there are none, or on other ranks than 0."""
        return ScenarioResult(events=tuple(self.events)) if self.events else None


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
    if inputs.is_configuration(path):
        raise ConfigError(f"{path}: is a configuration, not a problem file; use 'dmcmc run {path}'")
    if arguments.query is not None and task not in ("mar", "max-marginals"):
        raise ConfigError("--query: is for --task mar and max-marginals; marginal MAP is not available in this version")
    inputs.check_options(arguments, path)
    document = _document(arguments)
    with MEMORY_ACCOUNT.open(config_of(document).budget.bytes, resident_memory()):
        return _read(arguments, document)


def _read(arguments: Namespace, document: Document) -> SolveJob:
    """Read the problem file within the budget of the run."""
    path, task = arguments.file, arguments.task
    calendar = calendar_of(arguments, path) if inputs.is_calendar(path) else None
    given_start = "start" in document.data
    if calendar is not None and task == "mpe":
        set_start(document, calendar)
    config = config_of(document)
    inputs.check_run(config, document)
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
    cells = _NO_CELL_LIMIT if arguments.timeout is None and not inputs.is_calendar(arguments.file) else "auto"
    document.data["local"] = {"cells": cells}
    for text in arguments.set:
        override(document, text)
    options = _method(arguments)
    options |= {key: (value, option_place(key)) for key, value in inputs.options_of(arguments).items()}
    for key, (value, place) in options.items():
        document.override(tuple(key.split(".")), value, place)
    if arguments.task in ("mpe", "max-marginals", "conflict") and inputs.is_calendar(arguments.file):
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
    if inputs.is_calendar(arguments.config):
        defaults = {action.dest: action.default for action in command_parsers()["solve"]._actions}
        return prepare_solve(Namespace(**defaults | vars(arguments) | {"file": arguments.config}))
    inputs.check_options(arguments, arguments.config)
    config, document = inputs.configuration(arguments.config, arguments.set, inputs.options_of(arguments))
    inputs.check_run(config, document)
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
