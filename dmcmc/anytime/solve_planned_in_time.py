"""Request the kernels of a plan in a run with a time budget, then make and improve the tables of its agents."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain

from dmcmc.anytime.director import Director
from dmcmc.anytime.improvers import registry
from dmcmc.anytime.improvers.protocol import RankState, TimeSlice
from dmcmc.anytime.local_search import IncumbentSearch, WholeSearches
from dmcmc.anytime.rank_run import improve_until_stop
from dmcmc.anytime.run_improvers import WholeProblemPart, improve_agents
from dmcmc.anytime.scheduler.proposal import Directive, MeasuredGain, Needs
from dmcmc.anytime.scheduler.scheduler import Scheduler
from dmcmc.anytime.whole_problem.whole_problem_agent import exchange_nodes, whole_problem_provider
from dmcmc.compilation.components import AgentKernels, SolveTiny, agent_work, constraint_search, for_improvers
from dmcmc.compilation.gpu_components import prepare_gpu
from dmcmc.compilation.kernel_supply import ConcurrentWork
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.runtime.threads import cores
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.registry import own_engine
from dmcmc.solving.coordinator import OneFile
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import Watch
from dmcmc.solving.planning.plan import Setup


def solve_planned_in_time(
    search: IncumbentSearch, setup: Setup, watch: Watch, handle: RunHandle, solve_tiny: SolveTiny
) -> Result | None:
    """Make tables, combine and improve them, unless an external search engine in the background finishes first."""
    world, timed, kernels = search.world, search.parts.timed, search.kernels
    whole_problem = world.on_first_rank(partial(whole_problem_provider, setup))
    needed = world.bcast(
        agent_work(setup, "none" if search.stop is NO_DEADLINE else "deadline", solve_tiny, whole_problem)
    )
    tables, later = needed.tables, for_improvers(setup, needed)
    if timed and not setup.will_prove:
        search.delay(kernels.request(*needed.before_tables, at_once=True))
        search.delay(kernels.request(*tables, *chain.from_iterable(later.values())))
    if timed and search.engine.name and not setup.will_prove and not kernels.all_ready(*tables):
        with handle.deliver_if_late(search.stop):
            if search.engine.searches_first(setup):  # it has finished: no tables are needed
                watch.planned(setup)
                return result_without_tables(search)
    part = (
        None
        if whole_problem is None
        else WholeProblemPart(world, search.incumbent, WholeSearches(world, search), whole_problem)
    )
    with handle.deliver_if_late(search.stop):
        try:
            if part is not None and _is_proven_before_tables(search, setup, needed, part):
                watch.planned(setup)
                return result_without_tables(search)
            search.delay(kernels.wait(tables, search.stop, waiting_search(search)))
        except OutOfTime as error:
            return end_without_tables(search, error)
    if not timed and not setup.will_prove:
        request_kernels(search)
    search.delay(kernels.request(*chain.from_iterable(later.values())))
    later_on_gpu: dict[str, list[KernelSet]] = {}
    next_plan: Callable[[], Setup | None] | None = None
    if timed:
        with handle.deliver_if_late(search.stop):
            prepared = prepare_gpu(setup, world, watch.progress, kernels, waiting_search(search))
        setup, seconds, later_on_gpu, next_plan = prepared
        search.delay(seconds)
    setup = search.engine.assign_cores(setup)
    stop = search.delay(world.on_first_rank(partial(_seconds_of, watch.planned, setup)))
    is_ready = partial(kernels.is_ready_for, needed=(later, later_on_gpu))
    return improve_until_stop(
        setup.with_stop(stop), OneFile(search), search, watch.with_handle(handle), is_ready, part,
        None if next_plan is None else partial(_with_cores, search, next_plan),
    )  # fmt: skip


def _is_proven_before_tables(
    search: IncumbentSearch, setup: Setup, needed: AgentKernels, whole_problem: WholeProblemPart
) -> bool:
    """Bound and search the whole problem, in turn with the local search, until the agents' kernels are compiled.

    Return whether this has reached the goal of the run; called by all ranks.
    """
    world, kernels = search.world, search.kernels
    setup = setup.with_stop(search.stop)
    is_ready = partial(kernels.is_ready_for, needed=(for_improvers(setup, needed),))
    improvers = [one for one in registry.create(timed=True) if one.properties.needs is Needs.CORE]
    director, gains = Director(search.incumbent, Scheduler((0,), registry.declared(improvers))), list[MeasuredGain]()

    def improve_union() -> bool:
        """Bound or search the whole problem for a time slice; return whether there was anything to do (rank 0)."""
        if whole_problem.is_waiting:
            whole_problem.start(setup)
        agent, best = whole_problem.agent, search.incumbent.values if search.incumbent.feasible else None
        assert agent is not None, "it has been started"
        state = RankState({agent.number: agent.agent}, {agent.number: agent.gap}, best, is_ready=is_ready)
        proposals = [replace(one, awaited=True) for one in registry.proposals_of(improvers, state)]
        directive = Directive(False, allocations=director.decide_on_whole_problem(proposals, gains), best=best)
        time_slice = agent.added_to(TimeSlice({}, lambda agent: None, setup.backend))
        gains[:] = improve_agents(improvers, time_slice, directive).gains
        whole_problem.record(agent, exchange_nodes(World(), agent), directive.improvers)
        return bool(directive.allocations)

    if not kernels.all_ready(*needed.tables):
        search.delay(kernels.wait(needed.before_tables[:1], search.stop, waiting_search(search)))
    while not kernels.all_ready(*needed.tables):
        start = time.perf_counter()
        works = world.on_first_rank(improve_union)
        if world.on_first_rank(lambda: search.incumbent.reached):
            return True
        if not works or any(world.allgather(search.stop.over)):
            break
        if search.chains_are_ready():
            search.improve_while_it_pays(world.bcast(time.perf_counter() - start))
    return False


def _with_cores(search: IncumbentSearch, next_plan: Callable[[], Setup | None]) -> Setup | None:
    """Return the next plan of the run, with the cores that an engine in the background leaves."""
    setup = next_plan()
    return None if setup is None else search.engine.assign_cores(setup)


def request_kernels(search: IncumbentSearch) -> float:
    """Compile the kernels of searches in the background; return the seconds that do not count as run time."""
    sets = list(own_engine(search.engine.name))
    if search.searches and not search.decodes_only and search.components is not None:
        sets += [*search.components, *([constraint_search()] if search.quality.negated_violation < 0 else [])]
    return search.kernels.request(*sets)


def waiting_search(search: IncumbentSearch) -> ConcurrentWork:
    """Return the search in the background as work for the time in which the run waits for other kernels.

    The compiler goes first. Where both have one core, the search is brief.
    """
    chains = search.world.bcast(None if search.components is None else search.components.chains)
    brief_seconds = tuning.UNNOTICED_SHARE * max(0.0, search.stop.left)
    return ConcurrentWork(
        chains, partial(search.in_background, cores() > 1, low_priority=True, brief_seconds=brief_seconds)
    )


def result_without_tables(search: IncumbentSearch) -> Result | None:
    """Return the result before there are tables, on rank 0; None on other ranks."""
    return search.best_so_far() if search.world.rank == 0 else None


def end_without_tables(search: IncumbentSearch, error: ResourceError) -> Result | None:
    """Search until the time is over, because no plan fits the resources; return the result on rank 0."""
    search.incumbent.give_up(error)
    if search.engine.process is not None:
        search.engine.process.begin()  # if it has not started
    search.use_remaining_time()
    return result_without_tables(search)


def _seconds_of(planned: Callable[[Setup], object], setup: Setup) -> float:
    """Show the plan; return the seconds that this took, which do not count as run time."""
    start = time.perf_counter()
    planned(setup)
    return time.perf_counter() - start
