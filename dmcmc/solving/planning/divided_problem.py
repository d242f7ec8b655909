"""Presolve a problem and divide it among its agents, before anything is planned.

If rank 0 alone has the problem, or it is large, rank 0 keeps it and scatters each rank its own agents' parts.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial

import msgspec
import numpy as np

from dmcmc.config.settings import Combine, Cooling, Settings, automatic_memory
from dmcmc.files.text import read_order
from dmcmc.formats import agent_files
from dmcmc.inference.dpop.division import Division, LocalProblem, divide, shared_variables
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.model.arithmetic import MAX_TOTAL_UTILITY, Arithmetic, arithmetic_of, exact_sum
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.model.problem import Problem, bytes_of_tables
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.orders.best_order import cells_upper_bound
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ProblemError, Unavailable
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.tuning import MAX_EXACT_VARIABLES
from dmcmc.mpi.world import World
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.tuning import SECONDS_PER_AGENT
from dmcmc.samplers.model.schedule import Temperature
from dmcmc.solving.planning import presolve
from dmcmc.solving.planning.rank_view import rank_view_of, scatter_parts
from dmcmc.solving.tuning import (
    ORDER_TIME_PART,
    ORDER_WORDS_PER_SECOND,
    PLANNING_TIME_PART,
    RESULT_SECONDS_PER_AGENT,
    RESULT_TIME_PART,
    SCATTERED_BYTES,
    SCATTERED_MEMORY_PART,
    SOON_SECONDS,
    SOON_TIME_PART,
)
from dmcmc.solving.warm_start.retained_work import RetainedWork

_BYTES_PER_FACTOR = 1 << 10  # bytes per factor besides its table
_TABLE_COPIES = 3  # a rank that runs the local search holds the tables this number of times
_BYTES_PER_SEARCHED_FACTOR = 10 << 10  # bytes per factor on such a rank


@dataclass(frozen=True)
class DividedProblem:
    """A problem divided among its agents.

    Attributes
    ----------
    presolved : Presolved
        The problem before its division.
    config : Settings
        Settings of the run.
    division : Division
        The agents' local problems and the factors between agents.
    scattered : bool
        Whether only rank 0 knows the whole problem; other ranks know their agents' parts
        (:mod:`dmcmc.solving.distribution`).
    retained : RetainedWork or None
        Work of earlier runs that may be used again, and that receives this run's; None to keep nothing.
    """

    presolved: presolve.Presolved
    config: Settings
    division: Division
    scattered: bool = field(default=False, kw_only=True)
    retained: RetainedWork | None = field(default=None, kw_only=True, compare=False, repr=False)

    @property
    def given(self) -> presolve.OriginalProblem:
        """The problem as the user gave it."""
        return self.presolved.given

    @property
    def original(self) -> Problem:
        """The problem to solve."""
        return self.presolved.original

    @property
    def problem(self) -> Problem:
        """The problem to solve with dense tables."""
        return self.presolved.problem

    @property
    def arithmetic(self) -> Arithmetic:
        """Encoding of the utilities, which holds their sums."""
        return self.presolved.arithmetic

    @property
    def retained_bounds(self) -> RetainedWork | None:
        """The work of earlier runs, whose bounds a run with a time budget continues; None without a time budget."""
        return self.retained if self.timed else None

    @cached_property
    def owned(self) -> tuple[list[int], list[int]]:
        """Number of variables of the original problem, and of shared ones among them, for each agent."""
        asked = self.given.problem

        def counted() -> tuple[list[int], list[int]]:
            owners = asked.owner, asked.owner[shared_variables(asked)]
            all_counts, shared_counts = (np.bincount(owner, minlength=asked.n_agents).tolist() for owner in owners)
            return all_counts, shared_counts

        return asked.shape_facts.get_or_compute("owned", counted) if asked.dense else counted()

    @property
    def timed(self) -> bool:
        """Whether there is a time budget."""
        return self.config.budget.time is not None


def with_memory_limit(settings: Settings, world: World) -> Settings:
    """Return settings with a number for ``budget.memory``: what the machine with the least memory allows."""
    if settings.budget.memory != "auto":
        return settings
    least = min(world.allgather(_automatic_memory(world.local_size, int(time.monotonic()))))
    return msgspec.structs.replace(settings, budget=settings.budget.shared(least))


@lru_cache(maxsize=1)
def _automatic_memory(ranks: int, _second: int) -> int:
    """Return :func:`automatic_memory`, cached for a second: asking the system takes longer than small problems do."""
    return automatic_memory(ranks)


def arithmetic_for(problem: Problem, combine: Combine, stop: Deadline = NO_DEADLINE) -> Arithmetic:
    """Return the arithmetic for a problem, with headroom for moment matching if mini-buckets are asked for.

    Constants are left out: they are added at the end, exactly.

    Raises
    ------
    ProblemError
        If the sum of all utilities does not fit a float64.
    OutOfTime
        If the deadline passes while the entries of the tables are read.
    """
    constant_factors = [factor for factor in problem.factors if not factor.scope]
    # The tables lie in one array for the local search already; constants are not part of the sums.
    if constant_factors:
        arithmetic = choose_arithmetic(f for f in problem.factors if f.scope)
    else:
        problem.find_ranges(stop)
        integral, magnitudes = problem.flat.data.dtype.kind == "i", problem.magnitudes
        arithmetic = problem.facts.get_or_compute("arithmetic", partial(arithmetic_of, magnitudes, integral))
    constant_sum = exact_sum(magnitude(f.table) for f in constant_factors)
    if constant_sum > MAX_TOTAL_UTILITY:
        raise ProblemError(f"constants add up to more than {MAX_TOTAL_UTILITY:.3g}; scale them down")
    if combine.method == "mini-bucket" and combine.moment_matching:
        return with_headroom(arithmetic)
    return arithmetic


def presolve_problem(
    asked: Problem,
    config: Settings,
    world: World,
    stop: Deadline = NO_DEADLINE,
    first: presolve.FirstAnswer | None = None,
) -> presolve.Presolved:
    """Presolve the problem if that is worthwhile, and choose its arithmetic.

    Parameters
    ----------
    asked
        The original problem.
    config
        Settings of the run.
    world
        The ranks, all of which call this.
    stop
        Deadline of presolve; ignored on several ranks, which have to get the same result. If there is a first answer,
        the division ends soon after it with ``OutOfTime``.
    first
        The answer that was found before, if there is one.
    """
    ends = NO_DEADLINE if first is None else stop.later(tuning.GRACE_SECONDS / 2)
    memory = config.budget.bytes
    merged = presolve.merged_if_applicable(asked, config) if config.presolve == "merge" else None
    original = asked if merged is None else merged.problem
    problem = original if original.dense else densify(original, memory, relax=True, stop=ends).problem
    ends.check()
    reduction = presolve.presolve_if_worthwhile(original, problem, config, stop if world.size == 1 else NO_DEADLINE)
    if reduction is not None:
        original = reduction.problem
        problem = densify(original, memory, relax=True, stop=ends).problem
    if merged is not None:
        reduction = merged if reduction is None else merged.then(reduction)
    ends.check()
    arithmetic = arithmetic_for(problem, config.combine, ends)
    ends.check()
    if arithmetic.integral and not arithmetic.exact:  # the sums of the integers need more than 60 bits
        centred = presolve.with_centred_tables(original, reduction)
        dense = None if centred is None else densify(centred.problem, memory, relax=True, stop=ends).problem
        if centred is not None and dense is not None:
            exact = arithmetic_for(dense, config.combine, ends)
            if exact.exact:
                original, problem, reduction, arithmetic = centred.problem, dense, centred, exact
    return presolve.Presolved(presolve.OriginalProblem(asked, reduction, first), original, problem, arithmetic)


def divide_problem(
    asked: Problem,
    config: Settings,
    world: World,
    stop: Deadline = NO_DEADLINE,
    first: presolve.FirstAnswer | None = None,
) -> DividedProblem:
    """Presolve the problem, and divide it among its agents; the parameters are those of :func:`presolve_problem`."""
    with world.together():
        presolved = presolve_problem(asked, config, world, stop, first)
        return DividedProblem(presolved, config, divide(presolved.problem))


def soon_proven(parts: DividedProblem) -> bool:
    """Return whether exact tables should prove the optimum in a very short time, so that other work can wait.

    The cost of combining is only estimated if there are many agents. The result is the same on all ranks and machines.
    """
    config, seconds = parts.config, parts.config.budget.time
    if config.local.method not in ("auto", "exact") or config.combine.method == "mini-bucket":
        return False
    limit = SOON_SECONDS if seconds is None else min(SOON_SECONDS, SOON_TIME_PART * seconds)
    if config.local.cells != "auto" or config.local.order is not None:
        return False
    seconds_needed = 0.0
    for local in parts.division.locals:
        seconds_needed += SECONDS_PER_AGENT + COSTS.seconds_per_cell * local.known.get_or_compute(
            "cells", partial(_elimination_cells, local)
        )
        if seconds_needed > limit:
            return False
    return (
        parts.problem.n_agents <= MAX_EXACT_VARIABLES
        or seconds_needed + COSTS.seconds_per_cell * _combined_cells(parts) <= limit
    )


def _elimination_cells(local: LocalProblem) -> float:
    """Return an upper bound on the joined cells of an agent's elimination."""
    return cells_upper_bound([factor.scope for factor in local.factors], local.domains, local.hidden)


