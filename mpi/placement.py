"""Decide which rank works for which agent (load balancing)."""

from collections.abc import Sequence
from heapq import heapreplace
from itertools import accumulate

from dmcmc.mpi import tuning


def place(costs: Sequence[float], parent: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Return a rank for each agent: subtrees of the agents' tree if that balances the work, else :func:`place_agents`.

    Subtrees on one rank need few messages between ranks.

    Parameters
    ----------
    costs : sequence of float
        Estimated work of each agent.
    parent : sequence of int
        The agents' tree; −1 for roots.
    ranks : int
        Number of ranks.

    Examples
    --------
    >>> place([1.0] * 6, [-1, 0, 0, 1, 1, 2], ranks=2)
    (0, 0, 1, 0, 1, 1)
    """
    balanced, on_tree = place_agents(costs, ranks), place_on_tree(costs, parent, ranks)
    return (
        on_tree
        if _busiest(costs, on_tree, ranks) <= tuning.MAX_LOAD_RATIO * _busiest(costs, balanced, ranks)
        else balanced
    )


def place_on_tree(costs: Sequence[float], parent: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Return a rank for each agent: the tree in depth-first order, cut into consecutive pieces of about equal work.

    A subtree is consecutive in that order, so most edges stay within a rank. Every rank has an agent if there are
    enough.

    Examples
    --------
    >>> place_on_tree([1.0, 1.0, 1.0, 1.0], [-1, 0, 1, 0], ranks=2)
    (0, 0, 1, 1)
    """
    count = len(parent)
    children: list[list[int]] = [[] for _ in range(count)]
    for agent in range(count - 1, -1, -1):
        if parent[agent] >= 0:
            children[parent[agent]].append(agent)
    order, stack = list[int](), [a for a in range(count - 1, -1, -1) if parent[a] < 0]
    while stack:
        order.append(stack.pop())
        stack.extend(children[order[-1]])
    # Work is positive here and below, so that agents without work are spread over the ranks, too.
    work = [max(costs[agent], 1e-12) for agent in order]
    total, used_ranks = sum(work), min(ranks, count)
    owner, rank = [0] * count, 0
    for position, (agent, cumulated) in enumerate(zip(order, accumulate(work), strict=True)):
        middle = cumulated - work[position] / 2
        if position and rank + 1 < used_ranks and middle >= total * (rank + 1) / used_ranks:
            rank += 1
        rank = max(rank, used_ranks - (count - position))  # at least one agent for each later rank
        owner[agent] = rank
    return tuple(owner)


def place_agents(costs: Sequence[float], ranks: int) -> tuple[int, ...]:
    """Return a rank for each agent: the costliest agents first, each to the rank with the least work so far.

    This is the longest-processing-time rule (Graham, 1969). Ties go to the lower index, so all ranks compute the same
    placement. With more ranks than agents some ranks have no work; with more agents than ranks some ranks have several
    agents.

    Examples
    --------
    >>> place_agents([5.0, 1.0, 4.0], ranks=2)
    (0, 1, 1)
    """
    load = [(0.0, rank) for rank in range(ranks)]
    owner = [0] * len(costs)
    for agent in sorted(range(len(costs)), key=lambda a: (-costs[a], a)):
        least, rank = load[0]
        owner[agent] = rank
        heapreplace(load, (least + max(costs[agent], 1e-12), rank))
    return tuple(owner)


def helpers_of(costs: Sequence[float], owner: Sequence[int], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Return for each agent the ranks that help its own rank with its rows.

    Each rank without an agent helps one agent: in turn, the agent with most work per rank.

    Examples
    --------
    >>> helpers_of([5.0, 1.0], (0, 1), ranks=4)
    ((2, 3), ())
    """
    idle = sorted(set(range(ranks)) - set(owner)) if len(owner) else []
    if not idle:
        return ((),) * len(owner)
    helpers: list[list[int]] = [[] for _ in owner]
    for rank in idle:
        busiest = max(range(len(helpers)), key=lambda agent: (costs[agent] / (1 + len(helpers[agent])), -agent))
        helpers[busiest].append(rank)
    return tuple(map(tuple, helpers))


def _busiest(costs: Sequence[float], owner: Sequence[int], ranks: int) -> float:
    """Return the work of the rank that has most."""
    load = [0.0] * ranks
    for cost, rank in zip(costs, owner, strict=True):
        load[rank] += max(cost, 1e-12)
    return max(load, default=0.0)
