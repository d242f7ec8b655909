"""Solve a problem of one file with a time budget: a first answer, a plan, tables, and their improvement.

This file reads from top to bottom in the order of a run. The cycle of tables and messages is repeated: the bounds of a
cycle show each agent which of its rows (assignments of its boundary variables) can still be part of a better solution,
and the agents improve those rows. A run begins with the components that are ready; others join it later.
"""

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace as replace_settings

from dmcmc.anytime.engines.early_engine import EarlyEngine, early_engine
from dmcmc.anytime.local_search import IncumbentSearch, WholeSearches, take_known_bound
from dmcmc.anytime.rank_run import NextPlan, SliceEnd, improve_until_stop
from dmcmc.anytime.run_improvers import prove_whole_problem
from dmcmc.anytime.whole_problem.whole_problem_agent import WholeProblemPart, whole_problem_provider
from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.samplers.auto.rates import NOMINAL, load_rates
from dmcmc.samplers.contract import tuning
from dmcmc.solving.coordinator import OneFile
from dmcmc.solving.first_answer import first_answer_on_ranks, result_of_first
from dmcmc.solving.observe import RunHandle, Watch
from dmcmc.solving.planning.divided_problem import UnscatteredProblem, divide_on_ranks, soon_proven, work_deadline
from dmcmc.solving.planning.plan import Setup, check_time_for_tables, plan, scatter_problem
from dmcmc.solving.planning.presolve import FirstAnswer
from dmcmc.solving.rank_search import begin, take_start
from dmcmc.solving.warm_start.retained_work import RetainedWork

if TYPE_CHECKING:
    from dmcmc.compilation.run_components import RunComponents


def solve_in_time(
    problem: Problem | None,
    config: Settings,
    world: World,
    watch: Watch,
    components: "RunComponents",
    retained: RetainedWork | None,
) -> Result | None:
    """Solve a problem with a time budget; called by every rank with the same arguments.

    An engine that takes the problem as given searches it from the beginning (:mod:`.engines.early_engine`). Runs
    without a time budget that ask for an external search engine come here, too.

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
    components
        The components of the run, which say whether they are ready.
    retained
        Work of earlier runs that may be used again, and receives that of this run; None to keep nothing.
    """
    handle = watch.handle or RunHandle()
    try:
        with early_engine(problem, config, world.rank) as early:
            return _solve(problem, config, world, watch.with_handle(handle), components, retained, early, handle)
    except (OutOfTime, OutOfMemory, MemoryError) as error:
        is_shared = world.size == 1 or (world.is_agreed(error) and not isinstance(error, MemoryError))
        if config.budget.time is None or not (is_shared and world.on_first_rank(lambda: handle.running)):
            raise
        found = None if world.rank else handle.best()
        if isinstance(found, Result) and not isinstance(error, OutOfTime):
            found = replace_settings(found, note=f"out of memory: {error}")
        return cast(Result | None, found)


def _solve(  # long: the order of a run's steps
    problem: Problem | None,
    config: Settings,
    world: World,
    watch: Watch,
    components: "RunComponents",
    retained: RetainedWork | None,
    early: EarlyEngine | None,
    handle: RunHandle,
) -> Result | None:
    """Find a first answer, divide the problem, find an incumbent, and plan; then make and improve tables."""
    seconds, start = config.budget.time, time.perf_counter()
    start += components.begin(problem)
    stop = watch.stop if seconds is None else replace(watch.stop, until=work_deadline(start, seconds, 0))
    components.stop = stop
    soon = stop  # leaves time to divide the problem
    if seconds is not None:
        soon = stop.by(stop.until - min(2 * tuning.GRACE_SECONDS, tuning.UNTRIED_SHARE / 2 * seconds))
    ready = components.is_first_search_ready, components.is_plan_ready
    first = first_answer_on_ranks(problem, config, world, soon, start, watch.progress, *ready)
    if early is not None:
        early.take_first_answer(first)
    if first is not None and problem is not None:
        handle.best = partial(_result_of_first, early, problem, first, config, start, world.size)
    if not components.can_plan_by(soon):
        config = replace_settings(config, presolve="none")
    with handle.deliver_if_late(stop):
        parts, unscattered = divide_on_ranks(problem, config, world, stop, first)  # presolved before
    parts = parts if retained is None else replace(parts, retained=retained)
    proves_soon = world.on_first_rank(lambda: soon_proven(parts))
    if seconds is not None:
        stop = replace(stop, until=work_deadline(start, seconds, parts.problem.n_agents))
    search_of = partial(IncumbentSearch, components=components, early=early)
    with begin(parts, world, stop, start, watch.progress, search_of) as search:
        search.first(may_wait=True)
        take_start(search)
        handle.best = search.best_so_far
        if seconds is not None:
            world.on_first_rank(partial(take_known_bound, search.incumbent, parts))
        if world.on_first_rank(lambda: parts.given.proven_infeasible):
            return search.result()
        search.start_engine(stop)
        if search.engine.has_ended_run():
            return search.result()
        if seconds is not None and not proves_soon:
            search.delay(components.request_searches(search))
        with handle.deliver_if_late(search.stop):
            try:
                given = parts.problem, parts.division, world.size, search.stop
                world.on_first_rank(partial(check_time_for_tables, *given))
                components.check_plan()
                setup = _plan(search, unscattered, proves_soon)
            except ResourceError as error:
                if seconds is None or not world.is_agreed(error):
                    raise
                return search.result_without_tables(error)
        if search.engine.has_ended_run():
            return search.result()
        return carry_out_in_time(setup, search, watch, components, handle)


