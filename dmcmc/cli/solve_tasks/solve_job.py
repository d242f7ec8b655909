"""Carry out a job of ``dmcmc solve``: the task of the command line on a problem that has been read."""

import sys
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from dmcmc.cli.inputs import explainer
from dmcmc.cli.progress import progress_for
from dmcmc.config.configuration import Config
from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.mpi.world import World
from dmcmc.questions.alternatives import AlternativesRequest
from dmcmc.questions.sums import marginals, sums, with_max_marginals
from dmcmc.results.explanation import as_explanation
from dmcmc.results.marginals import Marginals
from dmcmc.results.result import Output, Result
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.planning.divided_problem import is_scattered, with_memory_limit

if TYPE_CHECKING:
    from dmcmc.calendars.file.plan import Calendar


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
            from dmcmc.calendars.solve import find_calendar_conflict

            return find_calendar_conflict(job.calendar, single_rank_config)
        if job.task == "conflict":
            from dmcmc.questions.conflict import find_conflict

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
        from dmcmc.compilation.small_problems import interpreted_if_small
        from dmcmc.questions.mini_buckets import solve_single_agent

        if job.explain:
            print("one agent: mini-buckets of the whole problem, as set by the options", file=sys.stderr, flush=True)
        with interpreted_if_small(problem, single_rank_config):
            result = solve_single_agent(problem, single_rank_config, ending)
    elif job.alternatives is not None and problem is not None:
        from dmcmc.questions.alternatives import solve_with_alternatives

        with progress_for(world.rank, config.budget.time) as progress:
            explain = explainer(job.explain)
            result = solve_with_alternatives(problem, single_rank_config, job.alternatives, progress, explain, ending)
    else:
        from dmcmc.algorithms.choice.choose_algorithm import solve_as_configured

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
        from dmcmc.questions.max_marginals import timed_max_marginals

        fixed = job.query or (() if job.calendar is None else job.calendar.variables)
        found = timed_max_marginals(problem, config, fixed)
    else:
        found = marginals(problem, config, "mar" if job.task == "mar" else "max-marginals")
    return found.only(job.query) if job.query else found
