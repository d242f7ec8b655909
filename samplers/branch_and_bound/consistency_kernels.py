# mypy: ignore-errors
"""Soft arc consistency: costs move between pairs, values and the lower bound, and dominated values are removed.

Existential directional arc consistency (de Givry, Heras, Zytnicki and Larrosa, IJCAI 2005), with integer costs. The
moves are equivalence-preserving transformations: no assignment's cost changes. Each word of ``state.cost`` that changes
is saved on a trail, once per step of the search. A value is removed if no assignment with it can cost less than
``state.head[TOP]``.

Arguments that all kernels share: ``net`` is a ``CostNetwork`` and ``state`` a ``SearchState``, see ``cost_network``;
``v`` is a variable, ``p`` a pair, ``end`` (0 or 1) one of its two variables.
"""

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.branch_and_bound.cost_network import (
    FORBIDDEN,
    RAISED,
    REMOVED,
    RISEN,
    STAMP,
    TOP,
    TRAIL,
    UNSURE,
)


@njit(nogil=True)
def set_cost(state, i, number):
    """Set word i of ``state.cost``, and save its old value on the trail if this step has not yet done so."""
    if state.stamp[i] != state.head[STAMP]:
        length = state.head[TRAIL]
        state.trail[length, 0], state.trail[length, 1] = i, state.cost[i]
        state.head[TRAIL] = length + 1
        state.stamp[i] = state.head[STAMP]
    state.cost[i] = number


@njit(nogil=True)
def remove_value(net, state, v, x):
    """Remove value x from the domain of v."""
    first, last = net.first[v], state.size[v] - 1
    at, last_value = state.place[first + x], state.values[first + last]
    state.values[first + at], state.place[first + last_value] = last_value, at
    state.values[first + last], state.place[first + x] = x, last
    state.size[v] = last
    state.mark[REMOVED, v] = 1


@njit(nogil=True)
def remove_costly(net, state, v):
    """Remove the values of v that cost too much; return False if none remains."""
    first, slack = net.first[v], state.head[TOP] - state.cost[0]
    for k in range(state.size[v] - 1, -1, -1):
        x = state.values[first + k]
        if state.cost[1 + first + x] >= slack:
            remove_value(net, state, v, x)
    return state.size[v] > 0


@njit(nogil=True)
def project_to_bound(net, state, v):
    """Move the smallest unary cost of v to the lower bound, then remove costly values; return False if none remains."""
    first, smallest = net.first[v], FORBIDDEN
    for k in range(state.size[v]):
        smallest = min(smallest, state.cost[1 + first + state.values[first + k]])
    if smallest > 0:
        if state.cost[0] + smallest >= state.head[TOP]:
            return False
        set_cost(state, 0, state.cost[0] + smallest)
        state.mark[RISEN, 0] = 1
        for k in range(state.size[v]):
            i = 1 + first + state.values[first + k]
            set_cost(state, i, state.cost[i] - smallest)
    return remove_costly(net, state, v)


@njit(nogil=True)
def least_costs(net, state, p, end, with_other, out):
    """Write to ``out`` the smallest pair cost of each value at one end.

    The other end's unary costs are included if ``with_other`` is true.
    """
    v, u = net.ends[p, end], net.ends[p, 1 - end]
    at_v, at_u, shift_v, shift_u = net.first[v], net.first[u], net.shift_at[p, end], net.shift_at[p, 1 - end]
    columns, other_cost = net.domains[net.ends[p, 1]], state.scratch[1]
    step_v, step_u = (columns, 1) if end == 0 else (1, columns)
    for k in range(state.size[u]):
        y = state.values[at_u + k]
        other_cost[k] = (state.cost[1 + at_u + y] if with_other else 0) - state.cost[shift_u + y]
    for k in range(state.size[v]):
        x = state.values[at_v + k]
        start, smallest, moved = net.cell_at[p] + x * step_v, FORBIDDEN, state.cost[shift_v + x]
        for i in range(state.size[u]):
            cost = net.cells[start + state.values[at_u + i] * step_u]
            if cost < FORBIDDEN and cost + other_cost[i] < smallest:
                smallest = cost + other_cost[i]
                if smallest <= moved:
                    break
        out[x] = FORBIDDEN if smallest == FORBIDDEN else smallest - moved


@njit(nogil=True)
def project_to_values(net, state, p, end, out):
    """Move the costs ``out`` from a pair to the values at one end; return False if none of the values remains."""
    v = net.ends[p, end]
    first, shift, slack, raised = net.first[v], net.shift_at[p, end], state.head[TOP] - state.cost[0], False
    for k in range(state.size[v] - 1, -1, -1):
        x = state.values[first + k]
        moved, unary = out[x], 1 + first + x
        if moved >= slack or moved + state.cost[unary] >= slack:
            remove_value(net, state, v, x)
        elif moved > 0:
            set_cost(state, shift + x, state.cost[shift + x] + moved)
            set_cost(state, unary, state.cost[unary] + moved)
            raised = True
    if state.size[v] == 0 or (raised and not project_to_bound(net, state, v)):
        state.weight[p] += 1
        return False
    if raised:
        state.mark[RAISED, v] = 1
    return True


