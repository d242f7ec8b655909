"""Solve a problem of one file with a time budget: a first answer, a plan, tables, and their improvement.

The cycle of tables and messages is repeated: the bounds of a cycle show each agent which of its rows (assignments of
its boundary variables) can still be part of a better solution, and the agents improve those rows. The run begins with
the kernels that are compiled; see :mod:`dmcmc.compilation.kernel_supply`.
"""

import time
from dataclasses import replace
from functools import partial
from typing import cast

from msgspec.structs import replace as replace_settings

from dmcmc.anytime.engines.early_engine import EarlyEngine, early_engine
from dmcmc.anytime.local_search import IncumbentSearch, take_known_bound
from dmcmc.anytime.solve_planned_in_time import (
    end_without_tables,
    request_kernels,
    result_without_tables,
    solve_planned_in_time,
)
from dmcmc.compilation.components import SolveTiny, before_plan, first_search_of, soon
from dmcmc.compilation.kernel_supply import KernelSupply, raise_out_of_time
from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.samplers.auto.rates import NOMINAL, load_rates
from dmcmc.samplers.contract import tuning
from dmcmc.solving.first_answer import find_first_answer, result_of_first
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import Watch
from dmcmc.solving.planning.divided_problem import (
    UnscatteredProblem,
    divide_on_ranks,
    soon_proven,
    work_deadline,
)
from dmcmc.solving.planning.plan import Setup, check_time_for_tables, plan, scatter_problem
from dmcmc.solving.planning.presolve import FirstAnswer
from dmcmc.solving.rank_search import begin, has_start, take_start
from dmcmc.solving.warm_start.retained_work import RetainedWork


def solve_in_time(
    problem: Problem | None,
    config: Settings,
    world: World,
    watch: Watch,
    kernels: KernelSupply,
    retained: RetainedWork | None,
    solve_tiny: SolveTiny,
) -> Result | None:
    """Start the clock, find a first answer, divide the problem, find a first incumbent, plan, and improve tables.

    An engine that takes the problem as given searches it from the beginning (:mod:`.engines.early_engine`).

    It also serves runs without a time budget that ask for an external search engine. Called by every rank with the same
    arguments.

    Parameters
    ----------
    problem
        The problem. It may be None on other ranks than 0; rank 0 then sends each rank the parts of its agents.
    config
        Settings of the run.
    world
        The ranks.
    watch
        The observer of the run, given by the caller.
    kernels
        The kernels of the run.
    retained
        Work of earlier runs that may be used again, and receives that of this run; None to keep nothing.
    solve_tiny
        Solves a tiny problem in the way of the run, which compiles its kernels.
    """
    watch = watch.with_handle(handle := watch.handle or RunHandle())
    try:
        with early_engine(problem, config, world.rank) as early:
            return _solve_in_time(problem, config, world, watch, kernels, retained, solve_tiny, early)
    except (OutOfTime, OutOfMemory, MemoryError) as error:
        is_shared = world.size == 1 or (world.is_agreed(error) and not isinstance(error, MemoryError))
        if config.budget.time is None or not (is_shared and world.on_first_rank(lambda: handle.running)):
            raise
        found = None if world.rank else handle.best()
        if isinstance(found, Result) and not isinstance(error, OutOfTime):
            found = replace_settings(found, note=f"out of memory: {error}")
        return cast(Result | None, found)


