# mypy: ignore-errors
"""Small vertex separators of a graph, from lopsided to balanced, by maximum flows.

FlowCutter (Hamann & Strasser, Graph Bisection with Pareto Optimization, 2018) for weighted vertices: a smallest cut
between two vertices first; then one side takes in a vertex of the cut, so that the next cut is more balanced and not
much heavier. Each vertex v is two nodes, in and out, with an arc of capacity ``weight[v]`` between them; arcs between
vertices have no limit.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import ONE, lowest
from dmcmc.inference.orders.greedy_kernels import random_unit
from dmcmc.inference.runtime.compile import njit

_FREE, _SOURCE, _TARGET = 0, 1, 2
_CUTS = 64  # of one search
_SHAPES = 3  # of cuts that are tried
_BLOCKED = 1e6  # what opens a path is taken only where nothing else is left


@njit(nogil=True)
def neighbour_lists(graph, count):
    """Return the graph among vertices 0..count−1 as lists: starts (count+1,), neighbours, and each arc's opposite."""
    start = np.zeros(count + 1, dtype=np.int32)
    words = (count + 63) >> 6
    arcs = 0
    for fill in range(2):
        if fill:
            ends = np.empty(arcs, dtype=np.int32)
            arcs = 0
        for v in range(count):
            for k in range(words):
                word = graph[v, k]
                while word:
                    u = k * 64 + lowest(word)
                    word &= word - ONE
                    if u < count:
                        if fill:
                            ends[arcs] = u
                        arcs += 1
            start[v + 1] = arcs
    opposite = np.empty(arcs, dtype=np.int32)
    filled = start[:-1].copy()
    for v in range(count):  # ascending in v, as every list is
        for a in range(start[v], start[v + 1]):
            opposite[a] = filled[ends[a]]
            filled[ends[a]] += 1
    return start, ends, opposite


@njit(nogil=True)
def farthest(start, ends, source, distance, queue, state):
    """Write distances from ``source`` (−1: none) and return one of the farthest vertices that can be reached."""
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


@njit(nogil=True)
def _search(start, ends, opposite, weight, through, flow, side, forward, seen, came, queue, tail):
    """Search the residual graph from the nodes in ``queue``; return a node of the other side (−1: none).

    Nodes are 2v (in) and 2v + 1 (out). Forward, flow may be added along out → in and taken back along in → out;
    backward everything is turned round.
    """
    other = _TARGET if forward else _SOURCE
    first = 0 if forward else 1  # parity of a vertex's first node in this direction
    head = 0
    while head < tail:
        node = queue[head]
        head += 1
        v = node >> 1
        entered = (node & 1) == first
        open_ = through[v] < weight[v] or side[v] != _FREE if entered else through[v] > 0
        if open_ and not seen[node ^ 1]:
            seen[node ^ 1] = True
            came[node ^ 1] = -1
            queue[tail] = node ^ 1
            tail += 1
        for a in range(start[v], start[v + 1]):
            # From the second node to neighbours' first ones; from the first one back along flow that came in.
            if entered and flow[opposite[a] if forward else a] == 0:
                continue
            near = 2 * ends[a] + ((1 - first) if entered else first)
            if not seen[near]:
                seen[near] = True
                came[near] = a
                queue[tail] = near
                tail += 1
                if side[near >> 1] == other:
                    return near
    return -1


@njit(nogil=True)
def _all_reached(start, ends, opposite, weight, through, flow, side, forward, seen, came, queue):
    """Search from all vertices of a side; return where it met the other one (−1: nowhere)."""
    seen[:] = False
    tail = 0
    own = _SOURCE if forward else _TARGET
    for v in range(side.size):
        if side[v] == own:
            for node in (2 * v, 2 * v + 1):
                seen[node] = True
                came[node] = -2
                queue[tail] = node
                tail += 1
    return _search(start, ends, opposite, weight, through, flow, side, forward, seen, came, queue, tail)


@njit(nogil=True)
def _augment(met, ends, opposite, weight, through, flow, side, came):
    """Send what fits along the path that ends in ``met``; return how much."""
    amount = np.int64(1) << 60
    for change in range(2):
        node = met
        while came[node] != -2:
            v, a = node >> 1, came[node]
            if a == -1:
                if change:
                    through[v] += amount if node & 1 else -amount
                elif side[v] == _FREE:
                    amount = min(amount, weight[v] - through[v] if node & 1 else through[v])
                node ^= 1
            elif node & 1:  # taken back: v's flow into the vertex that the search came from
                back = opposite[a]
                if change:
                    flow[back] -= amount
                else:
                    amount = min(amount, flow[back])
                node = 2 * ends[back]
            else:
                if change:
                    flow[a] += amount
                node = 2 * ends[opposite[a]] + 1
    return amount


@njit(nogil=True)
def _pierce(start, ends, side, own, first, seen, across, near, far, state):
    """Return the best vertex of a side's cut to take in, −1 if there is none, and whether it opens a new path."""
    other = _SOURCE + _TARGET - own
    best, best_value, best_opens = -1, -np.inf, False
    for v in range(side.size):
        if not seen[2 * v + first] or seen[2 * v + 1 - first]:
            continue
        blocked = False
        for a in range(start[v], start[v + 1]):
            blocked |= side[ends[a]] == other
        if blocked:
            continue
        opens = across[2 * v + 1 - first]
        value = far[v] - near[v] + random_unit(state) - (_BLOCKED if opens else 0.0)
        if value > best_value:
            best, best_value, best_opens = v, value, opens
    return best, best_opens


