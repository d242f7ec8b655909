# mypy: ignore-errors
"""Soft arc consistency: costs move between pairs, values and the lower bound, and dominated values are removed.

Existential directional arc consistency (EDAC; de Givry, Heras, Zytnicki and Larrosa, IJCAI 2005), with integer costs.
The moves are equivalence-preserving transformations: no assignment's cost changes. A value is removed if no assignment
with it can cost less than ``state.head[TOP]``, the cost to beat. The search of ``search_kernels`` calls ``propagate``
after each decision.

Arguments that all kernels share:

net : CostNetwork
    The constant part of the problem, see ``cost_network``. The values of all variables are numbered consecutively:
    value x of variable v is ``net.first[v] + x``. A *pair* p is a cost table between the variables ``net.ends[p, 0]``
    (rows) and ``net.ends[p, 1]`` (columns); it begins at ``net.cells[net.cell_at[p]]``. A *triple* is a cost table
    of three variables, which path consistency leaves (:mod:`.path_consistency_kernels`).
state : SearchState
    The variable part, see the same module. ``state.cost[0]`` is the lower bound; ``state.cost[1 + i]`` is the unary
    cost of value i beyond the bound; ``state.cost[net.shift_at[p, end] + x]`` is the cost that has been moved out of
    pair p for value x of its variable ``end``. So the present cost of a pair of values is its entry in ``net.cells``
    less two moved costs; that of three values in a triple t is its entry in ``net.entries``, from ``net.entry_at[t]``
    on, less three (``net.triple_shift_at``). The remaining values of v are the first ``state.size[v]`` entries of
    ``state.values`` from ``net.first[v]`` on; ``state.place`` is the index of each value in this order (a sparse set).
    ``state.mark`` has
    flags of variables that still have to be processed: in row REMOVED those that lost values, in row RAISED those whose
    unary costs rose, in row UNSURE those whose existential support must be checked; entry 0 of row RISEN says that the
    lower bound rose. A flag is set by the operation that causes it, and cleared when ``propagate`` has handled it,
    or by backtracking. ``state.scratch`` is (3, largest domain) workspace.
v, u : int
    Variables.
p, end : int
    A pair, and the one of its two variables (0 or 1) that is meant.
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


@njit(nogil=True, allocates=False)
def set_cost(state, i, number):
    """Set word i of ``state.cost``, and save its old value on the trail if the present step has not yet done so.

    ``state.head[STAMP]`` is the number of the step; ``state.stamp[i]`` is the step that last saved word i.
    """
    if state.stamp[i] != state.head[STAMP]:
        length = state.head[TRAIL]
        state.trail[length, 0], state.trail[length, 1] = i, state.cost[i]
        state.head[TRAIL] = length + 1
        state.stamp[i] = state.head[STAMP]
    state.cost[i] = number


@njit(nogil=True, allocates=False)
def remove_value(net, state, v, x):
    """Remove value x from the domain of v."""
    first, last = net.first[v], state.size[v] - 1
    at, last_value = state.place[first + x], state.values[first + last]
    state.values[first + at], state.place[first + last_value] = last_value, at
    state.values[first + last], state.place[first + x] = x, last
    state.size[v] = last
    state.mark[REMOVED, v] = 1


@njit(nogil=True, allocates=False)
def remove_costly(net, state, v):
    """Remove values of v whose unary cost and the lower bound reach the cost to beat; return False if none remains."""
    first, slack = net.first[v], state.head[TOP] - state.cost[0]
    for k in range(state.size[v] - 1, -1, -1):
        x = state.values[first + k]
        if state.cost[1 + first + x] >= slack:
            remove_value(net, state, v, x)
    return state.size[v] > 0


@njit(nogil=True, allocates=False)
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


@njit(nogil=True, allocates=False)
def find_joined(net, state, p):
    """Write the triples whose costs are part of a pair to ``state.joined``; return their number."""
    count = 0
    for e in range(net.over_at[p], net.over_at[p + 1]):
        t, side = net.over[e] // 3, net.over[e] % 3
        if state.cost[net.joined_at + t] == 1 + side:
            size_b, size_c = net.domains[net.triples[t, 1]], net.domains[net.triples[t, 2]]
            steps, third = (size_b * size_c, size_c, 1), 2 - side
            start = net.entry_at[t] + state.values[net.first[net.triples[t, third]]] * steps[third]
            state.joined[count, 0] = start
            state.joined[count, 1] = steps[1 if side == 2 else 0]
            state.joined[count, 2] = steps[1 if side == 0 else 2]
            count += 1
    return count


@njit(nogil=True, allocates=False)
def joined_cost(net, state, count, x, y):
    """Return the costs of the first ``count`` triples in ``state.joined`` for values x and y of a pair's two ends."""
    total = 0
    for k in range(count):
        total += net.entries[state.joined[k, 0] + x * state.joined[k, 1] + y * state.joined[k, 2]]
    return total


