"""Generalised arc consistency on forbidden entries: values that no allowed entry of some table supports go."""

import numpy as np

from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.reductions.network import Network
from dmcmc.inference.runtime.deadline import Stop

_MOST = 64  # times the cells of all tables is looked at; to end earlier leaves some values too many, none too few


def enforce(network: Network, stop: Stop) -> int:
    """Take out values without support until all have some; return how many went.

    A table is looked at again when a variable of it has lost a value. Automata that were written out as chains of
    tables (:mod:`dmcmc.inference.model.densify`) are propagated whole that way: their hypergraph has no cycles.

    Raises
    ------
    Infeasible
        If a variable has lost all values: a proof.
    """
    hard = {scope for scope, table in network.tables.items() if scope and forbidden(table).any()}
    waiting = dict.fromkeys(scope for scope in network.tables if scope in hard)
    room, gone = _MOST * sum(network.tables[scope].size for scope in waiting), 0
    while waiting and room > 0 and not stop.over:
        scope = next(iter(waiting))
        del waiting[scope]
        table = network.tables[scope]
        room -= table.size
        allowed = ~forbidden(table)
        for axis, v in enumerate(scope):
            supported = np.asarray(allowed.any(axis=tuple(i for i in range(len(scope)) if i != axis)))
            if supported.all():
                continue
            gone += network.keep(v, supported)
            allowed = np.compress(supported, allowed, axis=axis)
            waiting |= dict.fromkeys(other for other in network.touching[v] if other != scope and other in hard)
    return gone