@njit(nogil=True)
def balanced_cuts(start, ends, opposite, weight, source, target, limit, cuts, heavy, smaller, state):
    """Write smallest cuts between two vertices, more and more balanced ones, and return their number and the work.

    Parameters
    ----------
    start, ends, opposite
        From :func:`neighbour_lists`; vertices 0..n−1.
    weight : (n,) int64
        Positive.
    source, target : int
        No neighbours.
    limit : int
        No cut heavier than this.
    cuts : (c, n) bool
        Receives the cuts, the lightest first; of those of one weight the last one only.
    heavy, smaller : (c,) int64
        Receive each one's weight, and the vertices on its smaller side.
    state
        A random generator's.
    """
    n = weight.size
    queue = np.empty(2 * n, dtype=np.int32)
    near, far = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    farthest(start, ends, source, near, queue, state)
    farthest(start, ends, target, far, queue, state)
    through, flow = np.zeros(n, dtype=np.int64), np.zeros(ends.size, dtype=np.int64)
    side = np.zeros(n, dtype=np.int8)
    side[source], side[target] = _SOURCE, _TARGET
    ahead, behind = np.zeros(2 * n, dtype=np.bool_), np.zeros(2 * n, dtype=np.bool_)
    came = np.empty(2 * n, dtype=np.int32)
    total, found, work = np.int64(0), 0, 2 * ends.size
    again = True
    while True:
        if again:
            while True:
                met = _all_reached(start, ends, opposite, weight, through, flow, side, True, ahead, came, queue)
                work += 2 * n + ends.size
                if met < 0:
                    break
                total += _augment(met, ends, opposite, weight, through, flow, side, came)
                if total > limit:
                    return found, work
            _all_reached(start, ends, opposite, weight, through, flow, side, False, behind, came, queue)
            work += 2 * n + ends.size
        left = right = lost = gained = 0
        for v in range(n):
            if ahead[2 * v + 1]:
                left += 1
                side[v] = _SOURCE
            elif ahead[2 * v]:
                lost += 1
            if behind[2 * v]:
                right += 1
                side[v] = _TARGET
            elif behind[2 * v + 1]:
                gained += 1
        forward = left <= right
        v = -1
        opens = False
        for _ in range(2):
            if forward:
                v, opens = _pierce(start, ends, side, _SOURCE, 0, ahead, behind, near, far, state)
            else:
                v, opens = _pierce(start, ends, side, _TARGET, 1, behind, ahead, far, near, state)
            if v >= 0:
                break
            forward = not forward
        work += 4 * n
        ended = v < 0 or 2 * min(left, right) + max(lost, gained) >= n
        if opens or ended:
            a, b = min(left, n - left - lost), min(right, n - right - gained)
            if found and heavy[found - 1] == total:
                found -= 1
            if found == cuts.shape[0]:
                return found, work
            for u in range(n):
                cuts[found, u] = (
                    ahead[2 * u] and not ahead[2 * u + 1] if a >= b else behind[2 * u + 1] and not behind[2 * u]
                )
            heavy[found], smaller[found] = total, max(a, b)
            found += 1
            if ended:
                return found, work
        side[v] = _SOURCE if forward else _TARGET
        again = opens
        if not again:
            seen = ahead if forward else behind
            node = 2 * v + 1 if forward else 2 * v
            seen[node] = True
            came[node] = -2
            queue[0] = node
            _search(start, ends, opposite, weight, through, flow, side, forward, seen, came, queue, 1)
            work += 16


@njit(nogil=True)
def cut_orders(local, weight, count, heaviest, state):
    """Return orders of a piece, (c, count), that end in a balanced cut each, and the work.

    Parameters
    ----------
    local : (m, words) uint64
        The piece's graph, its vertices 0..count−1 in the order that they have.
    weight : (m,) int64
    heaviest : int
        No cut that weighs more.
    """
    start, ends, opposite = neighbour_lists(local, count)
    distance, queue = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
    source = int(count * random_unit(state))
    target = farthest(start, ends, source, distance, queue, state)
    if random_unit(state) < 0.5:
        source = target
        target = farthest(start, ends, source, distance, queue, state)
    orders = np.empty((_SHAPES, count), dtype=np.int64)
    if distance[target] < 2:
        return orders[:0], 2 * ends.size
    cuts = np.empty((_CUTS, count), dtype=np.bool_)
    heavy, smaller = np.empty(_CUTS, dtype=np.int64), np.empty(_CUTS, dtype=np.int64)
    found, work = balanced_cuts(
        start, ends, opposite, weight[:count], source, target, heaviest, cuts, heavy, smaller, state
    )
    made, before = 0, -1
    for shape in range(_SHAPES):
        power = 0.25 * 2.0**shape  # of the smaller side: how much balance is worth
        chosen, least = -1, np.inf
        for c in range(found):
            value = heavy[c] / smaller[c] ** power if smaller[c] else np.inf
            if value < least:
                chosen, least = c, value
        if chosen < 0 or chosen == before:
            continue
        before = chosen
        done = 0
        for late in range(2):
            for v in range(count):
                if cuts[chosen, v] == (late == 1):
                    orders[made, done] = v
                    done += 1
        made += 1
    return orders[:made], work + 2 * ends.size + made * count
