# mypy: ignore-errors
r"""Greedy elimination orders: each step eliminates the cheapest vertex of a rule, optionally with random noise.

The vertices from ``eliminate`` on are never eliminated; they are the kept variables. The cost of vertex v is

* min-fill: the number of edges that eliminating v would add;
* weighted-min-fill: the sum, over these edges, of the product of their ends' weights;
* min-weight: the sum of the weights of v and its neighbours;
* min-degree: the number of neighbours.

Weights are scaled log2 of domain sizes. Costs are integers, so they never depend on rounding, and they are updated
incrementally. Eliminating v with neighbours N removes v from each u ∈ N; the missing edges v-x for x ∈ N(u) \ N(v) then
no longer count for u. Each new edge a-b is no longer missing for the common neighbours of a and b. It also makes a
missing edge of b from each a-x with x ∈ N(b) \ N(a), and a missing edge of a from each b-x with x ∈ N(a) \ N(b).

Work is counted in accessed words, about 2 ns each. The search is limited by work and not by the clock, so that it is
reproducible. Arguments that several functions share:

* ``graph`` (n, words) uint64: rows of bits, see ``bitset_kernels``;
* ``cost`` (n,) int64: the rule's cost per vertex; ``weight`` (n,) int64: scaled log2 of the domain sizes;
* ``plain``: whether each vertex weighs 1 instead;
* ``rule``: MIN_FILL, MIN_WEIGHT, WEIGHTED_MIN_FILL or MIN_DEGREE;
* ``state`` (1,) uint64: a random generator's state.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import MAX_CELLS, ONE, bit, lowest, members, popcount, random_unit
from dmcmc.inference.runtime.compile import njit

MIN_FILL, MIN_WEIGHT, WEIGHTED_MIN_FILL, MIN_DEGREE = range(4)


@njit(nogil=True, allocates=False)
def _weight_of_word(word, k, weight, plain):
    """Return the weight of the vertices in word k of a row; their number if ``plain``."""
    if plain:
        return popcount(word)
    total = np.int64(0)
    while word:
        total += weight[k * 64 + lowest(word)]
        word &= word - ONE
    return total


@njit(nogil=True, allocates=False)
def _weight_outside(graph, a, b, weight, plain):
    r"""Return the weight of N(a) \ N[b]: the neighbours of a that are neither b nor adjacent to b."""
    total = np.int64(0)
    for k in range(graph.shape[1]):
        word = graph[a, k] & ~graph[b, k]
        if k == b >> 6:
            word &= ~bit(b)
        total += _weight_of_word(word, k, weight, plain)
    return total


@njit(nogil=True)
def first_costs(graph, weight, eliminate, rule):
    """Return each vertex's cost under a rule, (n,) int64, and the work; vertices from ``eliminate`` on have cost 0."""
    n, words = graph.shape
    cost = np.zeros(n, dtype=np.int64)
    neighbours = np.empty(n, dtype=np.int64)
    work = 0
    for v in range(eliminate):
        degree = members(graph[v], neighbours)
        work += words + degree
        if rule == MIN_DEGREE:
            cost[v] = degree
        elif rule == MIN_WEIGHT:
            cost[v] = weight[v]
            for i in range(degree):
                cost[v] += weight[neighbours[i]]
        else:
            plain = rule == MIN_FILL
            for i in range(degree):
                u = neighbours[i]
                cost[v] += (1 if plain else weight[u]) * _weight_outside(graph, v, u, weight, plain)
            cost[v] //= 2
            work += degree * (words + 2)
    return cost, work


@njit(nogil=True, allocates=False)
def _cheapest(cost, remaining_vertices, count, noise, ties, state):
    """Return the position in ``remaining_vertices`` (n,) int64 of the cheapest of its first ``count`` vertices.

    Without noise, ties go to the vertex with the smaller entry of ``ties``. With noise, each cost is multiplied by
    1 + noise·U[0, 1).
    """
    position = 0
    if noise > 0:
        best = np.inf
        for i in range(count):
            value = cost[remaining_vertices[i]] * (1.0 + noise * random_unit(state))
            if value < best:
                best, position = value, i
        return position
    v = remaining_vertices[0]
    for i in range(1, count):
        u = remaining_vertices[i]
        if cost[u] < cost[v] or (cost[u] == cost[v] and ties[u] < ties[v]):
            v, position = u, i
    return position


