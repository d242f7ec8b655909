"""``dmcmc solve FILE``: from the command line to a configuration, and to the answer."""

import sys
from argparse import Namespace
from typing import Any, Literal, NamedTuple, Self

from dmcmc.cli.calendar import check_options, set_defaults
from dmcmc.cli.file_roles import is_calendar, is_configuration
from dmcmc.cli.inputs import check_run, explainer, options_of
from dmcmc.config.configuration import Config, config_of, option_place, override
from dmcmc.config.document import Document
from dmcmc.config.problem_section import divided
from dmcmc.config.yaml_lines import value_of
from dmcmc.formats import registry as formats
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.mpi.world import World
from dmcmc.results.explanation import explained
from dmcmc.results.result import Output, Result
from dmcmc.run.monitoring.interrupt import Ending
from dmcmc.run.planning.divided_problem import is_dealt_out, sharing_memory
from dmcmc.run.whole_problem.marginals import marginals, with_max_marginals
from dmcmc.run.whole_problem.partition_and_count import sums

TASKS = ("mpe", "pr", "count", "mar", "max-marginals")
_ALL_CELLS = 2**62


class Job(NamedTuple):
    """What every rank knows before the work starts; ``logarithms``: utilities are ln of the file's numbers."""

    config: Config
    problem: Problem | None  # None where rank 0 alone works on it, or hands each rank its agents' parts
    task: Literal["mpe", "pr", "count", "mar", "max-marginals"]
    logarithms: bool
    explain: bool
    max_marginals: bool = False

    def told(self, world: World) -> Self:
        """Leave out a problem that other ranks do not need: it is dealt out, or rank 0 does all."""
        alone = self.task != "mpe" or (self.problem is not None and is_dealt_out(self.problem, self.config, world))
        return self._replace(problem=None) if alone else self


def prepare(arguments: Namespace) -> Job:
    """Check the options, read the file.

    Raises
    ------
    DmcmcError
        For anything wrong with one of them.
    """
    path, task = arguments.file, arguments.task
    if task not in TASKS:
        raise ConfigError(f"--task: expected one of {', '.join(TASKS)}, got {task!r}")
    if is_configuration(path):
        raise ConfigError(f"{path}: is a configuration, not a problem file; use 'dmcmc run {path}'")
    check_options(arguments, path)
    document = _document(arguments)
    config = config_of(document)
    check_run(config, document)
    given = {name: config.problem[name] for name in ("format", "evidence", "distribution") if name in config.problem}
    found, problem = formats.load_with_format(path, **given)
    problem, wanted = divided(problem, config.problem, document.at), arguments.max_marginals
    return Job(config, problem, task, found.logarithms, arguments.explain, wanted)


def _document(arguments: Namespace) -> Document:
    """Return the options as the sections of a configuration; what is not asked for is left to the memory."""
    document = Document("", {"problem": {"file": arguments.file}})
    cells = _ALL_CELLS if arguments.timeout is None and not is_calendar(arguments.file) else "auto"
    document.data["local"] = {"cells": cells}
    for text in arguments.set:
        override(document, text)
    options = _method(arguments)
    options |= {key: (value, option_place(key)) for key, value in options_of(arguments).items()}
    for key, (value, place) in options.items():
        document.override(tuple(key.split(".")), value, place)
    if arguments.task == "mpe" and is_calendar(arguments.file):
        set_defaults(document, arguments.method == "auto" and arguments.z is None)
    return document


def _method(arguments: Namespace) -> dict[str, tuple[Any, str]]:
    """Return what ``--method`` and ``--z`` say, by key, each with the option to name in errors."""
    method, z, task = arguments.method, arguments.z, arguments.task
    allowed = ("auto", "exact", "mini-bucket") if task == "pr" else ("auto", "exact")
    if task != "mpe":
        if method not in allowed:
            raise ConfigError(f"--method: --task {task} takes {', '.join(allowed)}, got {method!r}")
        if arguments.timeout is not None or arguments.gap is not None:
            name = "--gap" if arguments.timeout is None else "--timeout"
            remedy = "; --z N makes it short" if task == "pr" else ""
            raise ConfigError(f"{name}: --task {task} is one elimination, which is not interrupted{remedy}")
        if arguments.algorithm is not None:
            raise ConfigError(f"--algorithm: --task {task} is one elimination; leave it out")
        if arguments.max_marginals:
            raise ConfigError(f"--max-marginals: --task {task} has no answer to put them to; leave it out")
        if arguments.explain:
            raise ConfigError(f"--explain: --task {task} is one elimination: there is nothing to choose")
    if z is not None and (method == "exact" or task not in ("mpe", "pr")):
        what = "--method exact" if method == "exact" else f"--task {task}"
        raise ConfigError(f"--z: {what} splits nothing; leave it out")
    options: dict[str, tuple[Any, str]] = {}
    if arguments.order is not None:
        if method not in ("auto", "exact") or z is not None or task != "mpe":
            raise ConfigError("--order: is for the eliminations of --method auto and exact; leave it out")
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


def work(job: Job, world: World, ending: Ending | None) -> Output | None:
    """Do a job; called by every rank, returns the answer on rank 0.

    Mini-buckets of one agent's problem, partition functions, counts and marginals are the work of rank 0 alone.
    """
    config, problem = job.config, job.problem
    alone = sharing_memory(config, World())
    if job.task != "mpe":
        if world.rank != 0 or problem is None:
            return None
        if job.task == "mar" or job.task == "max-marginals":
            return marginals(problem, alone, job.task)
        return sums(problem, alone, job.task)
    single = problem is not None and problem.n_agents == 1
    split = config.combine.method == "mini-bucket" and single and config.algorithm == "dmcmc"
    if split and config.local.method != "auto":
        raise ConfigError(f"--z: one agent sends no messages that {config.local.method} could split; leave it out")
    if split and world.rank != 0:
        return None
    result: Result | None
    if split and problem is not None:
        from dmcmc.run.whole_problem.mini_bucket_solve import solve_single_agent

        if job.explain:
            print("one agent: mini-buckets of the whole problem, as asked for", file=sys.stderr, flush=True)
        result = solve_single_agent(problem, alone, ending)
    else:
        from dmcmc.cli.progress import progress_for
        from dmcmc.run.algorithms.choose_algorithm import solve

        with progress_for(world.rank, config.budget.time) as progress:
            settings = sharing_memory(config, world)
            result = solve(problem, settings, world, progress, explainer(job.explain), ending)
    if result is not None and problem is not None and job.max_marginals:
        result = with_max_marginals(result, problem, alone)
    return explained(result) if result is not None and job.logarithms else result
