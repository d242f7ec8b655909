"""Solve a problem with a fixed amount of work: plan, local tables, UTIL and VALUE messages, answer and bound.

The same code runs in one process and on every rank of a run, on a problem of one file and on private inputs. How the
ranks agree on the answer is defined by a :class:`.coordinator.Coordinator`. There is no clock here. A run with a time
budget (:mod:`dmcmc.anytime.rank_run`) makes and combines the same tables, and then improves them.
"""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.solving.coordinator import Coordinator, CycleReport, OneFile, row_filter
from dmcmc.solving.first_answer import first_answer_on_ranks
from dmcmc.solving.local_tables import exact_tables, team_of
from dmcmc.solving.observe import UNWATCHED, Watch
from dmcmc.solving.planning.divided_problem import divide_on_ranks
from dmcmc.solving.planning.plan import Setup, plan, scatter_problem
from dmcmc.solving.pruning import prune
from dmcmc.solving.rank_search import RankSearch, begin, take_start
from dmcmc.solving.rank_tables import RankTables
from dmcmc.solving.warm_start.retained_work import RetainedWork


def solve_fixed_work(
    problem: Problem | None,
    config: Settings,
    world: World,
    watch: Watch = UNWATCHED,
    retained: RetainedWork | None = None,
) -> Result | None:
    """Solve a problem that rank 0 knows as a whole; called by every rank.

    Parameters
    ----------
    problem
        The problem. It may be None on other ranks than 0; rank 0 then sends each rank the parts of its agents.
    config
        Settings of the run, without a time budget.
    world
        The ranks.
    watch
        The observer of the run, given by the caller.
    retained
        Work of earlier runs that may be used again, and receives that of this run; None to keep nothing.

    Returns
    -------
    Result or None
        The result on rank 0, None on the others.
    """
    start, stop = time.perf_counter(), watch.stop
    first = first_answer_on_ranks(problem, config, world, stop, start, watch.progress)
    divided, unscattered = divide_on_ranks(problem, config, world, stop, first)  # presolved before
    divided = divided if retained is None else replace(divided, retained=retained)
    search = begin(divided, world, stop, start, watch.progress, RankSearch)
    search.first(may_wait=True)
    take_start(search)
    if watch.handle is not None:
        watch.handle.best = search.best_so_far
    if world.on_first_rank(lambda: divided.given.proven_infeasible):
        return search.best_so_far() if world.rank == 0 else None
    placement = None
    if unscattered is not None:
        divided, placement = scatter_problem(unscattered, world, stop)
    setup = plan(divided, world, stop=stop, placed=placement).with_stop(stop)
    return carry_out(setup, OneFile(search), watch, search.overlapped.overlapping())


def carry_out(
    setup: Setup,
    coordinator: Coordinator,
    watch: Watch = UNWATCHED,
    overlapped: AbstractContextManager[None] | None = None,
) -> Result | None:
    """Make the agents' tables, combine them until that proves nothing more, and return the result on rank 0.

    Parameters
    ----------
    setup
        The plan.
    coordinator
        How the ranks agree on the answer.
    watch
        The observer of the run, given by the caller.
    overlapped
        Work for the time in which a GPU makes the tables; None if there is none.
    """
    coordinator.incumbent.delay(watch.planned(setup))
    try:
        return _make_and_combine(setup, coordinator, overlapped or nullcontext(), watch)
    except Exception as error:
        plan_on_cpu = setup.without_gpu(error, coordinator.world)
    return _make_and_combine(plan_on_cpu, coordinator, nullcontext(), watch)


def _make_and_combine(
    setup: Setup, coordinator: Coordinator, overlapped: AbstractContextManager[None], watch: Watch
) -> Result | None:
    """Carry out a plan; return the result on rank 0."""
    progress = watch.progress
    with team_of(setup, coordinator.world, coordinator.private) as team:
        tables = RankTables(setup, coordinator.world, team)
        coordinator.take_plan(tables)
        try:
            progress.stage("searching")
            coordinator.search_before_tables(tables)
            progress.stage("local tables", len(tables.mine))
            with overlapped:
                exact = exact_tables(setup, team, coordinator.world, coordinator.best, progress.advance)
                tables.make(exact, coordinator.best, progress.advance)
            if tables.setup is not setup:  # an elimination was given up
                coordinator.incumbent.setup = tables.setup
                watch.planned(tables.setup)
                coordinator.search_before_tables(tables)
            coordinator.name_sources(tables.improvers)
            rows_removed, is_finished = True, coordinator.gap_is_met(tables)
            while not is_finished:
                progress.stage(tables.combining_title)
                cycle = tables.combine(row_filter=row_filter(coordinator, tables))
                coordinator.record(cycle, tables.sides)
                cutoffs = coordinator.conclude(tables, CycleReport.of(tables, cycle, rows_removed))
                is_finished = cutoffs is None
                if cutoffs is not None:
                    rows_removed = prune(tables, cutoffs)
                    coordinator.name_sources([])
        except ResourceError as error:
            coordinator.give_up(error, tables)
        return coordinator.result(tables)
