"""Keep an agent's bound and sampled values for the next run of a session, and continue from those of the last run.

The agents that are eliminated exactly are not concerned: their tables are kept as they are
(:class:`dmcmc.solving.warm_start.retained_work.RetainedWork`).
"""

from typing import TYPE_CHECKING

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.row_search import SearchedPart
from dmcmc.inference.bounds.continued_bound import continue_bound, has_same_variables
from dmcmc.solving.warm_start.retained_bound import RetainedBound
from dmcmc.solving.warm_start.retained_work import RetainedWork

if TYPE_CHECKING:
    from dmcmc.solving.agent.agent import Agent

UNION_NAME = "(all agents)"  # in place of the name of an agent: the union of all agents


def resume_bound(agent: "Agent", provider: str, retained: RetainedWork | None, name: str) -> bool:
    """Continue the bound that an agent had in the last run, if its local problem is the same; return whether it is.

    The parameters are those of :func:`start_bound`.
    """
    kept = None if retained is None else retained.find_bound(name)
    if kept is None or retained is None or kept.provider != provider:
        return False
    if not has_same_variables(kept.local, agent.local) or kept.local.factors != agent.local.factors:
        return False
    agent.upper.retained_search = kept.search
    agent.continue_bound(kept.state)
    retained.bounds_reused += 1
    return True


def start_bound(agent: "Agent", provider: str, retained: RetainedWork | None, name: str) -> None:
    """Start the bound of an agent, with what the bound of the last run has proven if there was one.

    Parameters
    ----------
    agent
        The agent.
    provider
        Name of the bound provider.
    retained
        Work of earlier runs; None if nothing is kept.
    name
        Name of the agent.
    """
    kept = None if retained is None else retained.find_bound(name)
    agent.start_bound(provider)
    if kept is None or retained is None or kept.dual is None or agent.upper.dual is None:
        return
    if continue_bound(agent.upper.dual, kept.dual):
        agent.update_bound()
        retained.bounds_reused += 1


def continue_sampling(agent: "Agent", retained: RetainedWork | None, name: str) -> None:
    """Give the rows of an agent the values that they had at the end of the last run, where these are better."""
    kept, chains = None if retained is None else retained.find_bound(name), agent.lower.chains
    if kept is None or kept.states is None or chains is None or agent.lower.local is not agent.local:
        return
    if agent.team.size > 1:  # the values of the rows are divided over the ranks of the team
        return
    if has_same_variables(kept.local, agent.local):
        chains.take_better(np.arange(agent.local.rows), kept.states)
        table = chains.table()
        agent.table = table if agent.table.upper is None else agent.table


def keep_agent(agent: "Agent", provider: str, retained: RetainedWork, name: str) -> None:
    """Keep the bound and the rows' values of an agent for the next run; of an exact agent, its table.

    A table that function filtering has made is exact only for rows that may improve the incumbent, so it is not kept.
    """
    upper, chains, states = agent.upper, agent.lower.chains, None
    if agent.table.exact and agent.filtered is None:
        retained.keep_table(name, agent.local, agent.context.arithmetic, agent.table)
    if upper.state is None:
        return
    alone = agent.lower.local is agent.local and agent.team.size == 1
    if chains is not None and alone and chains.states.shape == (agent.local.rows, len(agent.local.hidden)):
        states = chains.states.copy()
    search = upper.boundary_search or upper.retained_search
    on_gpu = upper.dual is not None and upper.dual.remote is not None
    if on_gpu and upper.dual is not None:
        upper.dual.fetch_potentials()
    if on_gpu or upper.searched_part != SearchedPart.ALL or (search is not None and search.exhausted):
        search = None
    retained.keep_bound(name, RetainedBound(agent.local, provider, upper.state, search, states))
