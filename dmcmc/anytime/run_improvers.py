"""Let improvers work between two cycles: on this rank's agents, on the whole problem, and on its assignment.

``RankRun.improve`` calls :func:`time_slice_of` and :func:`improve_agents` with rank 0's directive. After the next
combination, the rank's proposals and measured gains go to rank 0.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.director import Director
from dmcmc.anytime.improvers import registry
from dmcmc.anytime.improvers.protocol import Improver, RankState, TimeQuantum, TimeSlice, WholeProblemWork
from dmcmc.anytime.scheduler.proposal import Directive, MeasuredGain, Needs, Proposal
from dmcmc.anytime.scheduler.scheduler import Scheduler
from dmcmc.anytime.whole_problem.whole_problem_agent import WholeProblemPart, exchange_nodes
from dmcmc.inference.dpop.agent_step import ChosenValues, UtilMessage
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.mpi.world import World
from dmcmc.results.result import UNION_BOUND
from dmcmc.solving.agent.agent import Agent
from dmcmc.solving.agent_steps import Sides, exported_table
from dmcmc.solving.combine_tables import Cycle
from dmcmc.solving.metrics import gap_at
from dmcmc.solving.pruning import component_roots, outside_rows

if TYPE_CHECKING:
    from dmcmc.anytime.local_search import IncumbentSearch, WholeSearches
    from dmcmc.compilation.run_components import PlanComponents
    from dmcmc.solving.rank_tables import RankTables


class CombinationContext(NamedTuple):
    """The outcome of the last cycle (UTIL and VALUE phase) for this rank's agents.

    Attributes
    ----------
    chosen : dict of ChosenValues
        By agent: its boundary values in the best assignment of the cycle.
    outsides : dict of UtilMessage
        By agent: upper bounds on what all other agents can add to its rows, as tables indexed by ``sides``; empty if
        unknown.
    sides : Sides
        How the agents' tables were indexed.
    """

    chosen: Mapping[int, ChosenValues]
    outsides: Mapping[int, UtilMessage]
    sides: Sides


def time_slice_of(
    tables: "RankTables", context: CombinationContext, directive: Directive, whole: WholeProblemWork
) -> TimeSlice:
    """Return the time slice of this rank: its agents' quanta, and the work on the whole problem.

    Parameters
    ----------
    context
        Outcome of the last cycle.
    directive
        Rank 0's decision, with the cutoff of each component and the allocations.
    whole
        The callbacks for improvers of the whole problem.
    """
    setup, quanta = tables.setup, dict[int, TimeQuantum]()
    roots, stop = component_roots(setup), setup.backend.stop
    for number, agent in tables.agents.items():
        outside = None
        if number in context.outsides and agent.enumerated:
            outside = outside_rows(setup, agent, context.outsides[number], context.sides.upper)
        quanta[number] = TimeQuantum(agent, outside, directive.cutoffs.get(roots[number]))
    backend = replace(setup.backend, stop=stop.by(stop.until - directive.reserved_seconds))
    return TimeSlice(
        quanta,
        partial(agent_gap, setup.divided.arithmetic, context.chosen),
        backend,
        whole,
        None if setup.divided.scattered else setup.divided.problem,
        directive.best,
    )


class AgentWorkDone(NamedTuple):
    """The work that was done for this rank's agents in a slice.

    Attributes
    ----------
    pruned : bool
        Whether rows were pruned.
    gains : list of MeasuredGain
        Costs and gains of the work.
    """

    pruned: bool
    gains: list[MeasuredGain]


def improve_agents(improvers: Sequence[Improver], time_slice: TimeSlice, directive: Directive) -> AgentWorkDone:
    """Do the allocated work for this rank's agents.

    All agents prune the rows that cannot matter any more; then one improver works after the other.
    """
    agents = [quantum.agent for quantum in time_slice.quanta.values()]
    pruned_before = sum(agent.pruning.count for agent in agents)
    for quantum in time_slice.quanta.values():
        start = time.perf_counter()
        quantum.row_cutoffs = quantum.agent.prune_rows(quantum.outside, quantum.cutoff)
        quantum.seconds += time.perf_counter() - start
    gains = list[MeasuredGain]()
    for improver in improvers:
        allocations = directive.allocations_of(improver.name)
        of_agents = improver.properties.needs is Needs.CORE
        if allocations and of_agents and not time_slice.backend.stop.is_cancelled:
            gains += improver.run(time_slice, allocations)
    for quantum in time_slice.quanta.values():
        quantum.agent.finish(directive.best, quantum.seconds)
    return AgentWorkDone(sum(agent.pruning.count for agent in agents) > pruned_before, gains)


def agent_gap(arithmetic: Arithmetic, chosen: Mapping[int, ChosenValues], agent: Agent) -> float | None:
    """Return an agent's part of the optimality gap with its current table; None if it is not known."""
    return gap_at(exported_table(agent), chosen[agent.local.agent], arithmetic)


