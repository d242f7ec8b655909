"""Count each agent's work (rows, cells, bytes), by which its method is chosen; each agent is counted on one rank.

Called by ``dmcmc.solving.planning.plan``. A row is one assignment of an agent's boundary variables. If an agent has too
many rows to sample all of them, its table has only a list of rows.
"""

from array import array
from collections.abc import Mapping
from functools import partial
from math import isqrt
from typing import NamedTuple

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.agent_step import SentMessages
from dmcmc.inference.dpop.division import Division, LocalProblem
from dmcmc.inference.dpop.pseudotree import PseudoTree, neighbours_of
from dmcmc.inference.dpop.slicing import MemoryShares, largest_share
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.compact_sequences import narrow
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.tuning import MAX_EXACT_VARIABLES
from dmcmc.mpi.world import World
from dmcmc.samplers.auto.choose import AgentWorkCounts, WorkCountList, count_agent_work
from dmcmc.samplers.registry import get as sampler_of
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.tuning import MAX_LISTED_ROWS, MAX_SAMPLED_ROWS, MIN_LISTED_ROWS

_BYTES_PER_ROW = 128  # per row: lower and upper table, bounds and bookkeeping
_BYTES_PER_STATE = 4  # per row and hidden variable: its value in the chain of the row, an int32


class AgreedPlacement(NamedTuple):
    """The pseudo-tree and the placement of agents on ranks, agreed by all ranks before the agents' work is counted.

    It is needed if each rank knows only its own agents' parts of the problem.

    Attributes
    ----------
    tree : PseudoTree
        The agents' pseudo-tree.
    owner : tuple of int
        The rank of each agent; empty if agents are placed later, by their counted work.
    shares : MemoryShares
        Shares of the memory budget.
    tree_messages : dict of SentMessages
        The messages that each agent has sent to build the tree.
    helpers : tuple of tuple of int
        For each agent, other ranks that work on its rows.
    private : bool
        Whether agents keep their elimination orders private; otherwise rank 0 receives them.
    """

    tree: PseudoTree
    owner: tuple[int, ...]
    shares: MemoryShares
    tree_messages: Mapping[int, SentMessages] = {}
    helpers: tuple[tuple[int, ...], ...] = ()
    private: bool = True


class CountingOptions(NamedTuple):
    """Options by which agents' work is counted.

    Attributes
    ----------
    config : Settings
        Settings of the run.
    arithmetic : Arithmetic
        Number type of the tables.
    shares : MemoryShares
        Shares of the memory budget.
    rows, listed : int
        Largest number of rows of a sampled agent's table, and of listed rows if the agent has more. Used if
        ``local.rows`` is ``auto``.
    """

    config: Settings
    arithmetic: Arithmetic
    shares: MemoryShares
    rows: int
    listed: int

    @property
    def planned(self) -> bool:
        """Whether exact eliminations are planned."""
        return self.config.local.method in ("auto", "exact")


def max_rows(division: Division, config: Settings, shares: MemoryShares) -> int:
    """Return the largest number of rows of a sampled agent's table; fewer if all agents' tables exceed the memory.

    An agent with h hidden variables takes 128 + 4 h bytes per row. The largest agent's share of the memory, divided by
    the largest of these sizes, limits the rows.
    """
    if config.local.method == "exact" and config.budget.time is None:
        return MAX_SAMPLED_ROWS
    row_bytes, table_bytes = array("q"), array("d")
    for local in division.locals:
        row_bytes.append(_BYTES_PER_ROW + _BYTES_PER_STATE * len(local.hidden))
        table_bytes.append(row_bytes[-1] * min(local.rows, MAX_SAMPLED_ROWS))
    return max(
        1, min(MAX_SAMPLED_ROWS, int(largest_share(table_bytes, shares.agent_data)) // max(row_bytes, default=1))
    )


def max_listed_rows(parts: DividedProblem, shares: MemoryShares) -> int:
    """Return the number of rows to list if there are too many, so that tables over two agents' lists fit the memory.

    A table over two lists of k rows has k * k entries. With memory M, entries of b bytes and at most n agents that meet
    (an agent and its neighbours), k is the root of M / (2 b n), limited to 64 .. 4096.
    """
    degrees = neighbours_of(parts.problem, parts.division).lengths
    max_neighbours = 1 + int(degrees.max()) if degrees.any() else 0  # itself among them
    return max(
        MIN_LISTED_ROWS,
        min(MAX_LISTED_ROWS, isqrt(shares.steps // (2 * parts.arithmetic.dtype.itemsize * max(1, max_neighbours)))),
    )


def count_work(
    division: Division,
    counting: CountingOptions,
    world: World,
    threads: int,
    stop: Deadline,
    placed: AgreedPlacement | None,
) -> WorkCountList:
    """Count all agents' work, each on one rank: the owner's rank if only that rank knows the agent's factors."""
    agents, planned = len(division.locals), counting.planned
    counting_rank = [agent % world.size for agent in range(agents)] if placed is None else placed.owner
    own_agents = [division.locals[a] for a in range(agents) if counting_rank[a] == world.rank]

    def count_own_agents() -> dict[int, AgentWorkCounts]:
        if planned:  # orders of few variables hold the interpreter's lock
            run_parallel(
                [partial(getattr, local, "plan") for local in own_agents if len(local.hidden) > MAX_EXACT_VARIABLES],
                threads,
            )
        return {local.agent: _survey(local, counting, stop) for local in own_agents}

    counted = world.on_all_ranks(count_own_agents)
    works = world.allgather((narrow(list(counted)), WorkCountList.of(list(counted.values()))), "surveys")
    if planned and not (placed is not None and placed.private):
        orders = {local.agent: local.order for local in own_agents}
        gathered = world.allgather(orders) if placed is None else world.gather(orders) or []
        for agent, order in ((agent, order) for rank_orders in gathered for agent, order in rank_orders.items()):
            division.locals[agent].set_order(order)
    return WorkCountList.merged(agents, works)


def _survey(local: LocalProblem, counting: CountingOptions, stop: Deadline) -> AgentWorkCounts:
    """Count an agent's work; raise an error if the requested method is impossible.

    With a time budget, an agent that is too large for ``exact`` is sampled: some answer is better than none. If only
    listed rows are sampled, the check treats the boundary variables as hidden ones, so that no row is enumerated.
    """
    stop.check()
    options, memory, arithmetic = counting.config.local, counting.shares.work, counting.arithmetic
    row_limit = counting.rows if options.rows == "auto" else options.rows
    listed = (
        0 if local.rows <= row_limit else (min(counting.listed, row_limit) if options.rows == "auto" else options.rows)
    )
    if options.method != "auto" and not (options.method == "exact" and counting.config.budget.time is not None):
        checked = local
        if listed and options.method != "exact":
            hidden = (*local.interface, *local.hidden)
            checked = LocalProblem(local.agent, (), hidden, local.factors, local.domains)
        sampler_of(options.method).check(checked, memory, arithmetic)
    sampled = listed, options.runs, options.samples
    return count_agent_work(local, *sampled, memory, arithmetic, counting.planned, options.bound != "none")
