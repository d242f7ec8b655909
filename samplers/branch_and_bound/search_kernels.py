# mypy: ignore-errors
"""Depth-first branch and bound: a variable has its cheapest value, or it does not.

The variable with few values and many failed pairs comes first (Boussemart et al., ECAI 2004), after the one of the last
failure (Lecoutre et al., AIJ 2009). Values that may change places without changing a cost, as colours, are tried once
as long as no variable has been given any of them: if the first one fails, the others would.
"""

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.branch_and_bound.consistency_kernels import drop, propagate, remove_costly, settle
from dmcmc.samplers.branch_and_bound.cost_network import (
    DEPTH,
    FOUND,
    LAST,
    LOWER,
    NEVER,
    NODES,
    STAMP,
    TOP,
    TRAIL,
)

GO_ON, COMPLETE, MORE_ROOM = 0, 1, 2


@njit(nogil=True)
def choose(net, state):
    """Return the variable to branch on; -1 if each has one value."""
    last, best, score = state.head[LAST], -1, 0.0
    if last >= 0 and state.size[last] > 1:
        return last
    for v in range(net.domains.size):
        if state.size[v] > 1:
            weight = 1.0
            for e in range(net.near_at[v], net.near_at[v + 1]):
                if state.size[net.near[e]] > 1:
                    weight += state.weight[net.near_pair[e]]
            if best < 0 or state.size[v] < score * weight:
                best, score = v, state.size[v] / weight
    return best


@njit(nogil=True)
def cheapest(net, state, v):
    """Return a variable's cheapest value, the first of several."""
    first, best, least = net.first[v], -1, NEVER
    for k in range(state.size[v]):
        x = state.values[first + k]
        cost = state.word[1 + first + x]
        if cost < least or (cost == least and x < best):
            best, least = x, cost
    return best


@njit(nogil=True)
def give(net, state, v):
    """Note where the search stands, and give a variable its cheapest value."""
    x, depth, first = cheapest(net, state, v), state.head[DEPTH], net.first[v]
    state.choice[depth, 0], state.choice[depth, 1], state.choice[depth, 2] = state.head[TRAIL], v, x
    state.sizes[depth] = state.size
    state.head[DEPTH] += 1
    state.head[STAMP] += 1
    for k in range(state.size[v] - 1, -1, -1):
        if state.values[first + k] != x:
            drop(net, state, v, state.values[first + k])


@njit(nogil=True)
def take_back(net, state):
    """Go back to before the last choice, and remove its value; return its variable."""
    state.head[DEPTH] -= 1
    depth = state.head[DEPTH]
    for k in range(state.head[TRAIL] - 1, state.choice[depth, 0] - 1, -1):
        state.word[state.trail[k, 0]] = state.trail[k, 1]
    state.head[TRAIL] = state.choice[depth, 0]
    copy_entries(state.sizes[depth], state.size)
    state.head[STAMP] += 1
    state.mark[:] = 0
    v, x = state.choice[depth, 1], state.choice[depth, 2]
    drop(net, state, v, x)
    if net.kin.size and not given_before(state, x):
        for k in range(state.size[v] - 1, -1, -1):
            y = state.values[net.first[v] + k]
            if net.kin[y] == net.kin[x] and not given_before(state, y):
                drop(net, state, v, y)
    return v


@njit(nogil=True)
def given_before(state, x):
    """Return whether some variable has been given a value, and still has it."""
    return (state.choice[: state.head[DEPTH], 2] == x).any()


@njit(nogil=True)
def search(net, state, begin, nodes, halt):
    """Search for so many nodes, or until ``halt[0]`` is set; what is found is in the state.

    Parameters
    ----------
    begin
        Whether this is the first call for this state.
    """
    n, v, goes_on = net.domains.size, -1, True
    if begin:
        state.mark[:] = 1
        for u in range(n):
            goes_on = goes_on and settle(net, state, u)
        goes_on = goes_on and propagate(net, state)
        state.head[STAMP] += 1
    last = state.head[NODES] + nodes
    while True:
        if goes_on:
            if state.head[DEPTH] == 0:
                state.head[LOWER] = max(state.head[LOWER], state.word[0])
            v = choose(net, state)
            if v < 0:
                state.head[TOP] = state.word[0]
                state.head[FOUND] += 1
                for u in range(n):
                    state.best[u] = state.values[net.first[u]]
            elif state.head[NODES] >= last or halt[0]:
                return GO_ON
            elif state.trail.shape[0] - state.head[TRAIL] < 2 * state.word.size:
                return MORE_ROOM
            else:
                state.head[NODES] += 1
                give(net, state, v)
        if not goes_on or v < 0:
            if state.head[DEPTH] == 0:
                return COMPLETE
            v = take_back(net, state)
            state.head[LAST] = v
        goes_on = True
        for u in range(n):
            goes_on = goes_on and remove_costly(net, state, u)
        goes_on = goes_on and settle(net, state, v) and propagate(net, state)
