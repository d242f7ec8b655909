# mypy: ignore-errors
"""Soft arc consistency: costs are shifted between pairs, values and the bound; what no better assignment has goes.

Existential directional arc consistency (de Givry, Heras, Zytnicki and Larrosa, IJCAI 2005), with whole costs. Shifts
never change what an assignment costs; each word that changes is put on a trail first, once in each step of the search.
"""

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.branch_and_bound.cost_network import (
    NEVER,
    RAISED,
    REMOVED,
    RISEN,
    STAMP,
    TOP,
    TRAIL,
    UNSURE,
)


@njit(nogil=True)
def put(state, i, number):
    """Change a word."""
    if state.stamp[i] != state.head[STAMP]:
        length = state.head[TRAIL]
        state.trail[length, 0], state.trail[length, 1] = i, state.word[i]
        state.head[TRAIL] = length + 1
        state.stamp[i] = state.head[STAMP]
    state.word[i] = number


@njit(nogil=True)
def drop(net, state, v, x):
    """Remove a value."""
    first, last = net.first[v], state.size[v] - 1
    at, other = state.place[first + x], state.values[first + last]
    state.values[first + at], state.place[first + other] = other, at
    state.values[first + last], state.place[first + x] = x, last
    state.size[v] = last
    state.mark[REMOVED, v] = 1


@njit(nogil=True)
def remove_costly(net, state, v):
    """Remove a variable's values that cost too much; False if none is left."""
    first, room = net.first[v], state.head[TOP] - state.word[0]
    for k in range(state.size[v] - 1, -1, -1):
        x = state.values[first + k]
        if state.word[1 + first + x] >= room:
            drop(net, state, v, x)
    return state.size[v] > 0


@njit(nogil=True)
def settle(net, state, v):
    """Shift what all of a variable's values cost to the bound, remove what costs too much; False if none is left."""
    first, least = net.first[v], NEVER
    for k in range(state.size[v]):
        least = min(least, state.word[1 + first + state.values[first + k]])
    if least > 0:
        if state.word[0] + least >= state.head[TOP]:
            return False
        put(state, 0, state.word[0] + least)
        state.mark[RISEN, 0] = 1
        for k in range(state.size[v]):
            i = 1 + first + state.values[first + k]
            put(state, i, state.word[i] - least)
    return remove_costly(net, state, v)


@njit(nogil=True)
def least_costs(net, state, p, end, with_other, out):
    """Write to ``out`` what each value at one end of a pair costs there at least, with the other's own cost or not."""
    v, u = net.ends[p, end], net.ends[p, 1 - end]
    at_v, at_u, shift_v, shift_u = net.first[v], net.first[u], net.shift_at[p, end], net.shift_at[p, 1 - end]
    wide, add = net.domains[net.ends[p, 1]], state.scratch[1]
    step_v, step_u = (wide, 1) if end == 0 else (1, wide)
    for k in range(state.size[u]):
        y = state.values[at_u + k]
        add[k] = (state.word[1 + at_u + y] if with_other else 0) - state.word[shift_u + y]
    for k in range(state.size[v]):
        x = state.values[at_v + k]
        start, least, taken = net.cell_at[p] + x * step_v, NEVER, state.word[shift_v + x]
        for i in range(state.size[u]):
            cost = net.cells[start + state.values[at_u + i] * step_u]
            if cost < NEVER and cost + add[i] < least:
                least = cost + add[i]
                if least <= taken:
                    break
        out[x] = NEVER if least == NEVER else least - taken


@njit(nogil=True)
def take(net, state, p, end, out):
    """Shift so much from a pair to the values at one end; False if none of them is left."""
    v = net.ends[p, end]
    first, shift, room, raised = net.first[v], net.shift_at[p, end], state.head[TOP] - state.word[0], False
    for k in range(state.size[v] - 1, -1, -1):
        x = state.values[first + k]
        more, own = out[x], 1 + first + x
        if more >= room or more + state.word[own] >= room:
            drop(net, state, v, x)
        elif more > 0:
            put(state, shift + x, state.word[shift + x] + more)
            put(state, own, state.word[own] + more)
            raised = True
    if state.size[v] == 0 or (raised and not settle(net, state, v)):
        state.weight[p] += 1
        return False
    if raised:
        state.mark[RAISED, v] = 1
    return True


@njit(nogil=True)
def support(net, state, p, end):
    """Let each value at one end of a pair have one at the other with which the pair costs nothing."""
    least_costs(net, state, p, end, False, state.scratch[0])
    return take(net, state, p, end, state.scratch[0])


