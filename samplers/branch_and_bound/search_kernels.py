# mypy: ignore-errors
"""Compiled branch and bound, and path consistency.

Depth-first branch and bound: a variable takes its cheapest value, or this value is removed.

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

Soft path consistency: costs of three variables together move to their pairs, to their values and to the bound.

A *triple* is a set of three variables of which every two share a pair (a cost table). The costs of a triple, its pairs
and its values are added up in one table. Then what all entries of a value have in common moves to this value, the
smallest cost of a variable's values moves to the lower bound, and what all entries of a pair of values have in common
moves back to the pair; the table of the triple keeps the rest. No assignment's cost changes. Afterwards every value of
the variable that takes its costs first has a support of cost 0 in the triple: this is path inverse consistency (Nguyen,
Bessiere, de Givry and Schiex, Constraints 22, 2017) along an order of the variables, like directional arc consistency.

Pairs are treated in the same way, with two variables. Passes over all pairs and triples in both directions raise the
bound as dual ascent over triplets does, in integers.

Arguments that the kernels share:

net : CostNetwork
    The pairs and triples. Pair p begins at ``net.cells[net.cell_at[p]]``, and triple t at
    ``net.entries[net.entry_at[t]]``; their costs are changed in place.
unary : (values,) int64
    Value x of variable v has the unary cost ``unary[net.first[v] + x]``.
bound : (1,) int64
    The lower bound.
forward : bool
    Whether the last variable takes costs first, and pairs and triples are visited in ascending order.
"""

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.branch_and_bound.consistency_kernels import project_to_bound, propagate, remove_costly, remove_value
from dmcmc.samplers.branch_and_bound.cost_network import DEPTH, FORBIDDEN, FOUND, LAST, LOWER, NODES, STAMP, TOP, TRAIL

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


@njit(nogil=True, allocates=False)
def take_smallest(net, unary, bound, v):
    """Move the smallest unary cost of a variable to the bound; a variable without values keeps its costs."""
    first, size, smallest = net.first[v], net.domains[v], FORBIDDEN
    for x in range(first, first + size):
        smallest = min(smallest, unary[x])
    if 0 < smallest < FORBIDDEN:
        bound[0] += smallest
        for x in range(first, first + size):
            if unary[x] < FORBIDDEN:
                unary[x] -= smallest


@njit(nogil=True, allocates=False)
def take_common(entries, start, counts, steps):
    """Return the smallest of some entries, and subtract it from all of them that are not forbidden.

    Entry (i, j), for i < ``counts[0]`` and j < ``counts[1]``, is at ``start`` + i · ``steps[0]`` + j · ``steps[1]``.
    """
    smallest = FORBIDDEN
    for i in range(counts[0]):
        for j in range(counts[1]):
            smallest = min(smallest, entries[start + i * steps[0] + j * steps[1]])
    if 0 < smallest < FORBIDDEN:
        for i in range(counts[0]):
            for j in range(counts[1]):
                at = start + i * steps[0] + j * steps[1]
                if entries[at] < FORBIDDEN:
                    entries[at] -= smallest
    return smallest


@njit(nogil=True, allocates=False)
def move_costs_of_pair(net, unary, bound, p, forward):
    """Add the costs of a pair and its values up, and move them to the values of one end, then to those of the other."""
    v, u = net.ends[p, 0], net.ends[p, 1]
    rows, columns, at = net.domains[v], net.domains[u], net.cell_at[p]
    for x in range(rows):
        for y in range(columns):
            total = net.cells[at + x * columns + y] + unary[net.first[v] + x] + unary[net.first[u] + y]
            net.cells[at + x * columns + y] = min(total, FORBIDDEN)
    for step in range(2):
        if (step == 1) == forward:
            for x in range(rows):
                unary[net.first[v] + x] = take_common(net.cells, at + x * columns, (1, columns), (0, 1))
        else:
            for y in range(columns):
                unary[net.first[u] + y] = take_common(net.cells, at + y, (1, rows), (0, columns))
        take_smallest(net, unary, bound, v if (step == 1) == forward else u)


@njit(nogil=True, allocates=False)
def add_up_triple(net, unary, t):
    """Add the costs of the pairs and values of a triple to its table, and set them to 0."""
    a, b, c = net.triples[t, 0], net.triples[t, 1], net.triples[t, 2]
    ab, ac, bc = net.cell_at[net.sides[t, 0]], net.cell_at[net.sides[t, 1]], net.cell_at[net.sides[t, 2]]
    size_a, size_b, size_c, at = net.domains[a], net.domains[b], net.domains[c], net.entry_at[t]
    for x in range(size_a):
        for y in range(size_b):
            of_xy = unary[net.first[a] + x] + unary[net.first[b] + y] + net.cells[ab + x * size_b + y]
            of_xy = min(of_xy, FORBIDDEN)
            for z in range(size_c):
                of_z = unary[net.first[c] + z] + net.cells[ac + x * size_c + z] + net.cells[bc + y * size_c + z]
                net.entries[at] = min(net.entries[at] + of_xy + of_z, FORBIDDEN)
                at += 1
    for corner in range(3):
        v = net.triples[t, corner]
        unary[net.first[v] : net.first[v] + net.domains[v]] = 0
        p = net.sides[t, corner]
        net.cells[net.cell_at[p] : net.cell_at[p] + net.domains[net.ends[p, 0]] * net.domains[net.ends[p, 1]]] = 0


@njit(nogil=True, allocates=False)
def move_costs_of_triple(net, unary, bound, t, forward):
    """Add the costs of a triple up, and move them to its values, one variable after another, then to its pairs.

    A forbidden entry is forbidden by one of its values or pairs afterwards, so the triple's table has finite costs.
    """
    add_up_triple(net, unary, t)
    sizes = (net.domains[net.triples[t, 0]], net.domains[net.triples[t, 1]], net.domains[net.triples[t, 2]])
    steps, start = (sizes[1] * sizes[2], sizes[2], 1), net.entry_at[t]
    for number in range(3):
        corner = 2 - number if forward else number
        one, two = (1 if corner == 0 else 0), (1 if corner == 2 else 2)
        v = net.triples[t, corner]
        for x in range(sizes[corner]):
            unary[net.first[v] + x] = take_common(
                net.entries, start + x * steps[corner], (sizes[one], sizes[two]), (steps[one], steps[two])
            )
        take_smallest(net, unary, bound, v)
    for number in range(3):
        side = 2 - number if forward else number
        one, two, other = (1 if side == 2 else 0), (1 if side == 0 else 2), 2 - side
        cell = net.cell_at[net.sides[t, side]]
        for x in range(sizes[one]):
            for y in range(sizes[two]):
                net.cells[cell] = take_common(
                    net.entries, start + x * steps[one] + y * steps[two], (1, sizes[other]), (0, steps[other])
                )
                cell += 1
    for at in range(start, start + sizes[0] * steps[0]):
        if net.entries[at] == FORBIDDEN:
            net.entries[at] = 0


@njit(nogil=True, allocates=False)
def pass_over(net, unary, bound, forward, halt):
    """Move the costs of all pairs and triples once, in the order of their first or last variables; stop if halted."""
    pairs, triples = net.cell_at.size, net.entry_at.size
    for number in range(pairs):
        if halt[0]:
            return
        move_costs_of_pair(net, unary, bound, number if forward else pairs - 1 - number, forward)
    for number in range(triples):
        if halt[0]:
            return
        move_costs_of_triple(net, unary, bound, number if forward else triples - 1 - number, forward)
