"""Give each agent of this rank its quantum of a time slice, and let the improvers work between two cycles.

``RankRun.improve`` calls :func:`time_slice_of` and :func:`improve_agents` with rank 0's directive.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.mpi.message_contents import ChosenValues
from dmcmc.run.improvers import registry
from dmcmc.run.improvers.protocol import TimeQuantum, TimeSlice
from dmcmc.run.scheduler.directive import Directive
from dmcmc.solving.agent.agent import Agent
from dmcmc.solving.agent.row_sums import rows_of
from dmcmc.solving.agent_steps import Sides
from dmcmc.solving.metrics import gap_at
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
    run_local_search: Callable[[float], float],
    enlarge_tables: Callable[[float], None],
    wait_for_external_search: Callable[[float], None],
) -> TimeSlice:
    """Return the time slice of this rank: its agents' quanta, and the callbacks for work of all ranks together.

    Parameters
    ----------
    context
        Outcome of the last cycle.
    directive
        Rank 0's decision, with the cutoff of each component and the allocations.
    run_local_search, enlarge_tables, wait_for_external_search
        As in :class:`dmcmc.run.improvers.protocol.TimeSlice`.
    """
    roots, quanta, stop = component_roots(setup), dict[int, TimeQuantum](), setup.backend.stop
    for number, agent in agents.items():
        outside = None
        if number in context.outsides and agent.enumerated:
            outside = _outside_rows(setup, agent, context)
        quanta[number] = TimeQuantum(agent, outside, directive.cutoffs.get(roots[number]))
    backend = replace(setup.backend, stop=stop.by(stop.until - directive.reserved_seconds))
    return TimeSlice(
        quanta,
        partial(gap_of, setup, context.chosen),
        backend,
        run_local_search,
        enlarge_tables,
        wait_for_external_search,
        directive.best,
    )


def improve_agents(time_slice: TimeSlice, directive: Directive) -> bool:
    """Do the allocated work for this rank's agents; return whether rows were pruned.

    All agents prune the rows that cannot matter any more; then one improver works after the other.
    """
    agents = [quantum.agent for quantum in time_slice.quanta.values()]
    pruned_before = sum(agent.pruning.count for agent in agents)
    for quantum in time_slice.quanta.values():
        start = time.perf_counter()
        quantum.row_cutoffs = quantum.agent.prune_rows(quantum.outside, quantum.cutoff)
        quantum.seconds += time.perf_counter() - start
    for improver in registry.AGENT_IMPROVERS:
        allocations = directive.allocations_of(improver.name)
        if allocations and not time_slice.backend.stop.is_cancelled:
            improver.carry_out(time_slice, allocations)
    for quantum in time_slice.quanta.values():
        quantum.agent.finish(directive.best, quantum.seconds)
    return sum(agent.pruning.count for agent in agents) > pruned_before


def gap_of(setup: Setup, chosen: Mapping[int, ChosenValues], agent: Agent) -> float | None:
    """Return an agent's part of the optimality gap with its current table; None if it is not known."""
    return gap_at(agent.exported(), chosen[agent.local.agent], setup.arithmetic)


def _outside_rows(setup: Setup, agent: Agent, context: CombinationContext) -> NDArray[Any]:
    """Return an upper bound on what all other agents can add to each row of an agent's table, (rows,) encoded.

    Rows that are not listed any more have −∞.
    """
    number, upper = agent.local.agent, context.sides.upper
    tables = context.outsides[number]
    if number not in upper.rows:
        return agent.rows(tables)
    listed_bounds = rows_of(tables, (upper.row_variable(number),), upper.sizes, setup.arithmetic)
    bounds = np.full(agent.local.rows, setup.arithmetic.lowest, dtype=listed_bounds.dtype)
    bounds[np.ravel_multi_index(tuple(upper.rows[number].T), agent.local.interface_shape)] = listed_bounds
    return bounds


def component_roots(setup: Setup) -> dict[int, int]:
    """Return the root agent of each agent's component: of each agent's tree in the pseudo-forest."""
    root_of: dict[int, int] = {}
    for agent in reversed(setup.tree.bottom_up):
        parent = setup.tree.parent[agent]
        root_of[agent] = agent if parent < 0 else root_of[parent]
    return root_of
