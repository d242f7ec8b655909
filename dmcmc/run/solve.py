"""Solve a problem: initial incumbent, plan, agents' tables, UTIL messages up, VALUE messages down, result.

The same code runs in one process and on every rank of a run. With a time budget, the cycle of tables and messages is
repeated: the bounds of a cycle show each agent which of its rows (assignments of its boundary variables) can still be
part of a better solution, and the agents improve those rows. The run begins with the kernels that are compiled; see
:mod:`dmcmc.run.compilation.kernel_supply`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import msgspec

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.memory_shares import bytes_of_tables
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run.compilation import agent_kernel_sets, kernel_sets
from dmcmc.run.compilation.kernel_sets import KernelSet
from dmcmc.run.compilation.kernel_supply import KernelSupply, raise_out_of_time
from dmcmc.run.compilation.prepare_gpu import prepare_gpu
from dmcmc.run.initial_incumbent import begin, find_first_answer
from dmcmc.run.local_search import IncumbentSearch
from dmcmc.run.rank_run import RankRun
from dmcmc.run.union.union_plan import union_provider
from dmcmc.run.warm_start.retained_work import RetainedWork
from dmcmc.run.warm_start.start_assignment import has_start
from dmcmc.samplers.auto.rates import NOMINAL, Rates, load_rates
from dmcmc.solving.local_tables import team_of
from dmcmc.solving.monitoring.interrupt import Interrupt, RunHandle
from dmcmc.solving.monitoring.progress import NoProgress, ProgressReporter
from dmcmc.solving.planning.affordable import check_time_for_tables
from dmcmc.solving.planning.combination_plan import will_prove
from dmcmc.solving.planning.divided_problem import (
    DividedProblem,
    UnscatteredProblem,
    divide_problem,
    prepare_scattering,
    soon_proven,
    with_memory_limit,
    work_deadline,
)
from dmcmc.solving.planning.plan import plan, scatter_problem
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.presolve.restore_result import FirstAnswer

_PLANNING_GRACE = 0.25  # seconds after the deadline in which the plan may still be finished


def solve(
    problem: Problem | None,
    config: Settings,
    world: World | None = None,
    progress: ProgressReporter | None = None,
    explain: Callable[[Setup], None] | None = None,
    ending: RunHandle | None = None,
    retained: RetainedWork | None = None,
) -> Result | None:
    """Solve a problem; called by every rank with the same arguments.

    Parameters
    ----------
    problem
        The problem. It may be None on other ranks than 0; rank 0 then sends each rank the parts of its agents.
    config
        Settings of the run.
    world
        The ranks, from :func:`dmcmc.mpi.world.connect`; this process alone if None.
    progress
        Receives this rank's progress, and on rank 0 each point of the result's trace as soon as it is reached.
    explain
        Called on rank 0 with the plan before the work begins, and again if some agents' methods had to change.
    ending
        Handle by which a caller that handles signals ends the run early. Without it, the first Ctrl-C ends a run with a
        time budget with the best result so far, and is raised in a run without one.
    retained
        Work of earlier runs that may be used again, and receives that of this run; None to keep nothing.

    Returns
    -------
    Result or None
        The result on rank 0, None on the others.

    Raises
    ------
    DmcmcError
        If a table does not fit the memory or a method is unknown; raised on every rank. After any other error of one
        rank, the others raise :class:`dmcmc.mpi.collective_calls.OtherRankError`, or are ended when that rank ends.
    """
    world, progress = world or World(), progress or NoProgress()
    explain_here = explain if explain is None or world.rank == 0 else _ignore
    try:
        config = with_memory_limit(config, world)
        tables = 0 if problem is None else bytes_of_tables(problem)
        with MEMORY_ACCOUNT.open(config.budget.bytes, resident_memory() - tables):
            return _solve(problem, config, world, progress, explain_here, ending, retained)
    except BaseException as error:
        world.abort_on_exit(error)
        raise


def solve_tiny(problem: Problem, config: Settings, ending: str) -> None:
    """Solve a tiny problem in the way of a run, so that its kernels are compiled.

    Work with a deadline has other kernels than work without one (``ending`` is ``none``).
    """
    solve(problem, config, ending=None if ending == "none" else RunHandle())


def _ignore(setup: Setup) -> None:
    """Ignore the plan."""
    pass


def _seconds_of(explain: Callable[[Setup], None], setup: Setup) -> float:
    """Explain the plan; return the seconds that this took, which do not count as run time."""
    start = time.perf_counter()
    explain(setup)
    return time.perf_counter() - start


def _nominal() -> Rates:
    """Return nominal speeds, in place of measured ones."""
    return NOMINAL


def _solve(
    problem: Problem | None,
    config: Settings,
    world: World,
    progress: ProgressReporter,
    explain: Callable[[Setup], None] | None,
    ending: RunHandle | None,
    retained: RetainedWork | None,
) -> Result | None:
    """Solve a problem with the kernels that are compiled, and those that other processes compile."""
    with KernelSupply(world, config, progress) as kernels:
        result = _divide_and_solve(problem, config, world, progress, explain, ending, kernels, retained)
        seconds = sum(world.allgather(kernels.seconds))
        return None if result is None else msgspec.structs.replace(result, time_compiling=seconds)


def _divide_and_solve(  # long: the order of a run's steps
    problem: Problem | None,
    config: Settings,
    world: World,
    progress: ProgressReporter,
    explain: Callable[[Setup], None] | None,
    ending: RunHandle | None,
    kernels: KernelSupply,
    retained: RetainedWork | None,
) -> Result | None:
    """Start the clock, find a first answer, divide the problem, find a first incumbent, plan, and run the cycles."""
    seconds, handle = config.budget.time, ending or RunHandle()
    stop = NO_DEADLINE if ending is None else Deadline(cancellation=ending.cancellation)
    sets_for_plan = world.on_first_rank(partial(_sets_for_plan, problem, config))
    start, first = time.perf_counter(), None
    if seconds is not None:
        start += kernels.request(*sets_for_plan, *world.on_first_rank(partial(_sets_for_chains, problem, config)))
        stop = Deadline(work_deadline(start, seconds, 0), cancellation=handle.cancellation)
    if seconds is not None or world.on_first_rank(partial(_has_start, problem, config)):
        first = _first_answer(problem, config, world, stop, start, progress, kernels)
    can_plan = _are_ready_in_time(kernels, sets_for_plan, stop)
    parts, unscattered = _divided(problem, config, world, stop, first)
    parts = parts if retained is None else replace(parts, retained=retained)
    proves_soon = world.on_first_rank(lambda: soon_proven(parts))
    if seconds is not None:
        stop = Deadline(work_deadline(start, seconds, parts.problem.n_agents), cancellation=handle.cancellation)
    with begin(parts, world, stop, start, progress, kernels, may_wait=True) as search:
        handle.best = search.best_so_far
        if world.on_first_rank(lambda: parts.given.proven_infeasible):
            return search.best_so_far() if world.rank == 0 else None
        stop = search.start_engine(stop)
        if seconds is not None and not proves_soon:
            stop = search.delay(
                kernels.request(*world.bcast(agent_kernel_sets.bounds(parts))) + search.request_kernels()
            )
        with handle.deliver_if_late(stop):
            try:
                world.on_first_rank(partial(check_time_for_tables, parts.problem, parts.division, world.size, stop))
                if not can_plan:
                    world.on_first_rank(raise_out_of_time)
                if seconds is not None and not proves_soon:
                    stop = search.delay(kernels.wait(_sets_for_large_plan(parts, world), stop, search.concurrent_work))
                with search.in_background(low_priority=False):  # planning uses one core
                    planning_deadline = stop.later(_PLANNING_GRACE)
                    placement = None
                    if unscattered is not None:
                        search.parts, placement = scatter_problem(unscattered, world, planning_deadline)
                    speeds = _nominal if proves_soon or not kernels.all_ready(kernel_sets.rates()) else load_rates
                    setup = plan(search.parts, world, speeds, planning_deadline, placement)
            except ResourceError as error:
                if seconds is None or not world.is_agreed(error):
                    raise
                return search.without_tables(error)
        if search.engine.has_ended_run():
            return search.result_without_tables()
        return _from_tables_to_result(search, setup, progress, explain, ending)


def _sets_for_plan(problem: Problem | None, config: Settings) -> list[KernelSet]:
    """Return the kernels that a run needs until it has divided the problem, the most important first (rank 0)."""
    assert problem is not None
    sets = [kernel_sets.planning(config)]
    if kernel_sets.searches_orders(problem, config.budget.time is not None):
        sets.append(kernel_sets.order_search())
    if config.local_search != "none":
        sets.insert(0, kernel_sets.first_search_of(problem))
    return sets


def _sets_for_chains(problem: Problem | None, config: Settings) -> list[KernelSet]:
    """Return the kernels of chains on the problem as given (rank 0)."""
    assert problem is not None
    variant = kernel_sets.SearchVariant.of_given(problem)
    return [] if variant is None or config.local_search == "none" else [kernel_sets.chains(variant)]


def _sets_for_large_plan(parts: DividedProblem, world: World) -> list[KernelSet]:
    """Return the kernels that planning needs in addition, if the problem is large; called by all ranks."""
    needed = world.on_first_rank(lambda: kernel_sets.searches_subtree_orders(parts))
    return [kernel_sets.subtree_orders()] if needed else []


def _has_start(problem: Problem | None, config: Settings) -> bool:
    """Return whether an assignment is given to start from (rank 0)."""
    return problem is not None and has_start(problem, config)


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
    world: World,
    stop: Deadline,
    start: float,
    progress: ProgressReporter,
    kernels: KernelSupply,
) -> FirstAnswer | None:
    """Return the answer that rank 0 finds before anything is divided; None on other ranks."""

    def answer() -> FirstAnswer | None:
        if problem is None or world.rank:
            return None
        return find_first_answer(problem, config, stop, start, progress, kernels)

    return world.on_all_ranks(answer)


def _divided(
    problem: Problem | None, config: Settings, world: World, stop: Deadline, first: FirstAnswer | None
) -> tuple[DividedProblem, UnscatteredProblem | None]:
    """Return the problem as this rank knows it, and what rank 0 still has to scatter if it alone has the problem."""
    rank_0_only = any(world.allgather(problem is None))
    if problem is not None and not rank_0_only:
        return divide_problem(problem, config, world, stop, first), None
    unscattered = prepare_scattering(problem, config, world, first)
    return unscattered.parts, unscattered


def _from_tables_to_result(
    search: IncumbentSearch,
    setup: Setup,
    progress: ProgressReporter,
    explain: Callable[[Setup], None] | None,
    ending: RunHandle | None,
) -> Result | None:
    """Make tables, combine and improve them, unless an external search engine in the background finishes first."""
    world, timed, handle, kernels = search.world, search.parts.timed, ending or RunHandle(), search.kernels
    union = world.on_first_rank(partial(union_provider, setup))
    needed = world.bcast(
        agent_kernel_sets.agent_work(setup, "deadline" if search.stoppable else "none", solve_tiny, union)
    )
    tables = needed.tables
    if timed and search.engine.name and not will_prove(setup) and not kernels.all_ready(*tables):
        kernels.request(*tables)
        with handle.deliver_if_late(search.stop):
            if search.engine.searches_first(setup):  # it has finished: no tables are needed
                (explain or _ignore)(setup)
                return search.result_without_tables()
    with handle.deliver_if_late(search.stop):
        try:
            stop = search.delay(kernels.wait(tables, search.stop, search.concurrent_work))
        except OutOfTime as error:
            return search.without_tables(error)
    later = agent_kernel_sets.for_improvers(setup, needed)
    if not timed and not will_prove(setup):
        search.request_kernels()
    stop = search.delay(kernels.request(*later.values()))
    if timed:
        with handle.deliver_if_late(search.stop):
            try:
                setup, seconds = prepare_gpu(setup, world, progress, kernels, search.stop, search.concurrent_work)
            except OutOfTime as error:
                return search.without_tables(error)
        stop = search.delay(seconds)
    setup = search.engine.assign_cores(setup)
    if explain is not None:
        stop = search.delay(world.on_first_rank(partial(_seconds_of, explain, setup)))
    armed = timed and ending is None
    with handle.deliver_if_late(stop), Interrupt(stop, armed=armed), team_of(setup, world) as team:
        run = RankRun(setup.with_stop(stop), world, search, progress, explain or _ignore, team)
        handle.best, run.is_ready = run.best_so_far, partial(_is_ready, kernels, later)
        run.bound_union(union)
        try:
            run.first_tables()
            while not run.goal_reached:
                cycle = run.combine()
                directive = run.agree(cycle)
                if directive.stop:
                    break
                run.improve(directive)
        except (OutOfTime, OutOfMemory) as error:
            run.give_up(error)
        return run.result()


def _is_ready(kernels: KernelSupply, sets: Mapping[str, KernelSet], improver: str) -> bool:
    """Return whether an improver has its kernels on this rank."""
    return improver not in sets or kernels.is_ready(sets[improver])