def _combined_cells(parts: DividedProblem) -> float:
    """Return an upper bound on the joined cells of combining the agents' tables, each over its whole interface."""
    locals_, problem = parts.division.locals, parts.problem
    hidden = {v for local in locals_ for v in local.hidden}
    scopes = [local.interface for local in locals_ if local.hidden]
    scopes += [factor.scope for factor in problem.factors if hidden.isdisjoint(factor.scope)]
    return cells_upper_bound(scopes, problem.domains, [v for v in range(problem.n_variables) if v not in hidden])


def is_scattered(problem: Problem, config: Settings, world: World) -> bool:
    """Return whether only rank 0 keeps the problem, and sends each rank its own agents' parts.

    This is done if the problem takes over 32 MiB. With a time budget, in which each rank would search the whole
    problem, it also has to take over a quarter of a rank's memory.
    """
    if world.size == 1 or problem.n_agents == 1 or not may_be_scattered(config):
        return False
    tables, factors = bytes_of_tables(problem), len(problem.factors)
    if config.budget.time is None or tables + _BYTES_PER_FACTOR * factors <= SCATTERED_BYTES:
        return tables + _BYTES_PER_FACTOR * factors > SCATTERED_BYTES
    memory = config.budget.shared(_automatic_memory(world.local_size, int(time.monotonic()))).bytes
    return _TABLE_COPIES * tables + _BYTES_PER_SEARCHED_FACTOR * factors > SCATTERED_MEMORY_PART * memory


