# mypy: ignore-errors
"""Depth-first branch and bound: a variable takes its cheapest value, or this value is removed.

Variables with few values and many failed pairs come first (smallest ratio of the number of values to 1 + Σ weights of
its pairs with unassigned variables; dom/wdeg: Boussemart et al., ECAI 2004), after the variable of the last failure
(last conflict: Lecoutre et al., AIJ 2009). Of interchangeable values, such as colours, only one is tried as long as no
variable is assigned any of them: if it fails, the others would fail, too.

Arguments that all kernels share:

net : CostNetwork
    The constant part of the problem, see ``cost_network``. ``net.first[v] + x`` numbers value x of variable v;
    ``net.near`` and ``net.near_pair`` from ``net.near_at[v]`` on are the neighbours of v and the pairs shared with
    them.
state : SearchState
    The variable part, see the same module. ``state.cost[0]`` is the lower bound and ``state.cost[1 + i]`` the unary
    cost of value number i. The remaining values of v are the first ``state.size[v]`` entries of ``state.values`` from
    ``net.first[v]`` on. ``state.choice[d]`` has length of the trail, variable and value of the decision at depth d;
    ``state.sizes[d]`` has ``state.size`` before it. ``state.trail`` has (index, old value) of overwritten costs.
    ``state.head`` has scalars at the indices ``TOP`` (cost to beat), ``TRAIL`` (length of the trail), ``STAMP`` (number
    of the step), ``NODES`` (number of nodes), ``DEPTH``, ``FOUND`` (number of solutions), ``LAST`` (variable of the
    last failure) and ``LOWER`` (lower bound at the root).
"""

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.branch_and_bound.consistency_kernels import project_to_bound, propagate, remove_costly, remove_value
from dmcmc.samplers.branch_and_bound.cost_network import (
    DEPTH,
    FORBIDDEN,
    FOUND,
    LAST,
    LOWER,
    NODES,
    STAMP,
    TOP,
    TRAIL,
)

NODE_LIMIT = 0  # the node limit is reached, or the search is halted
COMPLETE = 1  # no better assignment exists
TRAIL_FULL = 2  # the trail (saved costs for backtracking) must be enlarged


@njit(nogil=True, allocates=False)
def select_variable(net, state):
    """Return the variable to branch on; −1 if each variable has one value left: the assignment is complete."""
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


@njit(nogil=True, allocates=False)
def cheapest(net, state, v):
    """Return the value of v with the smallest unary cost; on a tie the smallest value."""
    first, best, smallest = net.first[v], -1, FORBIDDEN
    for k in range(state.size[v]):
        x = state.values[first + k]
        cost = state.cost[1 + first + x]
        if cost < smallest or (cost == smallest and x < best):
            best, smallest = x, cost
    return best


@njit(nogil=True)
def assign_cheapest(net, state, v):
    """Save the state for backtracking, and assign v its cheapest value by removing all others."""
    x, depth, first = cheapest(net, state, v), state.head[DEPTH], net.first[v]
    state.choice[depth, 0], state.choice[depth, 1], state.choice[depth, 2] = state.head[TRAIL], v, x
    state.sizes[depth] = state.size
    state.head[DEPTH] += 1
    state.head[STAMP] += 1
    for k in range(state.size[v] - 1, -1, -1):
        if state.values[first + k] != x:
            remove_value(net, state, v, state.values[first + k])


@njit(nogil=True)
def backtrack(net, state):
    """Undo the last decision and remove its value; return its variable.

    If the value is interchangeable with others and no earlier decision assigns it, these are removed too.
    """
    state.head[DEPTH] -= 1
    depth = state.head[DEPTH]
    for k in range(state.head[TRAIL] - 1, state.choice[depth, 0] - 1, -1):
        state.cost[state.trail[k, 0]] = state.trail[k, 1]
    state.head[TRAIL] = state.choice[depth, 0]
    copy_entries(state.sizes[depth], state.size)
    state.head[STAMP] += 1
    state.mark[:] = 0
    v, x = state.choice[depth, 1], state.choice[depth, 2]
    remove_value(net, state, v, x)
    if net.interchangeable.size and not is_assigned(state, x):
        for k in range(state.size[v] - 1, -1, -1):
            y = state.values[net.first[v] + k]
            if net.interchangeable[y] == net.interchangeable[x] and not is_assigned(state, y):
                remove_value(net, state, v, y)
    return v


@njit(nogil=True)
def is_assigned(state, x):
    """Return whether an earlier decision assigns value x to any variable."""
    return (state.choice[: state.head[DEPTH], 2] == x).any()


@njit(nogil=True)
def search(net, state, begin, nodes, halt):
    """Search until ``nodes`` more nodes are expanded or ``halt[0]`` is nonzero; the results are in the state.

    Parameters
    ----------
    begin : bool
        Whether this is the first call for this state.
    nodes : int
        Number of nodes to expand.
    halt : (1,) uint8
        Nonzero when the kernel should return.

    Returns
    -------
    int
        ``NODE_LIMIT`` (also if halted), ``COMPLETE``, or ``TRAIL_FULL``: call again with a longer trail.
    """
    n, v, consistent = net.domains.size, -1, True
    if begin:
        state.mark[:] = 1
        for u in range(n):
            consistent = consistent and project_to_bound(net, state, u)
        consistent = consistent and propagate(net, state)
        state.head[STAMP] += 1
    node_limit = state.head[NODES] + nodes
    while True:
        if consistent:
            if state.head[DEPTH] == 0:
                state.head[LOWER] = max(state.head[LOWER], state.cost[0])
            v = select_variable(net, state)
            if v < 0:
                state.head[TOP] = state.cost[0]
                state.head[FOUND] += 1
                for u in range(n):
                    state.best[u] = state.values[net.first[u]]
            elif state.head[NODES] >= node_limit or halt[0]:
                return NODE_LIMIT
            # A step saves each word of ``cost`` at most once; two may follow (decision, removal of its value).
            elif state.trail.shape[0] - state.head[TRAIL] < 2 * state.cost.size:
                return TRAIL_FULL
            else:
                state.head[NODES] += 1
                assign_cheapest(net, state, v)
        if not consistent or v < 0:
            if state.head[DEPTH] == 0:
                return COMPLETE
            v = backtrack(net, state)
            state.head[LAST] = v
        consistent = True
        for u in range(n):
            consistent = consistent and remove_costly(net, state, u)
        consistent = consistent and project_to_bound(net, state, v) and propagate(net, state)