@njit(nogil=True, allocates=False)
def _connect(graph, cost, a, b, weight, plain):
    """Add edge a-b and update the fill costs of a, b and their common neighbours; return the work."""
    words = graph.shape[1]
    missing_of_a, missing_of_b = np.int64(0), np.int64(0)
    edge = np.int64(1) if plain else weight[a] * weight[b]
    work = 3 * words + 4
    for k in range(words):
        row_a, row_b = graph[a, k], graph[b, k]
        missing_of_a += _weight_of_word(row_a & ~row_b, k, weight, plain)
        missing_of_b += _weight_of_word(row_b & ~row_a, k, weight, plain)
        common = row_a & row_b
        while common:
            cost[k * 64 + lowest(common)] -= edge
            common &= common - ONE
            work += 1
    cost[a] += missing_of_a if plain else weight[b] * missing_of_a
    cost[b] += missing_of_b if plain else weight[a] * missing_of_b
    graph[a, b >> 6] |= bit(b)
    graph[b, a >> 6] |= bit(a)
    return work


@njit(nogil=True, allocates=False)
def _remove(graph, cost, v, neighbours, degree, weight, rule):
    """Eliminate v, make the first ``degree`` vertices of ``neighbours`` a clique, update costs; return the work."""
    words = graph.shape[1]
    fills = rule in (MIN_FILL, WEIGHTED_MIN_FILL)
    plain = rule == MIN_FILL
    work = degree * words
    for i in range(degree):
        u = neighbours[i]
        if fills:
            cost[u] -= (1 if plain else weight[v]) * _weight_outside(graph, u, v, weight, plain)
        else:
            cost[u] -= 1 if rule == MIN_DEGREE else weight[v]
        graph[u, v >> 6] &= ~bit(v)
    if plain and cost[v] == 0:
        return work
    for i in range(degree):
        a = neighbours[i]
        for k in range(words):
            new = graph[v, k] & ~graph[a, k]
            if k == a >> 6:
                new &= ~bit(a)
            if not fills:
                graph[a, k] |= new
                cost[a] += _weight_of_word(new, k, weight, rule == MIN_DEGREE)
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
        Overwritten.
    cost : (n,) int64
        From :func:`first_costs`; overwritten.
    sizes : (n,) float64
        Domain sizes.
    weight : (n,) int64
        log2 of the sizes in units of 1/256 bit.
    eliminate : int
        The number of vertices to eliminate.
    rule : int
        MIN_FILL, MIN_WEIGHT, WEIGHTED_MIN_FILL or MIN_DEGREE.
    noise : float
        Each cost is multiplied by 1 + noise·U[0, 1) whenever vertices are compared.
    ties : (n,) int64
        Without noise, ties go to the vertex with the smaller entry.
    state : (1,) uint64
        A random generator's state.
    limit, work_limit : float
        Abandon the order when its cells reach ``limit`` or its work exceeds ``work_limit`` words.
    order : (eliminate,) int64
        Receives the order.

    Returns
    -------
    cells : float
        Sum over buckets of the number of cells of the joined table; inf if the order was abandoned.
    work : int
        Accessed words.
    """
    remaining_vertices = np.arange(eliminate)
    neighbours = np.empty(graph.shape[0], dtype=np.int64)
    total, work = 0.0, 0
    for step in range(eliminate):
        remaining = eliminate - step
        position = _cheapest(cost, remaining_vertices, remaining, noise, ties, state)
        v = remaining_vertices[position]
        remaining_vertices[position] = remaining_vertices[remaining - 1]
        order[step] = v
        degree = members(graph[v], neighbours)
        cells = sizes[v]
        for i in range(degree):
            cells = min(cells * sizes[neighbours[i]], MAX_CELLS)
        total += cells
        work += remaining + graph.shape[1] + 2 * degree + 8
        if total >= limit or work > work_limit:
            return np.inf, work
        work += _remove(graph, cost, v, neighbours, degree, weight, rule)
    return total, work
