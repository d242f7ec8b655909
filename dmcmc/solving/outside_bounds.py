"""Upper bounds on what all other agents can add to the rows of an agent's table, after a combination.

A *row* is one assignment of an agent's boundary variables. A *component* is a tree of the agents' pseudo-forest.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.agent_step import UtilMessage
from dmcmc.inference.dpop.division import InterfaceCompression
from dmcmc.solving.agent.row_sums import rows_of

if TYPE_CHECKING:
    from dmcmc.solving.agent.agent import Agent
    from dmcmc.solving.planning.setup import Setup


def outside_rows(setup: "Setup", agent: "Agent", outside: UtilMessage, upper: InterfaceCompression) -> NDArray[Any]:
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


def component_roots(setup: "Setup") -> dict[int, int]:
    """Return the root agent of each agent's component."""
    root_of: dict[int, int] = {}
    for agent in reversed(setup.tree.bottom_up):
        parent = setup.tree.parent[agent]
        root_of[agent] = agent if parent < 0 else root_of[parent]
    return root_of
