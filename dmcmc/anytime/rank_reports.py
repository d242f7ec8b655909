"""A rank's proposals to rank 0 after a combination in a run with a time budget, and starts of its local search."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.improvers import registry
from dmcmc.anytime.improvers.protocol import Improver, RankState
from dmcmc.anytime.run_improvers import gap_of
from dmcmc.anytime.scheduler.proposal import Proposal
from dmcmc.anytime.union_part import UnionPart
from dmcmc.results.result import UNION_BOUND
from dmcmc.solving.agent.agent import Agent
from dmcmc.solving.util_value_cycle import Cycle

if TYPE_CHECKING:
    from dmcmc.anytime.whole_searches import WholeSearches
    from dmcmc.solving.rank_tables import RankTables


def proposals_after(
    cycle: Cycle,
    improvers: Sequence[Improver],
    tables: "RankTables",
    best: NDArray[np.int64] | None,
    searches: "WholeSearches",
    union: UnionPart,
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
    union
        The part of the rank in the union of all agents; its bound is started once its kernels are there.
    enlarged_seconds
        Estimated seconds of another combination with larger tables; None if there cannot be larger ones.
    is_ready
        Returns whether an improver, given by its name, has its kernels on this rank.
    """
    setup, engine_may_improve = tables.setup, searches.background.engine_may_improve
    if not setup.timed:
        return registry.proposals_of(improvers, RankState({}, {}, external_search_active=engine_may_improve))
    if union.is_waiting and is_ready(UNION_BOUND):
        union.start(setup)
    agents, weights = dict(tables.agents), {number: setup.weights[number] for number in tables.agents}
    gaps = {number: gap_of(setup, cycle.chosen, agent) for number, agent in agents.items()}
    if union.agent is not None:
        agents[union.agent.number], gaps[union.agent.number] = union.agent.agent, union.agent.gap
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
        The agents of the rank, and their union.
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
