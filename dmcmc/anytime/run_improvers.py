"""Give each agent of this rank its quantum of a time slice, and let the improvers work between two cycles.

``RankRun.improve`` calls :func:`time_slice_of` and :func:`improve_agents` with rank 0's directive.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dmcmc.anytime.improvers.protocol import Improver, TimeQuantum, TimeSlice, WholeProblemWork
from dmcmc.anytime.scheduler.directive import Directive
from dmcmc.anytime.scheduler.proposal import MeasuredGain, Needs
from dmcmc.inference.dpop.agent_step import ChosenValues, UtilMessage
from dmcmc.solving.agent.agent import Agent
from dmcmc.solving.agent_steps import Sides, exported_table
from dmcmc.solving.metrics import gap_at
from dmcmc.solving.outside_bounds import component_roots, outside_rows
from dmcmc.solving.planning.setup import Setup


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
    setup: Setup,
    agents: Mapping[int, Agent],
    context: CombinationContext,
    directive: Directive,
    whole: WholeProblemWork,
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
    roots, quanta, stop = component_roots(setup), dict[int, TimeQuantum](), setup.backend.stop
    for number, agent in agents.items():
        outside = None
        if number in context.outsides and agent.enumerated:
            outside = outside_rows(setup, agent, context.outsides[number], context.sides.upper)
        quanta[number] = TimeQuantum(agent, outside, directive.cutoffs.get(roots[number]))
    backend = replace(setup.backend, stop=stop.by(stop.until - directive.reserved_seconds))
    return TimeSlice(
        quanta,
        partial(gap_of, setup, context.chosen),
        backend,
        whole,
        None if setup.scattered else setup.problem,
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


def gap_of(setup: Setup, chosen: Mapping[int, ChosenValues], agent: Agent) -> float | None:
    """Return an agent's part of the optimality gap with its current table; None if it is not known."""
    return gap_at(exported_table(agent), chosen[agent.local.agent], setup.arithmetic)
