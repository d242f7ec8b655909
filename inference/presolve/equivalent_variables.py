"""Copies made one: a variable whose value another one's decides, and the other way round, is that one.

Several agents that have to agree (PEAV: each participant has a variable for a meeting's time) share one decision by
hard equalities. Searches that change one variable at a time cannot move any of them; as one variable they can.
"""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.presolve.working_problem import Eliminated, Network


def merge_copies(network: Network) -> int:
    """Replace each copy by the variable that it is a copy of, whoever owns them; return how many went.

    Two variables are copies if a table over just them allows each value of the one with exactly one of the other.
    """
    count = 0
    for scope in [scope for scope in network.tables if len(scope) == 2]:
        if scope not in network.tables or network.limit.over:  # copies of copies may have met
            continue
        allowed = ~forbidden(network.tables[scope])
        if (allowed.sum(axis=0) == 1).all() and (allowed.sum(axis=1) == 1).all():
            _merge(network, *scope, allowed.argmax(axis=1))
            count += 1
    return count


def _merge(network: Network, kept: int, copy: int, image: NDArray[np.int64]) -> None:
    """Put one variable in another's place; ``image`` has the copy's value for each of the kept one."""
    left = network.left
    network.gone.append(Eliminated(copy, (kept,), (left[kept],), left[copy][image]))
    network.private[kept] &= network.private[copy]
    for scope in list(network.touching[copy]):
        table, place = network.take(scope), scope.index(copy)
        table = table.take(image, axis=place)
        if kept in scope:
            table = np.diagonal(table, axis1=scope.index(kept), axis2=place)  # the common axis comes last
            over = (*(v for v in scope if v not in (kept, copy)), kept)
        else:
            over = tuple(kept if v == copy else v for v in scope)
        order = np.argsort(over, kind="stable").tolist()
        network.add(tuple(over[i] for i in order), np.ascontiguousarray(table.transpose(order)))
