# mypy: ignore-errors
"""Find small vertex separators of a graph, from unbalanced to balanced, by maximum flows.

FlowCutter (Hamann & Strasser, Graph Bisection with Pareto Optimization, 2018) for weighted vertices. A cut is a set of
vertices whose removal separates the source side from the target side; its weight is the sum of their weights. The
method starts with a minimum cut between two vertices. Then one side takes in a vertex of the cut (it is "pierced"), so
that the next cut is more balanced and not much heavier. Each vertex v is two nodes, in (2v) and out (2v + 1), with an
arc of capacity ``weight[v]`` between them; arcs between vertices have no limit. Arguments of all functions:

* ``start`` (n + 1,), ``ends`` (arcs,), ``opposite`` (arcs,) int32: neighbour lists, see :func:`neighbour_lists`;
* ``weight`` (n,) int64: capacities, log2 of the domain sizes in units of 1/256 bit; ``through`` (n,) int64 and ``flow``
  (arcs,) int64: the flow through vertices and arcs;
* ``side`` (n,) int8: ``_FREE``, ``_SOURCE`` or ``_TARGET``; ``forward``: whether to search from the source side;
* ``seen`` (2n,) bool: reached nodes; ``came`` (2n,) int32: the arc that reached a node, −1 for an arc inside a vertex,
  −2 for a start; ``queue`` (2n,) int32: scratch;
* ``state`` (1,) uint64: a random generator's state.

Returned work counts the nodes and arcs that were visited, about.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import ONE, lowest, random_unit
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.tuning import MAX_CUTS

# Codes of ``side``: which side has taken in a vertex.
_FREE = 0
_SOURCE = 1
_TARGET = 2
_BALANCES = 3  # number of exponents of the balance for which the best cut is tried
# Larger than differences of distances: a vertex whose piercing opens an augmenting path comes last.
_NEW_PATH_PENALTY = 1e6


@njit(nogil=True)
def neighbour_lists(graph, count):
    """Return the graph among vertices 0..count−1 as neighbour lists.

    Returns
    -------
    start : (count + 1,) int32
        First arc of each vertex, and the end of the last one's.
    ends : (arcs,) int32
        The vertex that each arc leads to, ascending per vertex.
    opposite : (arcs,) int32
        The reverse of each arc.
    """
    start = np.zeros(count + 1, dtype=np.int32)
    words = (count + 63) >> 6
    arcs = 0
    for is_second_pass in range(2):
        if is_second_pass:
            ends = np.empty(arcs, dtype=np.int32)
            arcs = 0
        for v in range(count):
            for k in range(words):
                word = graph[v, k]
                while word:
                    u = k * 64 + lowest(word)
                    word &= word - ONE
                    if u < count:
                        if is_second_pass:
                            ends[arcs] = u
                        arcs += 1
            start[v + 1] = arcs
    opposite = np.empty(arcs, dtype=np.int32)
    filled = start[:-1].copy()
    for v in range(count):  # v is ascending, as each list is
        for a in range(start[v], start[v + 1]):
            opposite[a] = filled[ends[a]]
            filled[ends[a]] += 1
    return start, ends, opposite


@njit(nogil=True)
def farthest(start, ends, source, distance, queue, state):
    """Compute distances from ``source`` and return a random one of the farthest vertices that can be reached.

    ``distance`` (n,) int32 receives the distances, −1 for unreachable vertices.
    """
    distance[:] = -1
    distance[source] = 0
    queue[0] = source
    head, tail = 0, 1
    while head < tail:
        v = queue[head]
        head += 1
        for a in range(start[v], start[v + 1]):
            u = ends[a]
            if distance[u] < 0:
                distance[u] = distance[v] + 1
                queue[tail] = u
                tail += 1
    last = queue[tail - 1]
    first = tail - 1
    while first > 0 and distance[queue[first - 1]] == distance[last]:
        first -= 1
    return queue[first + int((tail - first) * random_unit(state))]


@njit(nogil=True, allocates=False)
def _search_residual(start, ends, opposite, weight, through, flow, side, forward, seen, came, queue, tail):
    """Search the residual graph from the ``tail`` nodes in ``queue``; return a node of the other side, −1 for none.

    Forward, flow may be added along out → in and withdrawn along in → out; backward, all arcs are reversed.
    """
    other_side = _TARGET if forward else _SOURCE
    entry_parity = 0 if forward else 1  # parity of the node by which a search in this direction enters a vertex
    head = 0
    while head < tail:
        node = queue[head]
        head += 1
        v = node >> 1
        is_entry = (node & 1) == entry_parity
        has_capacity = through[v] < weight[v] or side[v] != _FREE if is_entry else through[v] > 0
        if has_capacity and not seen[node ^ 1]:
            seen[node ^ 1] = True
            came[node ^ 1] = -1
            queue[tail] = node ^ 1
            tail += 1
        for a in range(start[v], start[v + 1]):
            # From the second node to neighbours' first nodes; from the first node back along incoming flow.
            if is_entry and flow[opposite[a] if forward else a] == 0:
                continue
            neighbour = 2 * ends[a] + ((1 - entry_parity) if is_entry else entry_parity)
            if not seen[neighbour]:
                seen[neighbour] = True
                came[neighbour] = a
                queue[tail] = neighbour
                tail += 1
                if side[neighbour >> 1] == other_side:
                    return neighbour
    return -1


@njit(nogil=True)
def _search_from_side(start, ends, opposite, weight, through, flow, side, forward, seen, came, queue):
    """Search from all vertices of a side; return the node where it meets the other side, −1 for none."""
    seen[:] = False
    tail = 0
    start_side = _SOURCE if forward else _TARGET
    for v in range(side.size):
        if side[v] == start_side:
            for node in (2 * v, 2 * v + 1):
                seen[node] = True
                came[node] = -2
                queue[tail] = node
                tail += 1
    return _search_residual(start, ends, opposite, weight, through, flow, side, forward, seen, came, queue, tail)


@njit(nogil=True, allocates=False)
def _augment(meeting_node, ends, opposite, weight, through, flow, side, came):
    """Augment the flow along the path that ends in node ``meeting_node``; return the amount.

    The first pass along the path finds the amount, the second one applies it.
    """
    amount = np.int64(1) << 60
    for is_second_pass in range(2):
        node = meeting_node
        while came[node] != -2:
            v, a = node >> 1, came[node]
            if a == -1:
                if is_second_pass:
                    through[v] += amount if node & 1 else -amount
                elif side[v] == _FREE:
                    amount = min(amount, weight[v] - through[v] if node & 1 else through[v])
                node ^= 1
            elif node & 1:  # withdraw flow from v into the vertex that the search came from
                reverse_arc = opposite[a]
                if is_second_pass:
                    flow[reverse_arc] -= amount
                else:
                    amount = min(amount, flow[reverse_arc])
                node = 2 * ends[reverse_arc]
            else:
                if is_second_pass:
                    flow[a] += amount
                node = 2 * ends[opposite[a]] + 1
    return amount


@njit(nogil=True, allocates=False)
def _pierce(start, ends, side, pierced_side, entry_parity, seen, reached_backward, own_distance, other_distance, state):
    """Return the best vertex of a side's cut to take in (−1 for none), and whether that opens an augmenting path.

    Parameters
    ----------
    pierced_side : int
        The side, ``_SOURCE`` or ``_TARGET``.
    entry_parity : int
        Parity of the node by which a search from this side enters a vertex: 0 (in) or 1 (out).
    seen, reached_backward : (2n,) bool
        Nodes reached from this side, and from the other one.
    own_distance, other_distance : (n,) int32
        Distances from this side's first vertex and from the other side's.
    """
    other = _SOURCE + _TARGET - pierced_side
    best, best_value, best_opens_path = -1, -np.inf, False
    for v in range(side.size):
        if not seen[2 * v + entry_parity] or seen[2 * v + 1 - entry_parity]:
            continue
        blocked = False
        for a in range(start[v], start[v + 1]):
            blocked |= side[ends[a]] == other
        if blocked:
            continue
        opens_path = reached_backward[2 * v + 1 - entry_parity]
        value = other_distance[v] - own_distance[v] + random_unit(state) - (_NEW_PATH_PENALTY if opens_path else 0.0)
        if value > best_value:
            best, best_value, best_opens_path = v, value, opens_path
    return best, best_opens_path


@njit(nogil=True)
def balanced_cuts(start, ends, opposite, weight, source, target, limit, cuts, cut_weights, smaller_sides, state):
    """Write minimum cuts between two vertices, more and more balanced; return their number and the work.

    Parameters
    ----------
    start, ends, opposite
        From :func:`neighbour_lists`; vertices 0..n−1.
    weight : (n,) int64
        Positive.
    source, target : int
        Two vertices that are not adjacent.
    limit : int
        Maximum weight of a cut.
    cuts : (c, n) bool
        Receives the masks of the cuts, the lightest first; only the last one of each weight.
    cut_weights, smaller_sides : (c,) int64
        Receive each cut's weight, and the number of vertices on its smaller side.
    state : (1,) uint64
        A random generator's state.
    """
    n = weight.size
    queue = np.empty(2 * n, dtype=np.int32)
    source_distance, target_distance = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    farthest(start, ends, source, source_distance, queue, state)
    farthest(start, ends, target, target_distance, queue, state)
    through, flow = np.zeros(n, dtype=np.int64), np.zeros(ends.size, dtype=np.int64)
    side = np.zeros(n, dtype=np.int8)
    side[source], side[target] = _SOURCE, _TARGET
    from_source, from_target = np.zeros(2 * n, dtype=np.bool_), np.zeros(2 * n, dtype=np.bool_)
    came = np.empty(2 * n, dtype=np.int32)
    total, n_cuts, work = np.int64(0), 0, 2 * ends.size
    flow_may_grow = True
    while True:
        if flow_may_grow:
            while True:
                meeting_node = _search_from_side(
                    start, ends, opposite, weight, through, flow, side, True, from_source, came, queue
                )
                work += 2 * n + ends.size
                if meeting_node < 0:
                    break
                total += _augment(meeting_node, ends, opposite, weight, through, flow, side, came)
                if total > limit:
                    return n_cuts, work
            _search_from_side(start, ends, opposite, weight, through, flow, side, False, from_target, came, queue)
            work += 2 * n + ends.size
        # Each side takes in what it reaches; the vertices that it enters but cannot pass are its cut.
        n_source = n_target = source_cut = target_cut = 0
        for v in range(n):
            if from_source[2 * v + 1]:
                n_source += 1
                side[v] = _SOURCE
            elif from_source[2 * v]:
                source_cut += 1
            if from_target[2 * v]:
                n_target += 1
                side[v] = _TARGET
            elif from_target[2 * v + 1]:
                target_cut += 1
        # Pierce the cut of the smaller side; the other side's if that is impossible.
        forward = n_source <= n_target
        v = -1
        opens_path = False
        for _ in range(2):
            if forward:
                v, opens_path = _pierce(
                    start, ends, side, _SOURCE, 0, from_source, from_target, source_distance, target_distance, state
                )
            else:
                v, opens_path = _pierce(
                    start, ends, side, _TARGET, 1, from_target, from_source, target_distance, source_distance, state
                )
            if v >= 0:
                break
            forward = not forward
        work += 4 * n
        is_last = v < 0 or 2 * min(n_source, n_target) + max(source_cut, target_cut) >= n
        # The next flow is larger: record the current cut, of the two the more balanced one.
        if opens_path or is_last:
            smaller_by_source = min(n_source, n - n_source - source_cut)
            smaller_by_target = min(n_target, n - n_target - target_cut)
            if n_cuts and cut_weights[n_cuts - 1] == total:
                n_cuts -= 1
            if n_cuts == cuts.shape[0]:
                return n_cuts, work
            for u in range(n):
                cuts[n_cuts, u] = (
                    from_source[2 * u] and not from_source[2 * u + 1]
                    if smaller_by_source >= smaller_by_target
                    else from_target[2 * u + 1] and not from_target[2 * u]
                )
            cut_weights[n_cuts], smaller_sides[n_cuts] = total, max(smaller_by_source, smaller_by_target)
            n_cuts += 1
            if is_last:
                return n_cuts, work
        side[v] = _SOURCE if forward else _TARGET
        flow_may_grow = opens_path
        if not flow_may_grow:
            seen = from_source if forward else from_target
            node = 2 * v + 1 if forward else 2 * v
            seen[node] = True
            came[node] = -2
            queue[0] = node
            _search_residual(start, ends, opposite, weight, through, flow, side, forward, seen, came, queue, 1)
            work += 16


@njit(nogil=True)
def cut_orders(local, weight, count, heaviest, state):
    """Return orders of a piece that end with a balanced cut each, (c, count) int64, and the work.

    For each exponent p = 1/4, 1/2 and 1, the chosen cut minimises weight / (size of the smaller side)^p. No order is
    returned if all vertices that can be reached from the start of the search are adjacent to it.

    Parameters
    ----------
    local : (m, words) uint64
        The piece's graph as rows of bits, its vertices 0..count−1 in their current order.
    weight : (m,) int64
        log2 of the domain sizes in units of 1/256 bit.
    count : int
        The number of vertices of the piece.
    heaviest : int
        Maximum weight of a cut.
    state : (1,) uint64
        A random generator's state.
    """
    start, ends, opposite = neighbour_lists(local, count)
    distance, queue = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
    source = int(count * random_unit(state))
    target = farthest(start, ends, source, distance, queue, state)
    if random_unit(state) < 0.5:
        source = target
        target = farthest(start, ends, source, distance, queue, state)
    orders = np.empty((_BALANCES, count), dtype=np.int64)
    if distance[target] < 2:
        return orders[:0], 2 * ends.size
    cuts = np.empty((MAX_CUTS, count), dtype=np.bool_)
    cut_weights, smaller_sides = np.empty(MAX_CUTS, dtype=np.int64), np.empty(MAX_CUTS, dtype=np.int64)
    found, work = balanced_cuts(
        start, ends, opposite, weight[:count], source, target, heaviest, cuts, cut_weights, smaller_sides, state
    )
    n_orders, previous = 0, -1
    for balance in range(_BALANCES):
        power = 0.25 * 2.0**balance  # exponent of the smaller side's size; larger values favour balance
        chosen, least_value = -1, np.inf
        for c in range(found):
            value = cut_weights[c] / smaller_sides[c] ** power if smaller_sides[c] else np.inf
            if value < least_value:
                chosen, least_value = c, value
        if chosen < 0 or chosen == previous:
            continue
        previous = chosen
        n_written = 0
        for in_cut in range(2):
            for v in range(count):
                if cuts[chosen, v] == (in_cut == 1):
                    orders[n_orders, n_written] = v
                    n_written += 1
        n_orders += 1
    return orders[:n_orders], work + 2 * ends.size + n_orders * count