@njit(nogil=True)
def support(net, state, p, end):
    """Give each value at one end of a pair a support: a value at the other end with which the pair costs nothing."""
    least_costs(net, state, p, end, False, state.scratch[0])
    return project_to_values(net, state, p, end, state.scratch[0])


@njit(nogil=True)
def full_support(net, state, p, end):
    """Give each value at one end a full support: the pair and the other value's unary cost are both 0.

    Unary costs of the other end move to the pair as far as needed.
    """
    v, u = net.ends[p, end], net.ends[p, 1 - end]
    at_v, at_u, shift_v, shift_u = net.first[v], net.first[u], net.shift_at[p, end], net.shift_at[p, 1 - end]
    wanted = state.scratch[0]
    least_costs(net, state, p, end, True, wanted)
    columns, largest = net.domains[net.ends[p, 1]], 0
    step_v, step_u = (columns, 1) if end == 0 else (1, columns)
    slack = state.head[TOP] - state.cost[0]
    for k in range(state.size[v]):
        x = state.values[at_v + k]
        if wanted[x] < slack:  # the other values will be removed
            largest = max(largest, wanted[x])
    for k in range(state.size[u] if largest > 0 else 0):
        y = state.values[at_u + k]
        moved, unary = 0, state.cost[1 + at_u + y]
        for i in range(state.size[v] if unary > 0 else 0):
            x = state.values[at_v + i]
            cost = net.cells[net.cell_at[p] + x * step_v + y * step_u]
            if cost < FORBIDDEN and 0 < wanted[x] < slack:
                moved = max(moved, wanted[x] - (cost - state.cost[shift_u + y] - state.cost[shift_v + x]))
        if moved > 0:
            set_cost(state, shift_u + y, state.cost[shift_u + y] - moved)
            set_cost(state, 1 + at_u + y, unary - moved)
    return project_to_values(net, state, p, end, wanted) and (largest == 0 or support(net, state, p, 1 - end))


@njit(nogil=True)
def existential_support(net, state, v):
    """Give v an existential support: a value of cost 0 whose pairs have full supports.

    Returns
    -------
    int
        0 if there was one, 1 if costs were moved, −1 if no value remains.
    """
    first, total, out, smallest = net.first[v], state.scratch[2], state.scratch[0], FORBIDDEN
    for k in range(state.size[v]):
        x = state.values[first + k]
        total[x] = state.cost[1 + first + x]
    for e in range(net.near_at[v], net.near_at[v + 1]):
        p, smallest = net.near_pair[e], FORBIDDEN
        least_costs(net, state, p, 0 if net.ends[p, 0] == v else 1, True, out)
        for k in range(state.size[v]):
            x = state.values[first + k]
            total[x] = min(FORBIDDEN, total[x] + max(out[x], 0))
            smallest = min(smallest, total[x])
        if smallest == 0:
            return 0
    if smallest == 0 or net.near_at[v] == net.near_at[v + 1]:
        return 0
    slack = state.head[TOP] - state.cost[0]
    for k in range(state.size[v] - 1, -1, -1):
        x = state.values[first + k]
        if total[x] >= slack:
            remove_value(net, state, v, x)
    if state.size[v] == 0:
        return -1
    for e in range(net.near_at[v], net.near_at[v + 1]):
        p = net.near_pair[e]
        if not full_support(net, state, p, 0 if net.ends[p, 0] == v else 1):
            return -1
    return 1


@njit(nogil=True)
def enforce_supports(net, state):
    """Give supports to the neighbours of variables that lost values; return 1 if there were any, −1 on a failure."""
    found = 0
    for v in range(net.domains.size):
        if state.mark[REMOVED, v]:
            if not project_to_bound(net, state, v):  # the values of cost 0 may be gone
                return -1
            state.mark[REMOVED, v], state.mark[RAISED, v], found = 0, 1, 1
            for e in range(net.near_at[v], net.near_at[v + 1]):
                p, u = net.near_pair[e], net.near[e]
                state.mark[UNSURE, u] = 1
                if not support(net, state, p, 0 if net.ends[p, 0] == u else 1):
                    return -1
    return found


@njit(nogil=True)
def enforce_full_supports(net, state):
    """Give full supports to earlier neighbours of variables whose unary costs rose; return as ``enforce_supports``."""
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
    """Make all marked variables consistent; return False if the subproblem has no better assignment."""
    while True:
        found = enforce_supports(net, state)
        if state.mark[RISEN, 0]:
            state.mark[RISEN, 0] = 0
            for v in range(net.domains.size):
                if found >= 0 and not remove_costly(net, state, v):
                    found = -1
            found = min(found, 1) if found else 1
        if not found:
            found = enforce_full_supports(net, state)
        if not found and not state.mark[RISEN, 0]:
            for v in range(net.domains.size):
                if state.mark[UNSURE, v]:
                    state.mark[UNSURE, v] = 0
                    found = existential_support(net, state, v) if state.size[v] > 1 else 0
                    if found or state.mark[REMOVED, v]:
                        found = found or 1
                        break
        if found < 0:
            return False
        if not found and not state.mark[RISEN, 0]:
            return True