@njit(nogil=True, allocates=False)
def least_costs(net, state, p, end, with_other, out):
    """Write to ``out[x]``, for each value x at one end of a pair, its smallest cost with any value at the other end.

    The other end's unary costs are included if ``with_other`` is true. ``out`` is (largest domain,) int64.
    """
    v, u = net.ends[p, end], net.ends[p, 1 - end]
    at_v, at_u, shift_v, shift_u = net.first[v], net.first[u], net.shift_at[p, end], net.shift_at[p, 1 - end]
    columns, other_cost, joined = net.domains[net.ends[p, 1]], state.scratch[1], find_joined(net, state, p)
    step_v, step_u = (columns, 1) if end == 0 else (1, columns)
    for k in range(state.size[u]):
        y = state.values[at_u + k]
        other_cost[k] = (state.cost[1 + at_u + y] if with_other else 0) - state.cost[shift_u + y]
    for k in range(state.size[v]):
        x = state.values[at_v + k]
        start, smallest, moved = net.cell_at[p] + x * step_v, FORBIDDEN, state.cost[shift_v + x]
        for i in range(state.size[u]):
            y = state.values[at_u + i]
            cost = net.cells[start + y * step_u]
            if joined and cost < FORBIDDEN:
                cost += joined_cost(net, state, joined, x if end == 0 else y, y if end == 0 else x)
            if cost < FORBIDDEN and cost + other_cost[i] < smallest:
                smallest = cost + other_cost[i]
                if smallest <= moved:
                    break
        out[x] = FORBIDDEN if smallest == FORBIDDEN else smallest - moved


@njit(nogil=True, allocates=False)
def project_to_values(net, state, v, shift, out):
    """Move the cost ``out[x]`` from a pair or triple to each value x of v; return False if no value remains.

    A value whose cost would reach the cost to beat is removed instead. ``shift`` is the offset in ``state.cost`` of the
    costs that have been moved out of the pair or triple for each value of v.
    """
    first, slack, any_raised = net.first[v], state.head[TOP] - state.cost[0], False
    for k in range(state.size[v] - 1, -1, -1):
        x = state.values[first + k]
        moved, unary = out[x], 1 + first + x
        if moved >= slack or moved + state.cost[unary] >= slack:
            remove_value(net, state, v, x)
        elif moved > 0:
            set_cost(state, shift + x, state.cost[shift + x] + moved)
            set_cost(state, unary, state.cost[unary] + moved)
            any_raised = True
    if state.size[v] == 0 or (any_raised and not project_to_bound(net, state, v)):
        return False
    if any_raised:
        state.mark[RAISED, v] = 1
    return True


@njit(nogil=True, allocates=False)
def project_pair(net, state, p, end, out):
    """Move the cost ``out[x]`` from a pair to each value x at one end; return False if no value remains.

    On a failure the weight of the pair, which the choice of the next variable uses, is increased by 1.
    """
    if project_to_values(net, state, net.ends[p, end], net.shift_at[p, end], out):
        return True
    state.weight[p] += 1
    return False