def _result_of_first(
    early: EarlyEngine | None, problem: Problem, first: FirstAnswer, config: Settings, start: float, ranks: int
) -> Result:
    """Return the result of a run that ends before it has an incumbent: the first answer, or that of an engine."""
    answer = first if early is None else early.better_answer(first)
    return result_of_first(problem, answer, config, start, ranks)


def _plan(search: IncumbentSearch, unscattered: UnscatteredProblem | None, proves_soon: bool) -> Setup:
    """Plan the run; the search goes on, because planning uses one core."""
    world, stop = search.world, search.stop
    with search.in_background(low_priority=False):
        planning_deadline, divided, placement = stop.later(tuning.GRACE_SECONDS / 2), search.parts, None
        if unscattered is not None:
            divided, placement = scatter_problem(unscattered, world, planning_deadline)
        speeds = (lambda: NOMINAL) if proves_soon else load_rates
        return plan(divided, world, speeds, planning_deadline, placement)


def carry_out_in_time(
    setup: Setup, search: IncumbentSearch, watch: Watch, components: "RunComponents", handle: RunHandle
) -> Result | None:
    """Make tables, combine and improve them, unless an engine or the bound of the whole problem ends the run before."""
    world, timed, whole_problem, gpu, next_plan = search.world, search.parts.timed, None, None, None
    provider = world.on_first_rank(partial(whole_problem_provider, setup))
    if timed:
        with handle.deliver_if_late(search.stop):
            setup, seconds, gpu, goes_on_with_gpu = components.open_gpu(setup, watch.progress, search, provider)
        search.delay(seconds)
        provider = world.on_first_rank(partial(whole_problem_provider, setup))
        if gpu is not None and goes_on_with_gpu:
            slice_end = SliceEnd(search.stop.cancellation, gpu.loaded)
            next_plan = NextPlan(partial(search.engine.next_plan, gpu.next_plan), slice_end)
            search.cancel_by(slice_end)
    methods = components.of_plan(setup, search, provider, gpu)
    if timed and not setup.will_prove:
        methods.request()
    if provider is not None:
        whole_problem = WholeProblemPart(world, search.incumbent, WholeSearches(world, search), provider)
        begin = partial(whole_problem.start, setup.with_stop(search.stop))
    with handle.deliver_if_late(search.stop):
        try:
            backend = setup.with_stop(search.stop).backend
            waits = timed and search.engine.name and not setup.will_prove and not methods.are_ready()
            if (waits and search.engine.searches_first(setup)) or (
                whole_problem is not None and prove_whole_problem(search, backend, methods, whole_problem, begin)
            ):
                watch.planned(setup)
                return search.result()
            methods.wait(search.stop)
        except OutOfTime as error:
            return search.result_without_tables(error)
    if not timed and not setup.will_prove:
        components.request_searches(search)
    methods.request()
    setup = search.engine.assign_cores(setup)
    stop = search.delay(world.on_first_rank(partial(watch.planned, setup)))
    return improve_until_stop(
        setup.with_stop(stop), OneFile(search), search, watch, methods.is_ready, whole_problem, next_plan
    )