@njit(nogil=True)
def full_support(net, state, p, end):
    """The same, where the other's own costs nothing either: what it costs is shifted here as far as that is needed."""
    v, u = net.ends[p, end], net.ends[p, 1 - end]
    at_v, at_u, shift_v, shift_u = net.first[v], net.first[u], net.shift_at[p, end], net.shift_at[p, 1 - end]
    wanted = state.scratch[0]
    least_costs(net, state, p, end, True, wanted)
    wide, most = net.domains[net.ends[p, 1]], 0
    step_v, step_u = (wide, 1) if end == 0 else (1, wide)
    room = state.head[TOP] - state.word[0]
    for k in range(state.size[v]):
        x = state.values[at_v + k]
        if wanted[x] < room:  # others go
            most = max(most, wanted[x])
    for k in range(state.size[u] if most > 0 else 0):
        y = state.values[at_u + k]
        more, own = 0, state.word[1 + at_u + y]
        for i in range(state.size[v] if own > 0 else 0):
            x = state.values[at_v + i]
            cost = net.cells[net.cell_at[p] + x * step_v + y * step_u]
            if cost < NEVER and 0 < wanted[x] < room:
                more = max(more, wanted[x] - (cost - state.word[shift_u + y] - state.word[shift_v + x]))
        if more > 0:
            put(state, shift_u + y, state.word[shift_u + y] - more)
            put(state, 1 + at_u + y, own - more)
    return take(net, state, p, end, wanted) and (most == 0 or support(net, state, p, 1 - end))


@njit(nogil=True)
def make_sure(net, state, v):
    """Let a variable have a value that costs nothing with its neighbours' own costs; return 1 if costs were shifted.

    0 if there was one, -1 if there is no value left.
    """
    first, total, out, least = net.first[v], state.scratch[2], state.scratch[0], NEVER
    for k in range(state.size[v]):
        x = state.values[first + k]
        total[x] = state.word[1 + first + x]
    for e in range(net.near_at[v], net.near_at[v + 1]):
        p, least = net.near_pair[e], NEVER
        least_costs(net, state, p, 0 if net.ends[p, 0] == v else 1, True, out)
        for k in range(state.size[v]):
            x = state.values[first + k]
            total[x] = min(NEVER, total[x] + max(out[x], 0))
            least = min(least, total[x])
        if least == 0:
            return 0
    if least == 0 or net.near_at[v] == net.near_at[v + 1]:
        return 0
    room = state.head[TOP] - state.word[0]
    for k in range(state.size[v] - 1, -1, -1):
        x = state.values[first + k]
        if total[x] >= room:
            drop(net, state, v, x)
    if state.size[v] == 0:
        return -1
    for e in range(net.near_at[v], net.near_at[v + 1]):
        p = net.near_pair[e]
        if not full_support(net, state, p, 0 if net.ends[p, 0] == v else 1):
            return -1
    return 1


@njit(nogil=True)
def supports(net, state):
    """Bring neighbours of variables that lost values their supports; return 1 if there were any, -1 if one fails."""
    found = 0
    for v in range(net.domains.size):
        if state.mark[REMOVED, v]:
            if not settle(net, state, v):  # what cost nothing may be gone
                return -1
            state.mark[REMOVED, v], state.mark[RAISED, v], found = 0, 1, 1
            for e in range(net.near_at[v], net.near_at[v + 1]):
                p, u = net.near_pair[e], net.near[e]
                state.mark[UNSURE, u] = 1
                if not support(net, state, p, 0 if net.ends[p, 0] == u else 1):
                    return -1
    return found


@njit(nogil=True)
def full_supports(net, state):
    """Bring earlier neighbours of variables whose values cost more now their full supports; as :func:`supports`."""
    found = 0
    for v in range(net.domains.size - 1, -1, -1):
        if state.mark[RAISED, v]:
            state.mark[RAISED, v], state.mark[UNSURE, v], found = 0, 1, 1
            for e in range(net.near_at[v], net.near_at[v + 1]):
                p, u = net.near_pair[e], net.near[e]
                state.mark[UNSURE, u] = 1
                if u < v and not full_support(net, state, p, 0 if net.ends[p, 0] == u else 1):
                    return -1
    return found


@njit(nogil=True)
def propagate(net, state):
    """Make all marked variables consistent; False if there is nothing better here."""
    while True:
        found = supports(net, state)
        if state.mark[RISEN, 0]:
            state.mark[RISEN, 0] = 0
            for v in range(net.domains.size):
                if found >= 0 and not remove_costly(net, state, v):
                    found = -1
            found = min(found, 1) if found else 1
        if not found:
            found = full_supports(net, state)
        if not found and not state.mark[RISEN, 0]:
            for v in range(net.domains.size):
                if state.mark[UNSURE, v]:
                    state.mark[UNSURE, v] = 0
                    found = make_sure(net, state, v) if state.size[v] > 1 else 0
                    if found or state.mark[REMOVED, v]:
                        found = found or 1
                        break
        if found < 0:
            return False
        if not found and not state.mark[RISEN, 0]:
            return True
