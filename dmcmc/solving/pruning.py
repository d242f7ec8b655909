"""Remove the rows of agents' tables that cannot be part of a better solution than the incumbent.

A *row* is one assignment of an agent's boundary variables. A *component* is a tree of the agents' pseudo-forest. After
a combination of upper tables, the *outside bound* of a row is an upper bound on what all other agents can add to it. A
row is removed if its upper bound and its outside bound together do not exceed the component's cutoff.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Number
from dmcmc.solving.outside_bounds import component_roots, outside_rows

if TYPE_CHECKING:
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


def prune(tables: "RankTables", cutoffs: Cutoffs) -> bool:
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
        tables.check_bounds(cutoffs.best)
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
