"""Make the exact tables of agents with new local problems."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmcmc.inference.dpop.usable_rows import allows_more_rows
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.methods.exact import eliminate_in_turn
from dmcmc.solving.planning.setup import Setup

if TYPE_CHECKING:
    from dmcmc.solving.util_value_cycle import FinishedCycle


class NotRepeatable(ResourceError):
    """The last run cannot be continued; the problem has to be solved anew."""


def new_tables(setup: Setup, last: "FinishedCycle", agents: Sequence[int]) -> dict[int, SampledTable]:
    """Return the exact tables of agents whose own factors or variables have changed.

    Parameters
    ----------
    setup
        The changed plan.
    last
        The last cycle of messages.
    agents
        The agents, all of this rank.

    Raises
    ------
    NotRepeatable
        If the tables do not fit the time or the memory, or need rows that messages of children have left out.
    """
    pairs = [(setup.division.locals[agent], setup.choices[agent].seconds) for agent in agents]
    found = eliminate_in_turn(pairs, setup.sampling_settings(), timed=False)
    if found.given_up:
        raise NotRepeatable("the tables of the changed agents do not fit the time or the memory")
    for local, _ in pairs:
        agent, table = local.agent, found.tables[local.agent]
        has_filter = last.needed is not None and bool(setup.tree.children[agent])
        if has_filter and allows_more_rows(last.tables[agent].lower, table.lower):
            raise NotRepeatable("the agent allows rows that its children have left out")
        if setup.retained is not None:
            setup.retained.keep_table(setup.problem.agents[agent], local, setup.arithmetic, table)
    return found.tables