def _solve_in_time(  # long: the order of a run's steps
    problem: Problem | None,
    config: Settings,
    world: World,
    watch: Watch,
    kernels: KernelSupply,
    retained: RetainedWork | None,
    solve_tiny: SolveTiny,
    early: EarlyEngine | None,
) -> Result | None:
    """Solve a problem with a time budget; ``early`` is the engine that searches the problem as given, on rank 0."""
    seconds, handle = config.budget.time, watch.handle
    assert handle is not None, "solve_in_time makes one"
    sets_before_plan = world.on_first_rank(partial(before_plan, problem, config))
    start, stop, first = time.perf_counter(), watch.stop, None
    if seconds is not None:
        used_soon = world.on_first_rank(partial(soon, problem, config, kernels.compiles_first))
        start += kernels.request(*sets_before_plan, *used_soon)
        kernels.stop = stop = Deadline(work_deadline(start, seconds, 0), cancellation=handle.cancellation)
    early_stop = stop if seconds is None else _before_division(stop, seconds)
    if seconds is not None or world.on_first_rank(partial(_has_start, problem, config)):
        first = world.on_all_ranks(
            partial(_first_answer, problem, config, early_stop, start, watch, kernels, world.rank)
        )
        if early is not None:
            early.take_first_answer(first)
        if problem is not None and first is not None:
            handle.best = partial(result_of_first, problem, first, config, start, world.size)
    can_plan = _are_ready_in_time(kernels, sets_before_plan, early_stop)
    settings = config if can_plan else replace_settings(config, presolve="none")  # presolve needs the kernels of plans
    with handle.deliver_if_late(stop):
        parts, unscattered = divide_on_ranks(problem, settings, world, stop, first)
    parts = parts if retained is None else replace(parts, retained=retained)
    proves_soon = world.on_first_rank(lambda: soon_proven(parts))
    if seconds is not None:
        stop = Deadline(work_deadline(start, seconds, parts.problem.n_agents), cancellation=handle.cancellation)
    search_of = partial(IncumbentSearch, kernels=kernels, early=early)
    with begin(parts, world, stop, start, watch.progress, search_of) as search:
        search.first(may_wait=True)
        take_start(search)
        handle.best = search.best_so_far
        if seconds is not None:
            world.on_first_rank(partial(take_known_bound, search.incumbent, parts))
        if world.on_first_rank(lambda: parts.given.proven_infeasible):
            return result_without_tables(search)
        stop = search.start_engine(stop)
        if search.engine.has_ended_run():
            return result_without_tables(search)
        if seconds is not None and not proves_soon:
            stop = search.delay(request_kernels(search))
        with handle.deliver_if_late(stop):
            try:
                world.on_first_rank(partial(check_time_for_tables, parts.problem, parts.division, world.size, stop))
                if not can_plan:
                    world.on_first_rank(raise_out_of_time)
                setup = _plan(search, unscattered, proves_soon)
            except ResourceError as error:
                if seconds is None or not world.is_agreed(error):
                    raise
                return end_without_tables(search, error)
        if search.engine.has_ended_run():
            return result_without_tables(search)
        return solve_planned_in_time(search, setup, watch, handle, solve_tiny)


def _plan(search: IncumbentSearch, unscattered: UnscatteredProblem | None, proves_soon: bool) -> Setup:
    """Plan the run; the search goes on, because planning uses one core."""
    world, stop = search.world, search.stop
    with search.in_background(low_priority=False):
        planning_deadline, divided, placement = stop.later(tuning.GRACE_SECONDS / 2), search.parts, None
        if unscattered is not None:
            divided, placement = scatter_problem(unscattered, world, planning_deadline)
        speeds = (lambda: NOMINAL) if proves_soon else load_rates
        return plan(divided, world, speeds, planning_deadline, placement)


def _has_start(problem: Problem | None, config: Settings) -> bool:
    """Return whether an assignment is given to start from (rank 0)."""
    return problem is not None and has_start(problem, config)


def _before_division(stop: Deadline, seconds: float) -> Deadline:
    """Return a deadline that leaves time to divide the problem, for a time budget in seconds."""
    return stop.by(stop.until - min(2 * tuning.GRACE_SECONDS, tuning.UNTRIED_SHARE / 2 * seconds))


def _are_ready_in_time(kernels: KernelSupply, sets: list[KernelSet], stop: Deadline) -> bool:
    """Wait for kernels; return whether all ranks have them before the deadline."""
    try:
        kernels.wait(sets, stop)
        return True
    except OutOfTime:
        return False


def _first_answer(
    problem: Problem | None,
    config: Settings,
    stop: Deadline,
    start: float,
    watch: Watch,
    kernels: KernelSupply,
    rank: int,
) -> FirstAnswer | None:
    """Return the answer that rank 0 finds before anything is divided; None on other ranks."""
    if problem is None or rank:
        return None
    is_compiled, can_plan = first_search_of(problem).is_ready, partial(kernels.is_ready, *before_plan(problem, config))
    return find_first_answer(problem, config, stop, start, watch.progress, is_compiled, can_plan)
