"""The main loop of a run with a time budget: make tables, then combine and improve them in turn."""

from collections.abc import Callable
from functools import partial

from dmcmc.anytime.local_search import IncumbentSearch
from dmcmc.anytime.rank_run import RankRun, keep_for_next_run
from dmcmc.anytime.union_part import UnionPart
from dmcmc.anytime.whole_searches import WholeSearches
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.results.result import Result
from dmcmc.solving.coordinator import Coordinator
from dmcmc.solving.local_tables import team_of
from dmcmc.solving.monitoring.interrupt import Interrupt, RunHandle
from dmcmc.solving.monitoring.progress import Watch
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.rank_tables import RankTables


def improve_until_stop(
    setup: Setup,
    coordinator: Coordinator,
    search: IncumbentSearch | None,
    watch: Watch,
    is_ready: Callable[[str], bool],
    union: UnionPart | None = None,
    next_plan: Callable[[], Setup | None] | None = None,
) -> Result | None:
    """Make the agents' tables, and combine and improve them in turn until the goal or the deadline.

    Parameters
    ----------
    setup
        The plan; its backend has the deadline.
    coordinator
        How the ranks agree on the answer.
    search
        This rank's search over the whole assignment; None if no rank knows the whole problem.
    watch
        The observer of the run, given by the caller. Ctrl-C is left to a caller that handles signals.
    is_ready
        Returns whether an improver, given by its name, has its kernels on this rank.
    union
        This rank's part of the union of all agents, which may already have a bound; None if that is not bounded.
    next_plan
        Returns a plan by which to go on, once it can be carried out, otherwise None; called by all ranks after each
        combination. None if there is no other plan.
    """
    searches = WholeSearches(coordinator.world, search)
    world, handle, stop = coordinator.world, watch.handle or RunHandle(), setup.backend.stop
    interrupt = Interrupt(stop, armed=setup.timed and not watch.handles_signals)
    with handle.deliver_if_late(stop), interrupt, team_of(setup, world, coordinator.private) as team:

        def improve(plan: Setup) -> Setup | Result | None:
            """Make and improve tables by a plan, from the best assignment and bound so far.

            Return the result, or the plan by which to go on.
            """
            part = union if plan is setup or union is None else union.anew()
            run = RankRun(RankTables(plan, world, team), coordinator, searches, watch, part)
            handle.best, run.work.is_ready = partial(coordinator.best_so_far, run.tables), is_ready
            try:
                run.first_tables()
                while not run.goal_reached:
                    directive = run.agree(run.combine())
                    if directive.stop:
                        break
                    better = None if next_plan is None or plan is not setup else next_plan()
                    if better is not None:
                        return better.with_stop(stop)
                    run.improve(directive)
            except (OutOfTime, OutOfMemory) as error:
                run.give_up(error)
            run.check_gpu_bounds()
            world.on_all_ranks(partial(keep_for_next_run, run.tables, run.union))
            return run.result()

        plan: Setup = setup
        while True:
            try:
                outcome = improve(plan)
            except Exception as error:
                outcome = plan.without_gpu(error, world)
            if not isinstance(outcome, Setup):
                return outcome
            plan = outcome
