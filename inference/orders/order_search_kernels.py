# mypy: ignore-errors
"""The search for a cheap elimination order: safe eliminations first, every plain rule once, then noise and windows.

Its length is limited by counted work, never by the clock, so that the answer is the same on every machine.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import bit, members, subgraph
from dmcmc.inference.orders.depth_first_kernels import depth_first
from dmcmc.inference.orders.greedy_kernels import MIN_WEIGHT, first_costs, greedy, seeded
from dmcmc.inference.orders.window_kernels import bucket_tree, improve, order_of_tree, totals
from dmcmc.inference.runtime.compile import njit

GREEDY_RULES = 4
PLAIN_RULES = 6  # and the two depth-first ones
_NOISES = 2
_TAME, _WILD = 0.5, 2.0
_TRIES = 2  # greedy orders for each one that windows improve
_LEAST = 50_000.0  # words that are always worth it: 0.1 ms
_PATIENCE = 0.5  # of the budget may pass without a gain, and twice the work of the last one,
_BATCHES = 100  # and so many batches
_HOPELESS = 1e200  # beyond, products of cells overflow and no order helps


@njit(nogil=True)
def peel(graph, sizes, eliminate, work_limit, order):
    """Eliminate variables that are best eliminated first, as long as there are any; return their number.

    Those are the v whose neighbours are a clique, none with a larger domain than v's, |D_v| ≥ 2: take any order, u its
    first of v and v's neighbours, P the cells over v and them. If u's bucket then holds no more than those, v and u can
    change places, which makes no table larger. Else it has xP cells, x ≥ 2, and v before u makes them P + xP/|D_v|.
    """
    n, words = graph.shape
    ranked = np.argsort(-sizes[:eliminate], kind="mergesort")
    rank = np.full(n, eliminate, dtype=np.int64)
    for i in range(eliminate):
        rank[ranked[i]] = i
    stale = np.ones(n, dtype=np.bool_)
    near = np.empty(n, dtype=np.int64)
    done, work, i = 0, 0, 0
    while i < eliminate and work < work_limit:
        v = ranked[i]
        i += 1
        if not stale[v] or sizes[v] < 2:
            continue
        stale[v] = False
        degree = members(graph[v], near)
        clique = True
        for j in range(degree):
            u = near[j]
            work += words
            if u < eliminate and sizes[u] > sizes[v]:
                clique = False
                break
            for k in range(words):
                beyond = graph[v, k] & ~graph[u, k]
                if k == u >> 6:
                    beyond &= ~bit(u)
                if beyond:
                    clique = False
                    break
            if not clique:
                break
        if clique:
            order[done] = v
            done += 1
            for j in range(degree):
                u = near[j]
                graph[u, v >> 6] &= ~bit(v)
                if rank[u] < eliminate:
                    stale[u] = True
                    i = min(i, rank[u])
            for k in range(words):
                graph[v, k] = 0
            rank[v] = -1
    return done


@njit(nogil=True)
def plain_order(graph, sizes, weight, eliminate, rule, work_limit, order):
    """Write the order of one rule, ties by index, to ``order``; return whether it was finished, and the work."""
    if rule >= GREEDY_RULES:
        return True, depth_first(graph, eliminate, rule == PLAIN_RULES - 1, order)
    cost, work = first_costs(graph, weight, eliminate, rule)
    ties = np.arange(graph.shape[0])
    cells, more = greedy(
        graph.copy(), cost, sizes, weight, eliminate, rule, 0.0, ties, seeded(rule), np.inf, work_limit, order
    )
    return cells < np.inf, work + more


@njit(nogil=True)
def _explore(graph, sizes, weight, eliminate, rules, best, best_cells, best_rule, budget, state):
    """Batches of noisy greedy orders; windows improve each batch's best. Returns cells, rule and work.

    Every other batch takes the kind (rule and noise) that was best so far, the others take turns.
    """
    n = graph.shape[0]
    kinds = rules.size * _NOISES
    reached = np.full(kinds, np.inf)
    costs = np.empty((rules.size, n), dtype=np.int64)
    work = 0
    if budget <= 0:
        return best_cells, best_rule, work
    for r in range(rules.size):
        cost, more = first_costs(graph, weight, eliminate, rules[r])
        for v in range(n):
            costs[r, v] = cost[v]
        work += more
    ties = np.zeros(n, dtype=np.int64)
    order = np.empty(eliminate, dtype=np.int64)
    chosen = np.empty(eliminate, dtype=np.int64)
    batch, last, patience = 0, 0, _PATIENCE * budget
    while work < min(budget, max(best_cells, _LEAST)) and (work < patience or batch < last + _BATCHES):
        kind = batch // 2 % kinds if batch >= kinds else batch
        if batch >= kinds and batch % 2:
            kind = 0
            for other in range(1, kinds):
                if reached[other] < reached[kind]:
                    kind = other
        batch += 1
        rule = rules[kind // _NOISES]
        limit = 1e3 * best_cells
        for _ in range(_TRIES):
            cells, more = greedy(
                graph.copy(),
                costs[kind // _NOISES].copy(),
                sizes,
                weight,
                eliminate,
                rule,
                _WILD if kind % _NOISES else _TAME,
                ties,
                state,
                limit,
                2 * budget - work,
                order,
            )
            work += more + graph.size
            if cells < limit:
                limit = cells
                for i in range(eliminate):
                    chosen[i] = order[i]
        if limit >= 1e3 * best_cells:
            continue
        separator, parent, joined = bucket_tree(graph, sizes, chosen)
        work += 4 * graph.size
        if limit < _HOPELESS:
            work += improve(graph, sizes, separator, parent, joined, False, budget, state)
        cells = joined.sum()
        reached[kind] = min(reached[kind], cells)
        if cells < best_cells:
            best_cells, best_rule = cells, rule
            order_of_tree(parent, best)
            patience, last = _PATIENCE * budget + 2 * work, batch
    return best_cells, best_rule, work


@njit(nogil=True)
def search(graph, sizes, weight, eliminate, rules, budget, hard_limit, seed, known, best):
    """Write a cheap order of vertices 0..eliminate−1 to ``best``.

    Parameters
    ----------
    graph : (n, words) uint64
        With the kept vertices, from ``eliminate`` on, as a clique.
    sizes : (n,) float64
        Domain sizes.
    weight : (n,) int64
        Scaled log2 of the sizes.
    rules : (r,) int64
        The greedy rules that differ here.
    budget : float
        Work that the search may spend beyond the plain rules, if there are that many cells to save.
    hard_limit : float
        Work at which a plain rule is abandoned; only the first is always finished.
    seed : int
    known : bool
        ``best`` holds an order to start from, and the plain rules are left out.

    Returns
    -------
    total, largest : float
        Joined cells of all buckets, and of the largest.
    width : int
        Induced width.
    rule : int
        The rule that the order started from; −1 if no choice was left, −2 if it is still the known one.
    work : int
        Words touched beyond the plain rules.
    """
    state = seeded(seed)
    peeled = np.empty(eliminate, dtype=np.int64)
    core_graph = graph.copy()
    first = peel(core_graph, sizes, eliminate, hard_limit, peeled)
    gone = np.zeros(graph.shape[0], dtype=np.bool_)
    for i in range(first):
        gone[peeled[i]] = True
    vertices = np.empty(graph.shape[0] - first, dtype=np.int64)
    place = np.full(graph.shape[0], -1, dtype=np.int64)
    count = 0
    for v in range(graph.shape[0]):
        if not gone[v]:
            vertices[count], place[v] = v, count
            count += 1
    left = eliminate - first
    rule, work = -1, 0
    if left:
        core = subgraph(core_graph, vertices)
        core_sizes, core_weight = np.empty(vertices.size), np.empty(vertices.size, dtype=np.int64)
        for i in range(vertices.size):
            core_sizes[i], core_weight[i] = sizes[vertices[i]], weight[vertices[i]]
        inner, trial = np.empty(left, dtype=np.int64), np.empty(left, dtype=np.int64)
        cells = np.inf
        for attempt in range(PLAIN_RULES):
            # Each rule orders the whole graph; its order, less the peeled, costs no more than it does there.
            candidate = MIN_WEIGHT if attempt == 0 else 0 if attempt == MIN_WEIGHT else attempt
            full = best
            finished = known
            if not known:
                useful = candidate >= GREEDY_RULES
                for r in rules:
                    useful |= r == candidate
                if not useful:
                    continue
                full = np.empty(eliminate, dtype=np.int64)
                limit = np.inf if attempt == 0 else hard_limit
                finished, _ = plain_order(graph, sizes, weight, eliminate, candidate, limit, full)
            if not finished:
                continue
            count = 0
            for v in full:
                if not gone[v]:
                    trial[count] = place[v]
                    count += 1
            separator, parent, joined = bucket_tree(core, core_sizes, trial)
            total = joined.sum()
            if total < _HOPELESS:
                work += improve(core, core_sizes, separator, parent, joined, False, budget / 16, state)
                total = joined.sum()
            if total < cells:
                cells, rule = total, -2 if known else candidate
                order_of_tree(parent, inner)
            if known:
                break
        cells, rule, _ = _explore(core, core_sizes, core_weight, left, rules, inner, cells, rule, 0.75 * budget, state)
        separator, parent, joined = bucket_tree(core, core_sizes, inner)
        if cells < _HOPELESS:
            limit = min(0.25 * budget, max(cells, _LEAST))
            work += improve(core, core_sizes, separator, parent, joined, True, limit, state)
            order_of_tree(parent, inner)
        for i in range(left):
            best[first + i] = vertices[inner[i]]
    for i in range(first):
        best[i] = peeled[i]
    separator, parent, joined = bucket_tree(graph, sizes, best)
    total, largest, width = totals(separator, joined, best)
    return total, largest, width, rule, work