def may_be_scattered(config: Settings) -> bool:
    """Return whether no setting needs the whole problem on all ranks."""
    return config.local.order is None and config.algorithm_settings.name == "dmcmc"


@dataclass(frozen=True)
class UnscatteredProblem:
    """A problem that only rank 0 knows, before its agents are placed on ranks.

    Attributes
    ----------
    parts : DividedProblem
        The divided problem; on other ranks than 0 without the agents' parts.
    index : AgentIndex
        The part of the problem that every rank may know.
    magnitudes : tuple of list
        Sums of the largest absolute entries of each agent's factors, and of each factor between agents.
    agents : sequence of Problem or None
        All agents' parts, on rank 0.
    """

    parts: DividedProblem
    index: agent_files.AgentIndex
    magnitudes: tuple[list[Number], list[Number]]
    agents: Sequence[Problem] | None

    def scatter(self, owner: Sequence[int], helpers: Sequence[Sequence[int]], world: World) -> DividedProblem:
        """Send each rank the parts of its agents and of the agent that it helps; return this rank's view."""
        agents_of_rank: list[list[int]] = [[] for _ in range(world.size)]
        for agent, rank in enumerate(owner):
            agents_of_rank[rank].append(agent)
            for other in helpers[agent]:
                agents_of_rank[other].append(agent)
        own_parts = scatter_parts(self.agents, agents_of_rank, world)
        if self.agents is not None:
            return self.parts
        return _rank_view(self.index, own_parts, self.parts.config, self.parts.arithmetic, self.magnitudes)


