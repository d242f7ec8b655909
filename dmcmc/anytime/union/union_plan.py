"""Plan a bound and a search over the union of all agents, for runs whose agents' tables alone prove little.

The *union* is the problem as one agent that owns all variables: it has no boundary variables, so its table has a single
row. Bound providers and branch and bound, which see one agent's factors at a time, see all factors there.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dmcmc.anytime.scheduler.proposal import union_number
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.samplers.auto.choose import provider_of
from dmcmc.samplers.auto.survey import count_agent_work
from dmcmc.samplers.tuning import common
from dmcmc.solving.planning.combination_plan import may_split_buckets

if TYPE_CHECKING:
    from dmcmc.solving.planning.setup import Setup

# Bytes per entry of a pairwise table: the entry and two copies for nodes and rows, four bytes each.
_BYTES_PER_ENTRY = 12


def union_of(setup: "Setup") -> LocalProblem:
    """Return the problem of the union of all agents, on a rank that knows all factors."""

    def divided() -> LocalProblem:
        problem = setup.problem
        one_agent = replace(problem, agents=("all agents",), owner=np.zeros(problem.n_variables, dtype=np.int64))
        return replace(divide(one_agent).locals[0], agent=union_number(0))

    return setup.facts.get_or_compute("union", divided)


def union_provider(setup: "Setup") -> str | None:
    """Return the bound provider of the union; None if it is not bounded.

    It is bounded if there is a time budget and several agents, methods are chosen automatically, the combination of the
    agents' tables splits buckets, and the union's tables fit the memory. Rank 0, which has to know all factors, decides
    for all ranks.
    """
    return setup.facts.get_or_compute("union provider", lambda: _provider(setup))


def _provider(setup: "Setup") -> str | None:
    """Choose the bound provider of the union."""
    config, agents = setup.config, setup.problem.n_agents
    automatic = config.local.method == "auto" and config.local.bound == "auto" and config.combine.method == "auto"
    if not (setup.timed and automatic and agents > 1 and may_split_buckets(setup)) or setup.scattered:
        return None
    memory = int(2 * common.MEMORY_SHARE * setup.limits.retained_memory * agents)
    if _BYTES_PER_ENTRY * sum([factor.table.size for factor in setup.problem.factors]) > memory:
        return None
    counts = count_agent_work(union_of(setup), 0, 1, 1, memory, setup.arithmetic, planned=False)
    return provider_of(counts, replace(setup.limits, retained_memory=memory), setup.rates)