@njit(nogil=True, allocates=False)
def support_in_triple(net, state, t, corner):
    """Give each value of one of a triple's variables a support: values of the others with which the triple costs 0.

    For this, the smallest cost of each value in the triple moves to its unary cost. Return False if no value remains;
    the weights of the triple's pairs are then increased by 1. ``t`` is the triple, and ``corner`` (0, 1 or 2) the
    variable.
    """
    one, two = (1 if corner == 0 else 0), (1 if corner == 2 else 2)
    v, u, w = net.triples[t, corner], net.triples[t, one], net.triples[t, two]
    size_b, size_c = net.domains[net.triples[t, 1]], net.domains[net.triples[t, 2]]
    steps, out = (size_b * size_c, size_c, 1), state.scratch[0]
    at_v, at_u, at_w = net.first[v], net.first[u], net.first[w]
    shift_v, shift_u = net.triple_shift_at[t, corner], net.triple_shift_at[t, one]
    shift_w = net.triple_shift_at[t, two]
    for k in range(state.size[v]):
        x = state.values[at_v + k]
        smallest, moved = FORBIDDEN, state.cost[shift_v + x]
        for i in range(state.size[u]):
            y = state.values[at_u + i]
            start = net.entry_at[t] + x * steps[corner] + y * steps[one]
            for j in range(state.size[w]):
                z = state.values[at_w + j]
                cost = net.entries[start + z * steps[two]] - state.cost[shift_u + y] - state.cost[shift_w + z]
                smallest = min(smallest, cost)
            if smallest <= moved:
                break
        out[x] = smallest - moved
    if project_to_values(net, state, v, shift_v, out):
        return True
    for side in range(3):
        state.weight[net.sides[t, side]] += 1
    return False


@njit(nogil=True, allocates=False)
def support(net, state, p, end):
    """Give each value at one end of a pair a support: a value at the other end with which the pair costs nothing.

    For this, the smallest cost of each value in the pair moves to its unary cost. Return False if no value remains.
    """
    least_costs(net, state, p, end, False, state.scratch[0])
    return project_pair(net, state, p, end, state.scratch[0])


@njit(nogil=True, allocates=False)
def full_support(net, state, p, end):
    """Give each value at one end a full support: the pair and the other value's unary cost are both 0.

    Unary costs of the other end move to the pair as far as needed. Return False if no value remains at an end.
    """
    v, u = net.ends[p, end], net.ends[p, 1 - end]
    at_v, at_u, shift_v, shift_u = net.first[v], net.first[u], net.shift_at[p, end], net.shift_at[p, 1 - end]
    wanted = state.scratch[0]
    least_costs(net, state, p, end, True, wanted)
    columns, largest, joined = net.domains[net.ends[p, 1]], 0, find_joined(net, state, p)
    step_v, step_u = (columns, 1) if end == 0 else (1, columns)
    slack = state.head[TOP] - state.cost[0]
    for k in range(state.size[v]):
        x = state.values[at_v + k]
        if wanted[x] < slack:  # otherwise ``project_pair`` removes the value
            largest = max(largest, wanted[x])
    for k in range(state.size[u] if largest > 0 else 0):
        y = state.values[at_u + k]
        moved, unary = 0, state.cost[1 + at_u + y]
        for i in range(state.size[v] if unary > 0 else 0):
            x = state.values[at_v + i]
            cost = net.cells[net.cell_at[p] + x * step_v + y * step_u]
            if joined and cost < FORBIDDEN:
                cost += joined_cost(net, state, joined, x if end == 0 else y, y if end == 0 else x)
            if cost < FORBIDDEN and 0 < wanted[x] < slack:
                moved = max(moved, wanted[x] - (cost - state.cost[shift_u + y] - state.cost[shift_v + x]))
        if moved > 0:
            set_cost(state, shift_u + y, state.cost[shift_u + y] - moved)
            set_cost(state, 1 + at_u + y, unary - moved)
    return project_pair(net, state, p, end, wanted) and (largest == 0 or support(net, state, p, 1 - end))


