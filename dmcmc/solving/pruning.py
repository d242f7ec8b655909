"""Remove the rows of agents' tables that cannot be part of a better solution than the incumbent.

A *row* is one assignment of an agent's boundary variables. A *component* is a tree of the agents' pseudo-forest. After
a combination of upper tables, the *outside bound* of a row is an upper bound on what all other agents can add to it. A
row is removed if its upper bound and its outside bound together do not exceed the component's cutoff.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.interface_rows import InterfaceCompression
from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.inference.runtime.types import Number
from dmcmc.solving.agent.agent import Agent
from dmcmc.solving.agent.row_sums import rows_of
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.rank_tables import RankTables


class Cutoffs(NamedTuple):
    """The decision of rank 0 to remove rows, and by which utilities.

    Attributes
    ----------
    by_component : dict
        For each root agent, the encoded utility that a solution of its component must exceed to improve the incumbent;
        None if every solution would.
    best : (n,) int64 or None
        Values of the best assignment so far, if it violates no hard constraint.
    bounded : bool
        Whether every component has an upper bound.
    """

    by_component: Mapping[int, Number | None]
    best: NDArray[np.int64] | None
    bounded: bool


def prune(tables: RankTables, cutoffs: Cutoffs) -> bool:
    """Remove rows of this rank's agents that cannot be part of a better solution; called by all ranks.

    Returns
    -------
    bool
        Whether rows of this rank's agents have been removed.
    """
    outsides = tables.outside_bounds() if cutoffs.bounded else {}
    setup, upper = tables.setup, tables.sides.upper
    roots = component_roots(setup)

    def prune_rows() -> bool:
        before = sum(agent.pruning.count for agent in tables.agents.values())
        for number, agent in tables.agents.items():
            start, outside = time.perf_counter(), None
            if number in outsides and agent.enumerated:
                outside = outside_rows(setup, agent, outsides[number], upper)
            agent.prune_rows(outside, cutoffs.by_component.get(roots[number]))
            agent.finish(cutoffs.best, time.perf_counter() - start)
        return sum(agent.pruning.count for agent in tables.agents.values()) > before

    pruned = tables.world.on_all_ranks(prune_rows)
    tables.index_again()
    return pruned


def outside_rows(setup: Setup, agent: Agent, outside: UtilMessage, upper: InterfaceCompression) -> NDArray[Any]:
    """Return an upper bound on what all other agents can add to each row of an agent's table, (rows,) encoded.

    Rows that are not listed any more have −∞.

    Parameters
    ----------
    outside
        The bound as tables.
    upper
        How these tables, and the upper tables, are indexed.
    """
    number = agent.local.agent
    if number not in upper.rows:
        return agent.rows(outside)
    listed_bounds = rows_of(outside, (upper.row_variable(number),), upper.sizes, setup.arithmetic)
    bounds = np.full(agent.local.rows, setup.arithmetic.lowest, dtype=listed_bounds.dtype)
    bounds[np.ravel_multi_index(tuple(upper.rows[number].T), agent.local.interface_shape)] = listed_bounds
    return bounds


def component_roots(setup: Setup) -> dict[int, int]:
    """Return the root agent of each agent's component."""
    root_of: dict[int, int] = {}
    for agent in reversed(setup.tree.bottom_up):
        parent = setup.tree.parent[agent]
        root_of[agent] = agent if parent < 0 else root_of[parent]
    return root_of
