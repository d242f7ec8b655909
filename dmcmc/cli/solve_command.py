"""``dmcmc solve FILE``: turn the command line into a configuration, and solve the problem file."""

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from dmcmc.cli.calendar import calendar_of, check_options, first_participations, set_defaults, set_start, with_search
from dmcmc.cli.file_roles import is_calendar, is_configuration
from dmcmc.cli.inputs import check_run, explainer, options_of
from dmcmc.cli.solve_tasks.alternatives import requested_alternatives
from dmcmc.cli.solve_tasks.query import queried_variables
from dmcmc.config.configuration import Config, config_of, option_place, override
from dmcmc.config.document import Document
from dmcmc.config.problem_section import with_assigned_agents
from dmcmc.config.settings import Settings
from dmcmc.config.yaml_lines import value_of
from dmcmc.formats import registry as formats
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.mpi.world import World
from dmcmc.results.explanation import as_explanation
from dmcmc.results.marginals import Marginals
from dmcmc.results.result import Output, Result
from dmcmc.run.alternatives.request import AlternativesRequest
from dmcmc.run.whole_problem.marginals import marginals, with_max_marginals
from dmcmc.run.whole_problem.partition_and_count import sums
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.planning.divided_problem import is_scattered, with_memory_limit

if TYPE_CHECKING:
    from dmcmc.formats.calendar.data.plan import Calendar

TASKS = ("mpe", "pr", "count", "mar", "max-marginals", "conflict")
_NO_CELL_LIMIT = 2**62  # local.cells without a time budget: exact wherever the memory allows it


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


def prepare(arguments: Namespace) -> SolveJob:
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
    document, calendar = _document(arguments), calendar_of(arguments, path)
    given_start = "start" in document.data
    if calendar is not None and task == "mpe":
        set_start(document, calendar)
    config = config_of(document)
    check_run(config, document)
    given = {name: config.problem[name] for name in ("format", "evidence", "distribution") if name in config.problem}
    logarithms = False
    if calendar is not None and not given:
        from dmcmc.formats.calendar.problem import problem_of

        problem = problem_of(calendar, copies=given_start or not _merges(config, task))
        if task == "mpe" and arguments.method == "auto" and arguments.z is None and "search" not in document.data:
            config = with_search(config, problem)
    else:
        file_format, problem = formats.load_with_format(path, **given)
        logarithms = file_format.logarithms
    query = () if arguments.query is None else queried_variables(arguments.query, problem)
    problem, max_marginals = with_assigned_agents(problem, config.problem, document.at), arguments.max_marginals
    request = requested_alternatives(arguments, problem, calendar)
    return SolveJob(config, problem, task, logarithms, arguments.explain, max_marginals, query, request, calendar)


def _merges(config: Config, task: str) -> bool:
    """Return whether a run merges the variables of all participants of a meeting."""
    is_plain = config.local.method in ("auto", "exact") and config.combine.method != "mini-bucket"
    return task in ("mpe", "conflict") and config.presolve == "merge" and is_plain and config.algorithm == "dmcmc"


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


def _marginals(job: SolveJob, problem: Problem, config: Settings) -> Marginals:
    """Return the marginals or max-marginals of the variables that are wanted, within the time budget if there is one.

    In a calendar, the values of each meeting are fixed once, for its first participant.
    """
    if job.task == "max-marginals" and config.budget.time is not None:
        from dmcmc.run.resolving.value_bounds import timed_max_marginals

        fixed = job.query or (() if job.calendar is None else first_participations(job.calendar))
        found = timed_max_marginals(problem, config, fixed)
    else:
        found = marginals(problem, config, "mar" if job.task == "mar" else "max-marginals")
    return found.only(job.query) if job.query else found


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
            from dmcmc.calendars.explain import find_calendar_conflict

            return find_calendar_conflict(job.calendar, single_rank_config)
        if job.task == "conflict":
            from dmcmc.run.resolving.conflict import find_conflict

            return find_conflict(problem, single_rank_config)
        return sums(problem, single_rank_config, job.task)
    has_one_agent = problem is not None and problem.n_agents == 1
    uses_mini_buckets = config.combine.method == "mini-bucket" and has_one_agent and config.algorithm == "dmcmc"
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
        from dmcmc.run.compilation.small_problems import interpreted_if_small
        from dmcmc.run.whole_problem.mini_bucket_solve import solve_single_agent

        if job.explain:
            print("one agent: mini-buckets of the whole problem, as set by the options", file=sys.stderr, flush=True)
        with interpreted_if_small(problem, single_rank_config):
            result = solve_single_agent(problem, single_rank_config, ending)
    elif job.alternatives is not None and problem is not None:
        from dmcmc.cli.progress import progress_for
        from dmcmc.run.alternatives.find_alternatives import solve_with_alternatives

        with progress_for(world.rank, config.budget.time) as progress:
            explain = explainer(job.explain)
            result = solve_with_alternatives(problem, single_rank_config, job.alternatives, progress, explain, ending)
    else:
        from dmcmc.cli.progress import progress_for
        from dmcmc.run.algorithms.choose_algorithm import solve

        with progress_for(world.rank, config.budget.time) as progress:
            settings = with_memory_limit(config, world)
            result = solve(problem, settings, world, progress, explainer(job.explain), ending)
    if result is not None and problem is not None and job.max_marginals:
        result = with_max_marginals(result, problem, single_rank_config)
    return as_explanation(result) if result is not None and job.logarithms else result