@njit(nogil=True, allocates=False)
def existential_support(net, state, v):
    """Give v an existential support: a value of cost 0 whose pairs have full supports.

    ``total[x]`` is a lower bound on what value x costs together with its pairs: its unary cost, plus for each pair the
    smallest cost of the pair and the other variable's value. If it is positive for all values, full supports raise the
    bound.

    Returns
    -------
    int
        0 if costs need not be moved, 1 if costs were moved, −1 if no value remains.
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


@njit(nogil=True, allocates=False)
def join_pair(net, state, t, third):
    """Make the costs of a triple part of the pair of its two other variables, because its third one has one value.

    Costs that have been moved out of the triple count as moved out of the pair from then on.
    """
    side, p = 2 - third, net.sides[t, 2 - third]
    set_cost(state, net.joined_at + t, 1 + side)
    v = net.triples[t, third]
    of_value = state.cost[net.triple_shift_at[t, third] + state.values[net.first[v]]]
    for end in range(2):
        corner = (1 if side == 2 else 0) if end == 0 else (1 if side == 0 else 2)
        u = net.triples[t, corner]
        shift, moved = net.shift_at[p, end], net.triple_shift_at[t, corner]
        for k in range(state.size[u]):
            y = state.values[net.first[u] + k]
            more = state.cost[moved + y] + (of_value if end == 0 else 0)
            if more:
                set_cost(state, shift + y, state.cost[shift + y] + more)


@njit(nogil=True, allocates=False)
def enforce_triple(net, state, t, v):
    """Give the values of a triple's other variables supports after its variable v has lost values.

    If v has one value left, the triple's costs become part of the pair of the others. Return False if a variable has no
    value left.
    """
    third = 0 if net.triples[t, 0] == v else 1 if net.triples[t, 1] == v else 2
    if not state.cost[net.joined_at + t]:
        if state.size[v] > 1:
            for corner in range(3):
                if corner != third and not support_in_triple(net, state, t, corner):
                    return False
        else:
            join_pair(net, state, t, third)
            p = net.sides[t, 2 - third]
            for end in range(2):
                state.mark[UNSURE, net.ends[p, end]] = state.mark[RAISED, net.ends[p, end]] = 1
                if not support(net, state, p, end):
                    return False
    return True


@njit(nogil=True, allocates=False)
def enforce_supports(net, state):
    """Give supports, in pairs and triples, to the neighbours of variables that lost values.

    The result is 1 if there were such variables, 0 if not, and −1 if a variable has no value left.
    """
    outcome = 0
    for v in range(net.domains.size):
        if state.mark[REMOVED, v]:
            if not project_to_bound(net, state, v):  # the values of cost 0 may be gone
                return -1
            state.mark[REMOVED, v], state.mark[RAISED, v], outcome = 0, 1, 1
            for e in range(net.near_at[v], net.near_at[v + 1]):
                p, u = net.near_pair[e], net.near[e]
                state.mark[UNSURE, u] = 1
                if not support(net, state, p, 0 if net.ends[p, 0] == u else 1):
                    return -1
            for e in range(net.near_triple_at[v], net.near_triple_at[v + 1]):
                if not enforce_triple(net, state, net.near_triple[e], v):
                    return -1
    return outcome


@njit(nogil=True, allocates=False)
def enforce_full_supports(net, state):
    """Give full supports to earlier neighbours of variables whose unary costs rose (directional arc consistency).

    The result is 1 if there were such variables, 0 if not, and −1 if a variable has no value left.
    """
    outcome = 0
    for v in range(net.domains.size - 1, -1, -1):
        if state.mark[RAISED, v]:
            state.mark[RAISED, v], state.mark[UNSURE, v], outcome = 0, 1, 1
            for e in range(net.near_at[v], net.near_at[v + 1]):
                p, u = net.near_pair[e], net.near[e]
                state.mark[UNSURE, u] = 1
                if u < v and not full_support(net, state, p, 0 if net.ends[p, 0] == u else 1):
                    return -1
    return outcome


@njit(nogil=True, allocates=False)
def propagate(net, state):
    """Make all marked variables consistent; return False if the subproblem has no better assignment.

    Supports come first, then the removal of costly values if the lower bound rose, then full supports, then existential
    supports, until nothing changes.
    """
    while True:
        outcome = enforce_supports(net, state)
        if state.mark[RISEN, 0]:
            state.mark[RISEN, 0] = 0
            for v in range(net.domains.size):
                if outcome >= 0 and not remove_costly(net, state, v):
                    outcome = -1
            outcome = min(outcome, 1) if outcome else 1
        if not outcome:
            outcome = enforce_full_supports(net, state)
        if not outcome and not state.mark[RISEN, 0]:
            for v in range(net.domains.size):
                if state.mark[UNSURE, v]:
                    state.mark[UNSURE, v] = 0
                    outcome = existential_support(net, state, v) if state.size[v] > 1 else 0
                    if outcome or state.mark[REMOVED, v]:
                        outcome = outcome or 1
                        break
        if outcome < 0:
            return False
        if not outcome and not state.mark[RISEN, 0]:
            return True
