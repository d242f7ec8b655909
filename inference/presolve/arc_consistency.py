"""Generalised arc consistency: values go that no allowed entry of a table supports, or no matching of a group."""

from collections.abc import Sequence

import numpy as np

from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.presolve.all_different import supported
from dmcmc.inference.presolve.working_problem import Infeasible, Network

_MOST = 64  # times the cells of all tables is looked at; to end earlier leaves some values too many, none too few


def enforce(network: Network, different: Sequence[tuple[int, ...]] = ()) -> int:
    """Take out values without support until all have some; return how many went.

    A table is looked at again when a variable of it has lost a value. Automata that were written out as chains of
    tables (:mod:`dmcmc.inference.model.densify`) are propagated whole that way: their hypergraph has no cycles.

    Parameters
    ----------
    network
    different
        Groups of variables that must all take different values (as indices of the problem).

    Raises
    ------
    Infeasible
        If a variable has lost all values, or a group has too few: a proof.
    """
    room, gone = _MOST * sum(network.tables[scope].size for scope in network.unread), 0
    sizes = [-1] * len(different)  # values that a group's variables had when it was last looked at
    while room > 0 and not network.limit.over:
        if network.unread:
            scope = next(iter(network.unread))
            room -= network.tables[scope].size
            gone += _read(network, scope)
            continue
        changed = [i for i, group in enumerate(different) if _values(network, group) != sizes[i]]
        if not changed:
            break
        for i in changed:
            gone += _separate(network, different[i])
            sizes[i] = _values(network, different[i])
    return gone


def _read(network: Network, scope: tuple[int, ...]) -> int:
    """Take out the values that one table does not support; return how many went."""
    table, gone = network.tables[scope], 0
    network.limit.charge(1, table.size)
    allowed = ~forbidden(table)
    if not allowed.all():
        for axis, v in enumerate(scope):
            keeps = np.asarray(allowed.any(axis=tuple(i for i in range(len(scope)) if i != axis)))
            if not keeps.all():
                gone += network.keep(v, keeps)
                allowed = np.compress(keeps, allowed, axis=axis)
    del network.unread[scope]  # what is left of it supports all that is left
    return gone


def _values(network: Network, group: tuple[int, ...]) -> int:
    return sum(len(network.left[v]) for v in group)


def _separate(network: Network, group: tuple[int, ...]) -> int:
    """Take out the values of a group with which its variables cannot all be different; return how many went."""
    network.limit.charge(len(group), _values(network, group))
    keeps = supported([network.left[v].tolist() for v in group])
    if keeps is None:
        raise Infeasible
    return sum(network.keep(v, np.array(keep)) for v, keep in zip(group, keeps, strict=True) if not all(keep))
