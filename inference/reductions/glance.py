"""A glance at a problem: whether reducing it is worth its time, by a sample of what could go."""

from dataclasses import replace

import numpy as np

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.reductions.dominance import remove_of
from dmcmc.inference.reductions.limit import Limit
from dmcmc.inference.reductions.network import Infeasible, Network
from dmcmc.inference.reductions.small_buckets import pays

_SAMPLE = 32  # variables that are looked at


def promise(problem: Problem) -> float:
    """Return about the part of the variables and values of a problem of dense tables that would go.

    Looks at some of the variables that only their own agent meets, evenly spread: how many of them may be eliminated,
    and how many of their values are dominated. What follows from that is not seen.
    """
    scope, lengths = problem.flat.scope, np.diff(problem.flat.scope_start)
    table = np.repeat(np.arange(lengths.size), lengths)  # of each variable in a scope
    first = problem.flat.scope_start[table]
    crossing = np.zeros(lengths.size, dtype=np.bool_)
    crossing[table[problem.owner[scope] != problem.owner[scope[first]]]] = True
    private = np.ones(problem.n_variables, dtype=np.bool_)
    private[scope[crossing[table]]] = False
    own = np.flatnonzero(private)
    if not own.size:
        return 0.0
    sample = own[np.linspace(0, own.size - 1, min(_SAMPLE, own.size)).astype(np.int64)].tolist()
    near = tuple(problem.factors[t] for t in np.unique(table[np.isin(scope, sample)]).tolist())
    try:
        network = Network.of(replace(problem, factors=near), Limit())
        if network is None:
            return 0.0
        gone = 0.0
        for v in sample:
            values = len(network.left[v])
            gone += 1.0 if pays(network, v) else remove_of(network, v) / values if network.touching[v] else 1.0
    except Infeasible:
        return 1.0
    return gone / len(sample) * own.size / problem.n_variables
