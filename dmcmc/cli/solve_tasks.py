"""What the command ``solve`` does by its options.

Carry out a job of ``dmcmc solve``: the task of the command line on a problem that has been read.

The options ``--alternatives``, ``--within`` and ``--distance`` of ``dmcmc solve``.

The option ``--query`` of ``dmcmc solve``: the variables that are asked, by a file or by their names.

``dmcmc run`` with a scenario: go through its events, and write a line of result for each as soon as it is known.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

from msgspec import structs

from dmcmc.algorithms.choice.choose_algorithm import solve_as_configured
from dmcmc.calendars.file.plan import Calendar
from dmcmc.calendars.solve import find_calendar_conflict
from dmcmc.cli.progress import progress_for
from dmcmc.compilation.small_problems import interpreted_if_small
from dmcmc.config.configuration import Config
from dmcmc.config.settings import Settings
from dmcmc.files.document import value_of
from dmcmc.files.text import STANDARD_INPUT
from dmcmc.files.write import replace_file
from dmcmc.formats.uai import read_query
from dmcmc.inference.model.names import suggest_name
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, FileError
from dmcmc.mpi.world import World
from dmcmc.questions.alternatives import AlternativesRequest, solve_with_alternatives
from dmcmc.questions.conflict import find_conflict
from dmcmc.questions.max_marginals import timed_max_marginals
from dmcmc.questions.mini_buckets import solve_single_agent
from dmcmc.questions.sums import marginals, sums, with_max_marginals
from dmcmc.report.explain import plan_of, print_explanation
from dmcmc.results.questions import EventResult, Marginals, ScenarioResult, as_explanation
from dmcmc.results.result import Output, Result
from dmcmc.session.run_scenario import external_tables, run_scenario
from dmcmc.session.scenario import ScenarioEvent
from dmcmc.session.session import Session
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import Explain, ProgressReporter
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
