"""Solve a problem of one file with a time budget: a first answer, a plan, tables, and their improvement.

The cycle of tables and messages is repeated: the bounds of a cycle show each agent which of its rows (assignments of
its boundary variables) can still be part of a better solution, and the agents improve those rows. The run begins with
the kernels that are compiled; see :mod:`dmcmc.run.compilation.kernel_supply`.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain

from msgspec.structs import replace as replace_settings

from dmcmc.anytime.early_engine import EarlyEngine
from dmcmc.anytime.improvers.background_search import has_many_constraints, wanted
from dmcmc.anytime.known_bound import take_known_bound
from dmcmc.anytime.local_search import IncumbentSearch
from dmcmc.anytime.rank_run import RankRun, keep_for_next_run
from dmcmc.anytime.union.union_plan import union_provider
from dmcmc.anytime.whole_searches import WholeSearches
from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run.compilation import agent_kernel_sets, kernel_sets
from dmcmc.run.compilation.agent_kernel_sets import SolveTiny
from dmcmc.run.compilation.kernel_sets import KernelSet
from dmcmc.run.compilation.kernel_supply import ConcurrentWork, KernelSupply, raise_out_of_time
from dmcmc.run.compilation.prepare_gpu import prepare_gpu
from dmcmc.samplers.auto.rates import NOMINAL, Rates, load_rates
from dmcmc.solving.coordinator import Coordinator, OneFile
from dmcmc.solving.first_answer import find_first_answer
from dmcmc.solving.local_tables import team_of
from dmcmc.solving.monitoring.interrupt import Interrupt, RunHandle
from dmcmc.solving.monitoring.progress import Watch
from dmcmc.solving.planning.affordable import check_time_for_tables
from dmcmc.solving.planning.divided_problem import (
    DividedProblem,
    UnscatteredProblem,
    divide_on_ranks,
    soon_proven,
    work_deadline,
)
from dmcmc.solving.planning.plan import plan, scatter_problem
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.presolve.presolve_problem import FirstAnswer
from dmcmc.solving.rank_search import begin, has_start, take_start
from dmcmc.solving.rank_tables import RankTables
from dmcmc.solving.warm_start.retained_work import RetainedWork

# Part of the time budget, and seconds at most, in which a problem is divided whose plan has no kernels in time
_DIVISION_PART = 0.05
_MAX_DIVISION_SECONDS = 1.0
_PLANNING_GRACE = 0.25  # seconds after the deadline in which the plan may still be finished


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

    An engine that takes the problem as given searches it from the beginning (:mod:`dmcmc.anytime.early_engine`).

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
    with _early_engine(problem, config, world) as early:
        return _solve_in_time(problem, config, world, watch, kernels, retained, solve_tiny, early)


def _early_engine(
    problem: Problem | None, config: Settings, world: World
) -> AbstractContextManager[EarlyEngine | None]:
    """Return the engine that searches the problem as given from the beginning of a timed run, on rank 0; or None."""
    seconds = config.budget.time
    if world.rank or problem is None or seconds is None or not wanted(config) or not has_many_constraints(problem):
        return nullcontext()
    return EarlyEngine(problem, config, time.perf_counter() + seconds)


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
    seconds, handle = config.budget.time, watch.handle or RunHandle()
    sets_for_plan = world.on_first_rank(partial(_sets_for_plan, problem, config))
    start, stop, first = time.perf_counter(), watch.stop, None
    if seconds is not None:
        start += kernels.request(*sets_for_plan, *world.on_first_rank(partial(_sets_for_chains, problem, config)))
        stop = Deadline(work_deadline(start, seconds, 0), cancellation=handle.cancellation)
    soon = stop if seconds is None else _before_division(stop, seconds)
    if seconds is not None or world.on_first_rank(partial(_has_start, problem, config)):
        first = world.on_all_ranks(partial(_first_answer, problem, config, soon, start, watch, kernels, world.rank))
        if early is not None:
            early.take_first_answer(first)
    can_plan = _are_ready_in_time(kernels, sets_for_plan, soon)
    settings = config if can_plan else replace_settings(config, presolve="none")  # presolve needs the kernels of plans
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
            return _result_without_tables(search)
        stop = search.start_engine(stop)
        if search.engine.has_ended_run():
            return _result_without_tables(search)
        if seconds is not None and not proves_soon:
            stop = search.delay(
                kernels.request(*world.bcast(agent_kernel_sets.bounds(parts)))
                + kernels.request(*_sets_for_searches(search))
            )
        with handle.deliver_if_late(stop):
            try:
                world.on_first_rank(partial(check_time_for_tables, parts.problem, parts.division, world.size, stop))
                if not can_plan:
                    world.on_first_rank(raise_out_of_time)
                setup = _plan(search, unscattered, proves_soon)
            except ResourceError as error:
                if seconds is None or not world.is_agreed(error):
                    raise
                return _end_without_tables(search, error)
        if search.engine.has_ended_run():
            return _result_without_tables(search)
        return _solve_planned(search, setup, watch, handle, solve_tiny)


def _plan(search: IncumbentSearch, unscattered: UnscatteredProblem | None, proves_soon: bool) -> Setup:
    """Plan the run once the kernels for that are compiled; the search goes on, because planning uses one core."""
    world, kernels, stop = search.world, search.kernels, search.stop
    if search.parts.timed and not proves_soon:
        stop = search.delay(
            kernels.wait(_sets_for_large_plan(search.parts, world), stop, _search_while_waiting(search))
        )
    with search.in_background(low_priority=False):
        planning_deadline, placement = stop.later(_PLANNING_GRACE), None
        if unscattered is not None:
            search.parts, placement = scatter_problem(unscattered, world, planning_deadline)
        speeds = _nominal if proves_soon or not kernels.all_ready(kernel_sets.rates()) else load_rates
        return plan(search.parts, world, speeds, planning_deadline, placement)


def _solve_planned(
    search: IncumbentSearch, setup: Setup, watch: Watch, handle: RunHandle, solve_tiny: SolveTiny
) -> Result | None:
    """Make tables, combine and improve them, unless an external search engine in the background finishes first."""
    world, timed, kernels = search.world, search.parts.timed, search.kernels
    union = world.on_first_rank(partial(union_provider, setup))
    needed = world.bcast(
        agent_kernel_sets.agent_work(setup, "none" if search.stop is NO_DEADLINE else "deadline", solve_tiny, union)
    )
    tables = needed.tables
    if timed and search.engine.name and not setup.will_prove and not kernels.all_ready(*tables):
        kernels.request(*tables)
        with handle.deliver_if_late(search.stop):
            if search.engine.searches_first(setup):  # it has finished: no tables are needed
                watch.planned(setup)
                return _result_without_tables(search)
    with handle.deliver_if_late(search.stop):
        try:
            search.delay(kernels.wait(tables, search.stop, _search_while_waiting(search)))
        except OutOfTime as error:
            return _end_without_tables(search, error)
    later = agent_kernel_sets.for_improvers(setup, needed)
    if not timed and not setup.will_prove:
        kernels.request(*_sets_for_searches(search))
    search.delay(kernels.request(*chain.from_iterable(later.values())))
    later_on_gpu: dict[str, list[KernelSet]] = {}
    if timed:
        with handle.deliver_if_late(search.stop):
            try:
                prepared = prepare_gpu(
                    setup, world, watch.progress, kernels, search.stop, _search_while_waiting(search)
                )
            except OutOfTime as error:
                return _end_without_tables(search, error)
        setup, seconds, later_on_gpu = prepared
        search.delay(seconds)
    setup = search.engine.assign_cores(setup)
    stop = search.delay(world.on_first_rank(partial(_seconds_of, watch.planned, setup)))
    searches, is_ready = WholeSearches(world, search), partial(kernels.is_ready_for, needed=(later, later_on_gpu))
    return improve_until_stop(
        setup.with_stop(stop), OneFile(search), searches, watch.with_handle(handle), is_ready, union
    )


def _result_without_tables(search: IncumbentSearch) -> Result | None:
    """Return the result before there are tables, on rank 0; None on other ranks."""
    return search.best_so_far() if search.world.rank == 0 else None


def _end_without_tables(search: IncumbentSearch, error: ResourceError) -> Result | None:
    """Search until the time is over, because no plan fits the resources; return the result on rank 0."""
    search.incumbent.give_up(error)
    if search.engine.process is not None:
        search.engine.process.begin()  # if it has not started
    search.use_remaining_time()
    return _result_without_tables(search)


def _search_while_waiting(search: IncumbentSearch) -> ConcurrentWork:
    """Return the search in the background as work for the time in which the run waits for other kernels."""
    return ConcurrentWork(search.search_kernels.chains(), partial(search.in_background, low_priority=False))


def improve_until_stop(
    setup: Setup,
    coordinator: Coordinator,
    searches: WholeSearches,
    watch: Watch,
    is_ready: Callable[[str], bool],
    union_provider: str | None = None,
) -> Result | None:
    """Make the agents' tables, and combine and improve them in turn until the goal or the deadline.

    Parameters
    ----------
    setup
        The plan; its backend has the deadline.
    coordinator
        How the ranks agree on the answer.
    searches
        The searches over the whole assignment.
    watch
        The observer of the run, given by the caller. Ctrl-C is left to a caller that handles signals.
    is_ready
        Returns whether an improver, given by its name, has its kernels on this rank.
    union_provider
        Bound provider of the union of all agents; None if that is not bounded.
    """
    world, handle, stop = coordinator.world, watch.handle or RunHandle(), setup.backend.stop
    interrupt = Interrupt(stop, armed=setup.timed and not watch.handles_signals)
    with handle.deliver_if_late(stop), interrupt, team_of(setup, world, coordinator.private) as team:
        run = RankRun(RankTables(setup, world, team), coordinator, searches, watch, union_provider)
        handle.best, run.work.is_ready = partial(coordinator.best_so_far, run.tables), is_ready
        try:
            run.first_tables()
            while not run.goal_reached:
                directive = run.agree(run.combine())
                if directive.stop:
                    break
                run.improve(directive)
        except (OutOfTime, OutOfMemory) as error:
            run.give_up(error)
        world.on_all_ranks(partial(keep_for_next_run, run.tables, run.union))
        return run.result()


def _seconds_of(planned: Callable[[Setup], object], setup: Setup) -> float:
    """Show the plan; return the seconds that this took, which do not count as run time."""
    start = time.perf_counter()
    planned(setup)
    return time.perf_counter() - start


def _nominal() -> Rates:
    """Return nominal speeds, in place of measured ones."""
    return NOMINAL


def _sets_for_plan(problem: Problem | None, config: Settings) -> list[KernelSet]:
    """Return the kernels that a run needs until it has divided the problem, the most important first (rank 0)."""
    assert problem is not None
    return kernel_sets.before_plan(problem, config)


def _sets_for_chains(problem: Problem | None, config: Settings) -> list[KernelSet]:
    """Return the kernels of chains on the problem as given (rank 0)."""
    assert problem is not None
    variant = kernel_sets.SearchVariant.of_given(problem)
    return [] if variant is None or config.local_search == "none" else [kernel_sets.chains(variant)]


def _sets_for_searches(search: IncumbentSearch) -> list[KernelSet]:
    """Return the kernels of the searches over the whole assignment."""
    sets = list(kernel_sets.own_engine(search.engine.name))
    if search.searches and not search.decodes_only:
        sets += kernel_sets.local_search(search.parts)
        if search.quality.negated_violation < 0:
            sets.append(kernel_sets.constraint_search())
    if search.parts.timed:
        sets.append(kernel_sets.rates())
    return sets


def _sets_for_large_plan(parts: DividedProblem, world: World) -> list[KernelSet]:
    """Return the kernels that planning needs in addition, if the problem is large; called by all ranks."""
    needed = world.on_first_rank(lambda: kernel_sets.searches_subtree_orders(parts))
    return [kernel_sets.subtree_orders()] if needed else []


def _has_start(problem: Problem | None, config: Settings) -> bool:
    """Return whether an assignment is given to start from (rank 0)."""
    return problem is not None and has_start(problem, config)


def _before_division(stop: Deadline, seconds: float) -> Deadline:
    """Return a deadline that leaves time to divide the problem, for a time budget in seconds."""
    return stop.by(stop.until - min(_MAX_DIVISION_SECONDS, _DIVISION_PART * seconds))


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
    is_compiled = partial(kernels.is_ready, kernel_sets.first_search_of(problem))
    can_plan = partial(kernels.is_ready, *_sets_for_plan(problem, config))
    return find_first_answer(problem, config, stop, start, watch.progress, is_compiled, can_plan)
