# mypy: ignore-errors
"""Greedy elimination orders: each step takes the vertex that a rule finds cheapest now, with random noise if wanted.

Costs are integers and kept up to date as edges come and go, so that they never depend on rounding:

* min-fill: the edges that eliminating v would add; weighted-min-fill: the same, each as the product of its ends'
  weights; min-weight: the weights of v and its neighbours; min-degree: its neighbours. Weights are scaled log2 of
  domain sizes.
* Eliminating v with neighbours N: each u ∈ N loses v, and with it the missing edges v-x for x ∈ N(u) \\ N(v); each
  new edge a-b is no longer missing for the common neighbours of a and b, and makes a's neighbours that b lacks
  missing edges of a (and b's of b).

Work is counted in touched words, about 2 ns each; it, not the clock, limits the search.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import ONE, bit, lowest, members, popcount
from dmcmc.inference.runtime.compile import njit

MIN_FILL, MIN_WEIGHT, WEIGHTED_MIN_FILL, MIN_DEGREE = range(4)
CAP = 1e300  # cells are cut off here: still finite when a few million are summed


@njit(nogil=True)
def random_word(state):
    """Return the next word of a xorshift generator (Marsaglia 2003); ``state`` (1,) is never zero."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return x


@njit(nogil=True)
def random_unit(state):
    """Return a float in [0, 1) with 31 random bits."""
    return np.int64(random_word(state) >> np.uint64(33)) * (1.0 / 2147483648.0)


@njit(nogil=True)
def seeded(seed):
    """Return a generator's state for a seed."""
    state = np.empty(1, dtype=np.uint64)
    state[0] = (np.uint64(seed) + ONE) * np.uint64(0x9E3779B97F4A7C15) | ONE
    for _ in range(8):
        random_word(state)
    return state


@njit(nogil=True)
def _total(word, k, weight, plain):
    """Return the weight of the vertices in word k of a row; their number if plain."""
    if plain:
        return popcount(word)
    total = np.int64(0)
    while word:
        total += weight[k * 64 + lowest(word)]
        word &= word - ONE
    return total


@njit(nogil=True)
def _beyond(graph, a, b, weight, plain):
    """Return the weight of N(a) \\ N[b]."""
    total = np.int64(0)
    for k in range(graph.shape[1]):
        word = graph[a, k] & ~graph[b, k]
        if k == b >> 6:
            word &= ~bit(b)
        total += _total(word, k, weight, plain)
    return total


@njit(nogil=True)
def first_costs(graph, weight, eliminate, rule):
    """Return each vertex's cost under a rule, (n,) int64, and the work; kept ones, from ``eliminate`` on, cost 0."""
    n, words = graph.shape
    cost = np.zeros(n, dtype=np.int64)
    near = np.empty(n, dtype=np.int64)
    work = 0
    for v in range(eliminate):
        degree = members(graph[v], near)
        work += words + degree
        if rule == MIN_DEGREE:
            cost[v] = degree
        elif rule == MIN_WEIGHT:
            cost[v] = weight[v]
            for i in range(degree):
                cost[v] += weight[near[i]]
        else:
            plain = rule == MIN_FILL
            for i in range(degree):
                u = near[i]
                cost[v] += (1 if plain else weight[u]) * _beyond(graph, v, u, weight, plain)
            cost[v] //= 2
            work += degree * (words + 2)
    return cost, work


@njit(nogil=True)
def _cheapest(cost, todo, left, noise, ties, state):
    """Return the place in ``todo`` of the cheapest vertex.

    Without noise, ties go to the smaller ``ties``; with it, each cost is multiplied by 1 + noise·U[0, 1).
    """
    place = 0
    if noise > 0:
        best = np.inf
        for i in range(left):
            value = cost[todo[i]] * (1.0 + noise * random_unit(state))
            if value < best:
                best, place = value, i
        return place
    v = todo[0]
    for i in range(1, left):
        u = todo[i]
        if cost[u] < cost[v] or (cost[u] == cost[v] and ties[u] < ties[v]):
            v, place = u, i
    return place


@njit(nogil=True)
def _connect(graph, cost, a, b, weight, plain):
    """Add edge a-b and bring the fill costs up to date; return the work."""
    words = graph.shape[1]
    left, right = np.int64(0), np.int64(0)
    edge = np.int64(1) if plain else weight[a] * weight[b]
    work = 3 * words + 4
    for k in range(words):
        of_a, of_b = graph[a, k], graph[b, k]
        left += _total(of_a & ~of_b, k, weight, plain)
        right += _total(of_b & ~of_a, k, weight, plain)
        common = of_a & of_b
        while common:
            cost[k * 64 + lowest(common)] -= edge
            common &= common - ONE
            work += 1
    cost[a] += left if plain else weight[b] * left
    cost[b] += right if plain else weight[a] * right
    graph[a, b >> 6] |= bit(b)
    graph[b, a >> 6] |= bit(a)
    return work


@njit(nogil=True)
def _remove(graph, cost, v, near, degree, weight, rule):
    """Eliminate v: take it from its neighbours and make them a clique, with costs up to date; return the work."""
    words = graph.shape[1]
    fills = rule in (MIN_FILL, WEIGHTED_MIN_FILL)
    plain = rule == MIN_FILL
    work = degree * words
    for i in range(degree):
        u = near[i]
        if fills:
            cost[u] -= (1 if plain else weight[v]) * _beyond(graph, u, v, weight, plain)
        else:
            cost[u] -= 1 if rule == MIN_DEGREE else weight[v]
        graph[u, v >> 6] &= ~bit(v)
    if plain and cost[v] == 0:
        return work
    for i in range(degree):
        a = near[i]
        for k in range(words):
            new = graph[v, k] & ~graph[a, k]
            if k == a >> 6:
                new &= ~bit(a)
            if not fills:
                graph[a, k] |= new
                cost[a] += _total(new, k, weight, rule == MIN_DEGREE)
                continue
            while new:
                work += _connect(graph, cost, a, k * 64 + lowest(new), weight, plain)
                new &= new - ONE
    return work + degree * (words + 2)


@njit(nogil=True)
def greedy(graph, cost, sizes, weight, eliminate, rule, noise, ties, state, limit, work_limit, order):
    """Eliminate vertices 0..eliminate−1 greedily.

    Parameters
    ----------
    graph : (n, words) uint64
        Consumed.
    cost : (n,) int64
        From :func:`first_costs`; consumed.
    sizes : (n,) float64
        Domain sizes.
    weight : (n,) int64
        Scaled log2 of the sizes.
    noise, ties, state
        See :func:`_cheapest`.
    limit, work_limit : float
        Abandon the order when its cells reach ``limit`` or its work exceeds ``work_limit``.
    order : (eliminate,) int64
        Receives the order.

    Returns
    -------
    cells : float
        Σ over buckets of the joined table's cells; inf if the order was abandoned.
    work : int
        Words touched.
    """
    todo = np.arange(eliminate)
    near = np.empty(graph.shape[0], dtype=np.int64)
    total, work = 0.0, 0
    for step in range(eliminate):
        left = eliminate - step
        place = _cheapest(cost, todo, left, noise, ties, state)
        v = todo[place]
        todo[place] = todo[left - 1]
        order[step] = v
        degree = members(graph[v], near)
        cells = sizes[v]
        for i in range(degree):
            cells = min(cells * sizes[near[i]], CAP)
        total += cells
        work += left + graph.shape[1] + 2 * degree + 8
        if total >= limit or work > work_limit:
            return np.inf, work
        work += _remove(graph, cost, v, near, degree, weight, rule)
    return total, work