def proposals_after(
    cycle: Cycle,
    improvers: Sequence[Improver],
    tables: "RankTables",
    best: NDArray[np.int64] | None,
    searches: "WholeSearches",
    whole_problem: WholeProblemPart,
    enlarged_seconds: float | None,
    is_ready: Callable[[str], bool],
) -> tuple[Proposal, ...]:
    """Return the improvers' proposals for a rank; without a time budget, only the external search has one.

    Parameters
    ----------
    cycle
        The last combination.
    improvers
        The improvers of the run.
    tables
        The tables of the rank.
    best : (n,) int64 or None
        Values of the best assignment; None if no rank knows all of it.
    searches
        The searches over the whole assignment.
    whole_problem
        The part of the rank in the whole problem; its bound is started once its kernels are there.
    enlarged_seconds
        Estimated seconds of another combination with larger tables; None if there cannot be larger ones.
    is_ready
        Returns whether an improver, given by its name, has its kernels on this rank.
    """
    setup, engine_may_improve = tables.setup, searches.background.engine_may_improve
    if not setup.divided.timed:
        return registry.proposals_of(improvers, RankState({}, {}, external_search_active=engine_may_improve))
    if whole_problem.is_waiting and is_ready(UNION_BOUND):
        whole_problem.start(setup)
    agents, weights = dict(tables.agents), {number: setup.weights[number] for number in tables.agents}
    gaps = {number: agent_gap(setup.divided.arithmetic, cycle.chosen, agent) for number, agent in agents.items()}
    if whole_problem.agent is not None:
        agents[whole_problem.agent.number], gaps[whole_problem.agent.number] = (
            whole_problem.agent.agent,
            whole_problem.agent.gap,
        )
    is_split = any(z is not None for z_pair in cycle.z.values() for z in z_pair)
    seconds = enlarged_seconds if is_split else None
    state = RankState(
        agents, gaps, best, seconds, engine_may_improve, searches.background.gpu_is_active, is_ready, weights
    )
    return registry.proposals_of(improvers, state)


def starts_of(
    improvers: Sequence[Improver],
    agents: Sequence[Agent],
    best: NDArray[np.int64],
    is_ready: Callable[[str], bool],
    seed: int,
) -> list[NDArray[np.int64]]:
    """Return assignments that improvers have made from their work on agents, as starts of the local search.

    Parameters
    ----------
    improvers
        The improvers that have worked.
    agents
        The agents of the rank, and the whole problem.
    best : (n,) int64
        The best assignment, whose values all other variables get.
    is_ready
        Returns whether an improver, given by its name, has its kernels on this rank.
    seed
        Seed of random roundings.
    """
    starts = list[NDArray[np.int64]]()
    for improver in improvers:
        for variables, values in improver.starts(agents, is_ready, seed):
            start = best.copy()
            start[list(variables)] = values
            starts.append(start)
    return starts


def prove_whole_problem(
    search: "IncumbentSearch",
    backend: Backend,
    methods: "PlanComponents",
    whole_problem: WholeProblemPart,
    begin: Callable[[], None],
) -> bool:
    """Bound and search the whole problem, in turn with the local search, until tables can be made.

    Return whether this has reached the goal of the run; called by all ranks.

    Parameters
    ----------
    search
        The local search of this rank.
    backend
        Devices, threads and deadline.
    methods
        The components of the plan.
    whole_problem
        This rank's part of the whole problem.
    begin
        Starts its bound.
    """
    world, gains = search.world, list[MeasuredGain]()
    improvers = [one for one in registry.create(timed=True) if one.properties.needs is Needs.CORE]
    director = Director(search.incumbent, Scheduler((0,), registry.declared(improvers)))

    def improve_bound() -> bool:
        """Bound or search the whole problem for a time slice; return whether there was anything to do (rank 0)."""
        if whole_problem.is_waiting:
            begin()
        agent, best = whole_problem.agent, search.incumbent.values if search.incumbent.feasible else None
        if agent is None:  # its bound was wrong
            return False
        state = RankState({agent.number: agent.agent}, {agent.number: agent.gap}, best, is_ready=methods.is_ready)
        proposals = [replace(one, awaited=True) for one in registry.proposals_of(improvers, state)]
        directive = Directive(False, allocations=director.decide_on_whole_problem(proposals, gains), best=best)
        time_slice = agent.added_to(TimeSlice({}, lambda agent: None, backend))
        gains[:] = improve_agents(improvers, time_slice, directive).gains
        whole_problem.record(agent, exchange_nodes(World(), agent), directive.improvers)
        return bool(directive.allocations)

    if not methods.are_ready():
        methods.wait(search.stop, for_whole_problem=True)
    while not methods.are_ready():
        start = time.perf_counter()
        works = world.on_first_rank(improve_bound)
        if world.on_first_rank(lambda: search.incumbent.reached and whole_problem.check(World())):
            return True
        if not works or any(world.allgather(search.stop.over)):
            break
        if search.chains_are_ready():
            search.improve_while_it_pays(world.bcast(time.perf_counter() - start))
    return False