def prepare_scattering(
    asked: Problem | None, config: Settings, world: World, stop: Deadline, first: presolve.FirstAnswer | None
) -> UnscatteredProblem:
    """Presolve and divide a problem that only rank 0 has; called by all ranks.

    ``stop`` and ``first`` are as in :func:`divide_on_ranks`.
    """

    def division() -> UnscatteredProblem | None:
        if not may_be_scattered(config):
            raise Unavailable(
                "only rank 0 has the problem, but local.order and algorithms other than dmcmc need it on all ranks;"
                " pass it on all ranks, or remove these settings"
            )
        if asked is None:
            return None
        parts = replace(divide_problem(asked, config, World(), stop, first), scattered=True)
        index, agents = agent_files.split_by_agent(parts.problem, config.budget.bytes)
        return UnscatteredProblem(parts, index, parts.division.magnitudes, agents)

    unscattered = world.on_all_ranks(division)
    shared = None if unscattered is None else (unscattered.index, unscattered.parts.arithmetic, unscattered.magnitudes)
    index, arithmetic, magnitudes = world.bcast(shared, "deal")
    return unscattered or UnscatteredProblem(
        _rank_view(index, {}, config, arithmetic, magnitudes), index, magnitudes, None
    )


def divide_on_ranks(
    problem: Problem | None, config: Settings, world: World, stop: Deadline, first: presolve.FirstAnswer | None
) -> tuple[DividedProblem, UnscatteredProblem | None]:
    """Return the problem as this rank knows it, and what rank 0 still has to scatter if it alone has the problem.

    Parameters
    ----------
    problem
        The problem; None on other ranks if rank 0 alone has it.
    config
        Settings of the run.
    world
        The ranks.
    stop
        Deadline of the run.
    first
        The answer that was found before, if there is one.
    """
    rank_0_only = any(world.allgather(problem is None))
    if problem is not None and not rank_0_only:
        return divide_problem(problem, config, world, stop, first), None
    unscattered = prepare_scattering(problem, config, world, stop, first)
    return unscattered.parts, unscattered


def _rank_view(
    index: agent_files.AgentIndex,
    own_parts: Mapping[int, Problem],
    config: Settings,
    arithmetic: Arithmetic,
    magnitudes: tuple[list[Number], list[Number]],
) -> DividedProblem:
    """Return the problem of a rank that has some agents' parts."""
    problem, division = rank_view_of(index, own_parts)
    division.__dict__["magnitudes"] = magnitudes
    presolved = presolve.Presolved(presolve.OriginalProblem(problem), problem, problem, arithmetic)
    return DividedProblem(presolved, config, division, scattered=True)


def work_deadline(start: float, seconds: float, agents: int) -> float:
    """Return when work has to end (``time.perf_counter``), with time left to collect the agents' results.

    The reserve is 0.1 ms per agent, but at most 5 % of the time budget.

    Parameters
    ----------
    start
        Start of the run (``time.perf_counter``).
    seconds
        The time budget.
    agents
        Number of agents.
    """
    return start + seconds - min(RESULT_SECONDS_PER_AGENT * agents, RESULT_TIME_PART * seconds)


def order_search_budget(seconds: float) -> float:
    """Return how many 64-bit words of bit sets the search for one elimination order may process with a time budget.

    The search works on sets of variables as bit sets. The result is 5 % of the seconds, times 3e8 words per second.
    """
    return ORDER_TIME_PART * seconds * ORDER_WORDS_PER_SECOND


def with_order_search(parts: DividedProblem, world: World, stop: Deadline) -> Division:
    """Return the division with the elimination orders from a file, and with a limit of the search for orders."""
    division, config = parts.division, parts.config
    if config.local.order is not None:
        division = _ordered(division, parts.problem, config.local.order, world)
    if config.budget.time is not None:
        soon = stop.by(time.perf_counter() + PLANNING_TIME_PART * config.budget.time)
        division = division.with_order_budget(order_search_budget(config.budget.time), soon)
    return division


def _ordered(division: Division, problem: Problem, path: str, world: World) -> Division:
    """Return a division whose agents eliminate their variables in the order of a file, which rank 0 reads for all."""
    hidden = [problem.variables[v] for local in division.locals for v in local.hidden]
    positions = world.on_first_rank(lambda: read_order(path, hidden))
    return division.with_elimination_ranks(
        {v: positions[name] for v, name in enumerate(problem.variables) if name in positions}
    )


def temperature_of(option: str | float | Cooling) -> Temperature:
    """Return the configured temperature in the form that samplers take."""
    if isinstance(option, Cooling):
        return Temperature(option.start, option.end, option.schedule)
    return Temperature() if isinstance(option, str) else Temperature.constant(float(option))
