"""Which rank works for which agent."""

from collections.abc import Sequence
from heapq import heapreplace
from itertools import accumulate

_WORTH = 1.1  # times the load of the busiest rank that fewer messages between ranks may cost


def place(costs: Sequence[float], parent: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Return a rank for each agent: parts of the agents' tree where that divides the work well, so that few messages
    go between ranks, else :func:`place_agents`.

    Parameters
    ----------
    costs
        Estimates of each agent's work.
    parent
        The agents' tree; −1 for roots.

    Examples
    --------
    >>> place([1.0] * 6, [-1, 0, 0, 1, 1, 2], ranks=2)
    (0, 0, 1, 0, 1, 1)
    """
    spread, near = place_agents(costs, ranks), place_on_tree(costs, parent, ranks)
    return near if _busiest(costs, near, ranks) <= _WORTH * _busiest(costs, spread, ranks) else spread


def place_on_tree(costs: Sequence[float], parent: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Return a rank for each agent: the tree, depth first, cut into as many pieces of about equal work.

    A subtree is a piece of that order, so most edges stay within a rank. Every rank has an agent if there are enough.

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
    work = [max(costs[agent], 1e-12) for agent in order]
    total, used = sum(work), min(ranks, count)
    owner, rank = [0] * count, 0
    for place, (agent, after) in enumerate(zip(order, accumulate(work), strict=True)):
        middle = after - work[place] / 2
        if place and rank + 1 < used and middle >= total * (rank + 1) / used:
            rank += 1
        rank = max(rank, used - (count - place))  # one agent at least for each of the ranks that follow
        owner[agent] = rank
    return tuple(owner)


def place_agents(costs: Sequence[float], ranks: int) -> tuple[int, ...]:
    """Return a rank for each agent: the costliest agents first, each to the rank with the least so far.

    Ties go to the lower index, so all ranks find the same placement. More ranks than agents leaves ranks without work;
    more agents than ranks gives several to a rank.

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
    """Return for each agent the ranks that work on its rows beside its own: those without an agent, one by one each to
    the agent that has most work for each of its ranks.

    Examples
    --------
    >>> helpers_of([5.0, 1.0], (0, 1), ranks=4)
    ((2, 3), ())
    """
    idle = sorted(set(range(ranks)) - set(owner)) if len(owner) else []
    if not idle:
        return ((),) * len(owner)
    found: list[list[int]] = [[] for _ in owner]
    for rank in idle:
        busiest = max(range(len(found)), key=lambda agent: (costs[agent] / (1 + len(found[agent])), -agent))
        found[busiest].append(rank)
    return tuple(map(tuple, found))


def _busiest(costs: Sequence[float], owner: Sequence[int], ranks: int) -> float:
    """Return the work of the rank that has most of it."""
    load = [0.0] * ranks
    for cost, rank in zip(costs, owner, strict=True):
        load[rank] += max(cost, 1e-12)
    return max(load, default=0.0)
