"""Between two cycles: this rank carries out what is granted to its agents."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.mpi.message_contents import Chosen
from dmcmc.run.agent.agent import Agent
from dmcmc.run.agent.row_sums import rows_of
from dmcmc.run.agent_steps import Sides
from dmcmc.run.improvers import registry
from dmcmc.run.improvers.protocol import Slice, Turn
from dmcmc.run.metrics import gap_at
from dmcmc.run.planning.setup import Setup
from dmcmc.run.scheduler.directive import Directive


class Around(NamedTuple):
    """What the last cycle says about this rank's agents.

    Attributes
    ----------
    chosen : dict
        Each agent's interface values.
    outsides : dict
        What all others add to an agent's rows, as ``sides`` index them; empty where that is not known.
    sides : Sides
        How tables were indexed.
    """

    chosen: Mapping[int, Chosen]
    outsides: Mapping[int, UtilMessage]
    sides: Sides


def slice_of(
    setup: Setup,
    agents: Mapping[int, Agent],
    around: Around,
    directive: Directive,
    search: Callable[[float], float],
    enlarge: Callable[[float], None],
    wait: Callable[[float], None],
) -> Slice:
    """Return the turns of this rank's agents in a slice of time, and what all ranks do in it."""
    roots, turns, stop = roots_of(setup), dict[int, Turn](), setup.backend.stop
    for number, agent in agents.items():
        outside = None
        if number in around.outsides and agent.enumerated:
            outside = _outside_rows(setup, agent, around)
        turns[number] = Turn(agent, outside, directive.thresholds.get(roots[number]))
    backend = replace(setup.backend, stop=stop.by(stop.until - directive.reserved))
    return Slice(turns, partial(gap_of, setup, around.chosen), backend, search, enlarge, wait, directive.best)


def improve_agents(slice: Slice, directive: Directive) -> bool:
    """Let this rank's agents have what they are granted; return whether rows were pruned.

    All look which of their rows can still matter, then one kind of work comes after the other.
    """
    agents = [turn.agent for turn in slice.turns.values()]
    before = sum(agent.pruning.count for agent in agents)
    for turn in slice.turns.values():
        start = time.perf_counter()
        turn.limits = turn.agent.look(turn.outside, turn.threshold)
        turn.took += time.perf_counter() - start
    for kind in registry.OF_AGENTS:
        granted = directive.of(kind.name)
        if granted and not slice.backend.stop.asked:
            kind.carry_out(slice, granted)
    for turn in slice.turns.values():
        turn.agent.finish(directive.best, turn.took)
    return sum(agent.pruning.count for agent in agents) > before


def gap_of(setup: Setup, chosen: Mapping[int, Chosen], agent: Agent) -> float | None:
    """Return an agent's part of the gap as its table is now; None where that is not known."""
    return gap_at(agent.exported(), chosen[agent.local.agent], setup.arithmetic)


def _outside_rows(setup: Setup, agent: Agent, around: Around) -> NDArray[Any]:
    """Return what the others add at most to each of an agent's rows; −∞ for rows that are not listed any more."""
    number, upper = agent.local.agent, around.sides.upper
    tables = around.outsides[number]
    if number not in upper.rows:
        return agent.rows(tables)
    listed = rows_of(tables, (upper.variable(number),), upper.sizes, setup.arithmetic)
    full = np.full(agent.local.rows, setup.arithmetic.lowest, dtype=listed.dtype)
    full[np.ravel_multi_index(tuple(upper.rows[number].T), agent.local.interface_shape)] = listed
    return full


def roots_of(setup: Setup) -> dict[int, int]:
    """Return the root of each agent's component."""
    root: dict[int, int] = {}
    for agent in reversed(setup.tree.bottom_up):
        parent = setup.tree.parent[agent]
        root[agent] = agent if parent < 0 else root[parent]
    return root
