"""Variables whose elimination makes the problem smaller are eliminated in place."""

import heapq
from math import prod

import numpy as np

from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.presolve.working_problem import Eliminated, Network, added, spread
from dmcmc.inference.runtime.types import Array

_SMALL = 2**16  # cells that the tables of a variable may be joined to
_MOST_OTHERS = 16


def eliminate_small(network: Network) -> int:
    """Maximise out variables whose tables join to a small one, if what is left is no larger; return how many.

    Only those go that an elimination may begin with: whose others meet, or all but one of them, or are no more than
    two. An order of what is left is then as good as one of the whole (Bodlaender, Koster & van den Eijkhof 2005). A
    variable of an agent goes only if all that it meets is that agent's: what an agent keeps to itself stays there.
    """
    queue = [(_price(network, v), v) for v in sorted(network.unpriced) if network.touching[v]]
    network.unpriced = set()
    heapq.heapify(queue)
    count = 0
    while queue and not network.limit.over:
        price, v = heapq.heappop(queue)
        if not network.touching[v] or price != (now := _price(network, v)):
            if network.touching[v] and now < _SMALL:
                heapq.heappush(queue, (now, v))
            continue
        if price > _SMALL:
            break
        if not pays(network, v):
            continue
        _eliminate(network, v, _others(network, v))
        count += 1
        for u in sorted(network.unpriced):
            if network.touching[u]:
                heapq.heappush(queue, (_price(network, u), u))
        network.unpriced = set()
    return count


def _others(network: Network, v: int) -> tuple[int, ...]:
    """Return the variables that share a table with one, ascending."""
    return tuple(sorted({u for scope in network.touching[v] for u in scope} - {v}))


def _cells(network: Network, variables: tuple[int, ...]) -> int:
    return prod(len(network.left[u]) for u in variables)


def _price(network: Network, v: int) -> int:
    """Return the cells of a variable's tables when they are joined."""
    return _cells(network, (*_others(network, v), v))


def pays(network: Network, v: int) -> bool:
    """Return whether eliminating a variable is its agent's own affair, and leaves no more cells than there are."""
    others = _others(network, v)
    if not network.private[v] or len(others) > _MOST_OTHERS:
        return False
    if _cells(network, others) > sum(network.tables[scope].size for scope in network.touching[v]):
        return False
    return len(others) <= 2 or _almost_clique(network, others)


def _almost_clique(network: Network, variables: tuple[int, ...]) -> bool:
    """Return whether every two of some variables share a table, or would without one of them."""
    apart = []
    for u in variables:
        near = {w for scope in network.touching[u] for w in scope}
        apart.append({w for w in variables if w not in near})
    return not any(apart) or any(
        all(u == w or missing <= {u} for w, missing in zip(variables, apart, strict=True)) for u in variables
    )


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
