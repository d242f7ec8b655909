"""Variables whose elimination makes the problem smaller are eliminated in place."""

import heapq
from math import prod

import numpy as np

from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.reductions.network import Eliminated, Network, added, spread
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.types import Array

_SMALL = 2**16  # cells that the tables of a variable may be joined to
_MOST_OTHERS = 16


def eliminate_small(network: Network, stop: Stop) -> int:
    """Maximise out variables whose tables join to a small one, if what is left is no larger; return how many.

    A variable of an agent goes only if all that it meets is that agent's: what an agent keeps to itself stays there.
    """
    queue = [(_price(network, v), v) for v in network.open()]
    heapq.heapify(queue)
    count = 0
    while queue and not stop.over:
        price, v = heapq.heappop(queue)
        if not network.touching[v] or price != (now := _price(network, v)):
            if network.touching[v] and now < _SMALL:
                heapq.heappush(queue, (now, v))
            continue
        if price > _SMALL:
            break
        others = _others(network, v)
        if not _pays(network, v, others):
            continue
        _eliminate(network, v, others)
        count += 1
        for u in others:
            if network.touching[u]:
                heapq.heappush(queue, (_price(network, u), u))
    return count


def _others(network: Network, v: int) -> tuple[int, ...]:
    """Return the variables that share a table with one, ascending."""
    return tuple(sorted({u for scope in network.touching[v] for u in scope} - {v}))


def _cells(network: Network, variables: tuple[int, ...]) -> int:
    return prod(len(network.left[u]) for u in variables)


def _price(network: Network, v: int) -> int:
    """Return the cells of a variable's tables when they are joined."""
    return _cells(network, (*_others(network, v), v))


def _pays(network: Network, v: int, others: tuple[int, ...]) -> bool:
    """Return whether eliminating a variable is its agent's own affair, and leaves no more cells than there are."""
    owner = network.problem.owner
    if any(owner[u] != owner[v] for u in others) or len(others) > _MOST_OTHERS:
        return False
    return _cells(network, others) <= sum(network.tables[scope].size for scope in network.touching[v])


def _eliminate(network: Network, v: int, others: tuple[int, ...]) -> None:
    """Replace a variable's tables by their joint maximum over it."""
    over = (*others, v)
    joined: Array | None = None
    for scope in list(network.touching[v]):
        table = network.take(scope)
        place = scope.index(v)
        table = np.moveaxis(table, place, -1)
        part = spread(table, (*scope[:place], *scope[place + 1 :], v), over)
        joined = part if joined is None else added(joined, part)
    assert joined is not None
    joined = np.broadcast_to(joined, tuple(len(network.left[u]) for u in over))
    best = joined.argmax(axis=-1)
    message = np.take_along_axis(joined, best[..., None], axis=-1)[..., 0]
    network.gone.append(Eliminated(v, others, tuple(network.left[u] for u in others), network.left[v][best]))
    if not others or (message != message.flat[0]).any() or message.flat[0] == forbidden_value(message.dtype):
        network.add(others, message)
    else:
        network.add((), message.reshape(-1)[0].reshape(()))
