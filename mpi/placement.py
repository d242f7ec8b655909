"""Which rank works for which agent."""

from collections.abc import Sequence


def place_agents(costs: Sequence[float], ranks: int) -> tuple[int, ...]:
    """Return a rank for each agent: the costliest agents first, each to the rank with the least so far.

    Ties go to the lower index, so all ranks find the same placement. More ranks than agents leaves ranks without work;
    more agents than ranks gives several to a rank.

    Examples
    --------
    >>> place_agents([5.0, 1.0, 4.0], ranks=2)
    (0, 1, 1)
    """
    load = [0.0] * ranks
    owner = [0] * len(costs)
    for agent in sorted(range(len(costs)), key=lambda a: (-costs[a], a)):
        rank = min(range(ranks), key=lambda r: (load[r], r))
        owner[agent] = rank
        load[rank] += max(costs[agent], 1e-12)
    return tuple(owner)
