"""The whole path: Problem → first incumbent → agents' local problems → tables → UTIL up → VALUE down → Result.

The same code runs in one process and on every rank of a run. With a time budget the middle is repeated: what a cycle
has proven tells every agent which of its rows can still matter, and the agents improve those.
"""

import time
from collections.abc import Callable
from functools import partial

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.memory_shares import bytes_of_tables
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.inference.runtime.memory import ACCOUNT, resident_memory
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run.compilation.compile_ahead import (
    solving_is_compiled,
    warm_up_chains,
    warm_up_filtering,
    warm_up_orders,
    warm_up_planning,
    warm_up_search,
    warm_up_solving,
    warm_up_weighing,
)
from dmcmc.run.compilation.prepare_gpu import settled, warm_up_gpu
from dmcmc.run.initial_incumbent import begin
from dmcmc.run.initial_tables import team_of
from dmcmc.run.local_search import Search
from dmcmc.run.monitoring.interrupt import Ending, Interrupt
from dmcmc.run.monitoring.progress import Progress, Silent
from dmcmc.run.planning.combination_plan import will_prove
from dmcmc.run.planning.divided_problem import Deal, Divided, dealing, divided, end_of, sharing_memory, soon_proven
from dmcmc.run.planning.plan import deal_out, plan
from dmcmc.run.planning.setup import Setup
from dmcmc.run.rank_run import Run
from dmcmc.samplers.auto.rates import NOMINAL, Rates, load_rates

_GRACE = 0.25  # seconds beyond the time budget for a plan


def solve(
    problem: Problem | None,
    config: Settings,
    world: World | None = None,
    progress: Progress | None = None,
    explain: Callable[[Setup], None] | None = None,
    ending: Ending | None = None,
) -> Result | None:
    """Solve a problem; called by every rank with the same arguments.

    Parameters
    ----------
    problem
        What to solve. None on other ranks where rank 0 alone has it: it hands each rank its own agents' parts.
    config
        How.
    world
        The ranks, from :func:`dmcmc.mpi.world.connect`; this process alone if None.
    progress
        Told how far this rank is, and on rank 0 each point of the result's trace when it is reached.
    explain
        Called on rank 0 with what was chosen, before the work begins; and again if some agents had to change.
    ending
        How a caller that hears signals itself ends the run early. Without it, the first Ctrl-C ends a run that has a
        time budget with the best so far, and is raised where there is none.

    Returns
    -------
    Result or None
        The result on rank 0, None on the others.

    Raises
    ------
    DmcmcError
        If a table does not fit the memory, or a method is not known; on every rank alike. After any other error of
        one rank, the others raise :class:`dmcmc.mpi.world.FailedElsewhere`, or are ended when that rank ends.
    """
    world, progress = world or World(), progress or Silent()
    told = explain if explain is None or world.rank == 0 else _ignore
    try:
        config = sharing_memory(config, world)
        tables = 0 if problem is None else bytes_of_tables(problem)
        with ACCOUNT.open(config.budget.bytes, resident_memory() - tables):
            return _solve(problem, config, world, progress, told, ending)
    except BaseException as error:
        world.give_up(error)
        raise


def _ignore(setup: Setup) -> None:
    pass


def _seconds_of(explain: Callable[[Setup], None], setup: Setup) -> float:
    """Say what was chosen; return what that took, which is not the run's time."""
    start = time.perf_counter()
    explain(setup)
    return time.perf_counter() - start


def _nominal() -> Rates:
    return NOMINAL


def _solve(
    problem: Problem | None,
    config: Settings,
    world: World,
    progress: Progress,
    explain: Callable[[Setup], None] | None,
    ending: Ending | None,
) -> Result | None:
    """Divide, start the clock, find a first incumbent, plan, and go through the cycles."""
    seconds, watching = config.budget.time, ending or Ending()
    stop = NO_STOP if ending is None else Stop(wish=ending.wish)
    warm_up_planning(problem, config, world, progress)
    start = time.perf_counter()
    parts, deal = _divided(problem, config, world, stop)
    start += warm_up_search(parts, world, progress)
    later = world.decided(lambda: soon_proven(parts))  # what else may be used is compiled when it is needed
    if seconds is not None:
        if not later:
            start += warm_up_weighing(config, world, progress)
            start += warm_up_chains(parts, world, progress)
            start += warm_up_orders(parts, world, progress)  # the whole problem's is looked for first
        stop = Stop(end_of(start, seconds, parts.problem.n_agents), wish=watching.wish)
    with begin(parts, world, stop, start, progress, may_wait=True) as search:
        search.unready = partial(warm_up_chains, parts, world, progress) if later else None
        watching.best = search.best_so_far
        if world.decided(lambda: parts.asked.refuted):
            return search.best_so_far() if world.rank == 0 else None
        stop = search.engage(stop)
        with watching.watched(stop):
            try:
                with search.beside(behind=False):  # planning uses one core
                    late = stop.later(_GRACE)
                    placed = None
                    if deal is not None:
                        search.parts, placed = deal_out(deal, world, late)
                    setup = plan(search.parts, world, _nominal if later else load_rates, late, placed)
            except ResourceError as error:
                if seconds is None or not world.is_agreed(error):
                    raise
                return search.without_tables(error)
        if search.engine.won():
            return search.early()
        return _from_tables_to_result(search, setup, progress, explain, ending)


def _divided(problem: Problem | None, config: Settings, world: World, stop: Stop) -> tuple[Divided, Deal | None]:
    """Return the problem as this rank knows it, and what is still to be handed out where rank 0 alone has it."""
    lacking = any(world.allgather(problem is None))
    if problem is not None and not lacking:
        return divided(problem, config, world, stop), None
    deal = dealing(problem, config, world)
    return deal.parts, deal


def _from_tables_to_result(
    search: Search, setup: Setup, progress: Progress, explain: Callable[[Setup], None] | None, ending: Ending | None
) -> Result | None:
    """Make tables, combine and improve them, unless a search engine beside it is through first."""
    world, timed, watching = search.world, search.parts.timed, ending or Ending()
    tiny = partial(solve, ending=Ending()) if search.stoppable else solve
    begun = time.perf_counter()
    if timed and search.engine.name and not will_prove(setup) and not solving_is_compiled(setup, world, True):
        search.engine.compiled(setup, progress)
        search.delay(time.perf_counter() - begun)
        with watching.watched(search.stop):
            if search.engine.tries_first(setup):  # then nothing else has to be compiled
                (explain or _ignore)(setup)
                return search.early()
    with search.compiling():
        warming = warm_up_solving(setup, world, progress, tiny, search.stoppable)
        if not will_prove(setup) and not search.plain:
            warming += warm_up_chains(setup, world, progress)
            search.unready = None
        warming += warm_up_filtering(setup, world, progress)
        warming += search.engine.compiled(setup, progress)
        if timed:
            warming += warm_up_gpu(setup, world, progress)
            setup = settled(setup)
        stop = search.delay(warming)
        setup = search.engine.settle(setup)
    if explain is not None:
        stop = search.delay(world.decided(partial(_seconds_of, explain, setup)))
    armed = timed and ending is None
    with watching.watched(stop), Interrupt(stop, armed=armed), team_of(setup, world) as team:
        run = Run(setup.ending(stop), world, search, progress, explain or _ignore, team)
        watching.best = run.best_so_far
        try:
            run.first_tables()
            while not run.enough:
                cycle = run.combine()
                directive = run.agree(cycle)
                if directive.stop:
                    break
                run.improve(directive)
        except (OutOfTime, OutOfMemory) as error:
            run.give_up(error)
        return run.result()
