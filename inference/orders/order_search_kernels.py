# mypy: ignore-errors
"""Compiled search for elimination orders.

Search for a cheap elimination order: simplicial variables first, every rule once, then noisy rules and windows.

Windows are small connected parts of the bucket tree that are ordered optimally (``window_kernels``). Counted work
(accessed words) limits the search, never the clock, so the result is the same on every machine. Arguments of all
functions:

* ``graph`` (n, words) uint64: rows of bits; vertices from ``eliminate`` on are kept, and form a clique;
* ``sizes`` (n,) float64: domain sizes; ``weight`` (n,) int64: log2 of the sizes in units of 1/256 bit;
* ``order``, ``best`` (eliminate,) int64: receive an order; ``state`` (1,) uint64: a random generator's state;
* rules by number: 0 min-fill, 1 min-weight, 2 weighted-min-fill, 3 min-degree (greedy); 4 and 5 depth-first, least and
  most connected vertex first.

Orders of depth-first pseudo-trees, as in the papers: every variable is eliminated before its ancestors.

Roots and children are taken by degree. GpuBE's journal version (§6.2) sorts x_i before x_j iff |N(x_i)| < |N(x_j)|;
DPOP's usual choice is the most connected variable first.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import bit, members, popcount, seeded, subgraph
from dmcmc.inference.orders.greedy_kernels import MIN_WEIGHT, first_costs, greedy
from dmcmc.inference.orders.window_kernels import bucket_tree, improve, order_of_tree, totals
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.tuning import (
    HIGH_NOISE,
    LOW_NOISE,
    MIN_IDLE_BATCHES,
    ORDERS_PER_BATCH,
    PATIENCE_SHARE,
    SHORT_BUDGET,
)


@njit(nogil=True)
def depth_first(graph, eliminate, most_connected, order):
    """Write the elimination order of a depth-first forest of vertices 0..eliminate−1; return the work in words.

    Kept vertices are above every root. Ties go to the lowest index.

    Parameters
    ----------
    graph : (n, words) uint64
        The graph as rows of bits.
    eliminate : int
        The number of vertices to eliminate.
    most_connected : bool
        Whether vertices of high degree come first as roots and children, or those of low degree.
    order : (eliminate,) int64
        Receives the order.
    """
    n, words = graph.shape
    degree = np.zeros(eliminate)
    for v in range(eliminate):
        for k in range(words):
            degree[v] += popcount(graph[v, k])
    ranked = np.argsort(-degree if most_connected else degree, kind="mergesort")
    rank = np.empty(eliminate, dtype=np.int64)
    for i in range(eliminate):
        rank[ranked[i]] = i
    seen = np.zeros(n, dtype=np.bool_)
    for v in range(eliminate, n):
        seen[v] = True
    path = np.empty(eliminate + 1, dtype=np.int64)
    neighbours = np.empty(n, dtype=np.int64)
    done, work = 0, eliminate * words
    for root in ranked:
        if seen[root]:
            continue
        depth = 0
        path[0] = root
        seen[root] = True
        while depth >= 0:
            v = path[depth]
            child = -1
            count = members(graph[v], neighbours)
            work += words + count
            for i in range(count):
                u = neighbours[i]
                if not seen[u] and (child < 0 or rank[u] < rank[child]):
                    child = u
            if child >= 0:
                seen[child] = True
                depth += 1
                path[depth] = child
            else:
                order[done] = v
                done += 1
                depth -= 1
    return work


GREEDY_RULES = 4
PLAIN_RULES = 6  # the greedy rules and the two depth-first ones
_NOISE_LEVELS = 2  # low and high noise, see below
_OVERFLOW_CELLS = 1e200  # above, products of cells overflow and windows cannot compare orders


@njit(nogil=True)
def eliminate_simplicial(graph, sizes, eliminate, work_limit, order):
    """Eliminate simplicial variables that an optimal order may begin with; return their number.

    These are the v with |D_v| ≥ 2 whose neighbours form a clique in which no domain is larger than D_v. Proof: let u
    be the first of v and its neighbours in any order, and P the cells over v and its neighbours. If u's bucket then
    contains only these, u and v can be exchanged, which enlarges no table. Otherwise u's bucket has xP cells, x ≥ 2;
    eliminating v before u changes this to P + xP/|D_v|.

    The graph is changed to that of the remaining vertices. The search ends after ``work_limit`` words.
    """
    n, words = graph.shape
    ranked = np.argsort(-sizes[:eliminate], kind="mergesort")
    rank = np.full(n, eliminate, dtype=np.int64)
    for i in range(eliminate):
        rank[ranked[i]] = i
    unchecked = np.ones(n, dtype=np.bool_)
    neighbours = np.empty(n, dtype=np.int64)
    n_eliminated, work, i = 0, 0, 0
    while i < eliminate and work < work_limit:
        v = ranked[i]
        i += 1
        if not unchecked[v] or sizes[v] < 2:
            continue
        unchecked[v] = False
        degree = members(graph[v], neighbours)
        is_clique = True
        for j in range(degree):
            u = neighbours[j]
            work += words
            if u < eliminate and sizes[u] > sizes[v]:
                is_clique = False
                break
            for k in range(words):
                missing = graph[v, k] & ~graph[u, k]
                if k == u >> 6:
                    missing &= ~bit(u)
                if missing:
                    is_clique = False
                    break
            if not is_clique:
                break
        if is_clique:
            order[n_eliminated] = v
            n_eliminated += 1
            for j in range(degree):
                u = neighbours[j]
                graph[u, v >> 6] &= ~bit(v)
                if rank[u] < eliminate:
                    unchecked[u] = True
                    i = min(i, rank[u])
            for k in range(words):
                graph[v, k] = 0
            rank[v] = -1
    return n_eliminated


@njit(nogil=True)
def plain_order(graph, sizes, weight, eliminate, rule, work_limit, order):
    """Write the order of one rule, ties by index, to ``order``; return whether it was finished, and the work.

    ``rule`` is the number of the rule. A greedy rule is abandoned after ``work_limit`` words.
    """
    if rule >= GREEDY_RULES:
        return True, depth_first(graph, eliminate, rule == PLAIN_RULES - 1, order)
    cost, work = first_costs(graph, weight, eliminate, rule)
    ties = np.arange(graph.shape[0])
    cells, greedy_work = greedy(
        graph.copy(), cost, sizes, weight, eliminate, rule, 0.0, ties, seeded(rule), np.inf, work_limit, order
    )
    return cells < np.inf, work + greedy_work


@njit(nogil=True)
def _explore(graph, sizes, weight, eliminate, rules, best, best_cells, best_rule, budget, state):
    """Try batches of noisy greedy orders; windows improve each batch's best. Return the best cells, rule and work.

    A variant is a rule with a noise level. Every other batch uses the variant with the best result so far; the others
    alternate. A greedy order is abandoned when it reaches 1000 times the cells of the best one. The search ends early
    when the work exceeds ``PATIENCE_SHARE`` · budget + 2 · (work at the last gain) and ``MIN_IDLE_BATCHES`` batches
    gained nothing.

    Parameters
    ----------
    rules : (r,) int64
        The greedy rules.
    best : (eliminate,) int64
        The best order so far; overwritten by a better one.
    best_cells, best_rule
        Its cells and its rule.
    budget : float
        Upper bound on the work.
    """
    n = graph.shape[0]
    variants = rules.size * _NOISE_LEVELS
    best_of_variant = np.full(variants, np.inf)
    costs = np.empty((rules.size, n), dtype=np.int64)
    work = 0
    if budget <= 0:
        return best_cells, best_rule, work
    for r in range(rules.size):
        cost, words_used = first_costs(graph, weight, eliminate, rules[r])
        for v in range(n):
            costs[r, v] = cost[v]
        work += words_used
    ties = np.zeros(n, dtype=np.int64)
    order = np.empty(eliminate, dtype=np.int64)
    chosen = np.empty(eliminate, dtype=np.int64)
    batch, last_gain, patience = 0, 0, PATIENCE_SHARE * budget
    while work < min(budget, max(best_cells, SHORT_BUDGET)) and (
        work < patience or batch < last_gain + MIN_IDLE_BATCHES
    ):
        variant = batch // 2 % variants if batch >= variants else batch
        if batch >= variants and batch % 2:
            variant = 0
            for candidate in range(1, variants):
                if best_of_variant[candidate] < best_of_variant[variant]:
                    variant = candidate
        batch += 1
        rule = rules[variant // _NOISE_LEVELS]
        limit = 1e3 * best_cells
        for _ in range(ORDERS_PER_BATCH):
            cells, words_used = greedy(
                graph.copy(),
                costs[variant // _NOISE_LEVELS].copy(),
                sizes,
                weight,
                eliminate,
                rule,
                HIGH_NOISE if variant % _NOISE_LEVELS else LOW_NOISE,
                ties,
                state,
                limit,
                2 * budget - work,
                order,
            )
            work += words_used + graph.size
            if cells < limit:
                limit = cells
                for i in range(eliminate):
                    chosen[i] = order[i]
        if limit >= 1e3 * best_cells:
            continue
        separator, parent, joined = bucket_tree(graph, sizes, chosen)
        work += 4 * graph.size
        if limit < _OVERFLOW_CELLS:
            work += improve(graph, sizes, separator, parent, joined, False, budget, state)
        cells = joined.sum()
        best_of_variant[variant] = min(best_of_variant[variant], cells)
        if cells < best_cells:
            best_cells, best_rule = cells, rule
            order_of_tree(parent, best)
            patience, last_gain = PATIENCE_SHARE * budget + 2 * work, batch
    return best_cells, best_rule, work


@njit(nogil=True)
def search(graph, sizes, weight, eliminate, rules, budget, hard_limit, seed, known, best):
    """Write a cheap order of vertices 0..eliminate−1 to ``best``.

    Windows may use 1/16 of the budget on each plain order, the noisy rules 3/4 in total, and the windows at the end
    1/4.

    Parameters
    ----------
    graph : (n, words) uint64
        With the kept vertices, from ``eliminate`` on, as a clique.
    sizes : (n,) float64
        Domain sizes.
    weight : (n,) int64
        log2 of the sizes in units of 1/256 bit.
    eliminate : int
        The number of vertices to eliminate.
    rules : (r,) int64
        The greedy rules that differ on this graph.
    budget : float
        Words that the search may use beyond the plain rules, if there are that many cells to save.
    hard_limit : float
        Words after which a plain rule is abandoned; only the first rule is always finished.
    seed : int
        Seed of the random generator.
    known : bool
        Whether ``best`` holds an order to start from; the plain rules are then skipped.
    best : (eliminate,) int64
        Receives the order.

    Returns
    -------
    total, largest : float
        Joined cells of all buckets, and of the largest.
    width : int
        Induced width.
    rule : int
        The rule that the order started from; −1 if no choice was left, −2 if it started from the given one.
    work : int
        Words used by the windows before and after the noisy rules.
    """
    state = seeded(seed)
    simplicial = np.empty(eliminate, dtype=np.int64)
    core_graph = graph.copy()
    n_simplicial = eliminate_simplicial(core_graph, sizes, eliminate, hard_limit, simplicial)
    removed = np.zeros(graph.shape[0], dtype=np.bool_)
    for i in range(n_simplicial):
        removed[simplicial[i]] = True
    vertices = np.empty(graph.shape[0] - n_simplicial, dtype=np.int64)
    position = np.full(graph.shape[0], -1, dtype=np.int64)
    count = 0
    for v in range(graph.shape[0]):
        if not removed[v]:
            vertices[count], position[v] = v, count
            count += 1
    n_core = eliminate - n_simplicial
    rule, work = -1, 0
    if n_core:
        core = subgraph(core_graph, vertices)
        core_sizes, core_weight = np.empty(vertices.size), np.empty(vertices.size, dtype=np.int64)
        for i in range(vertices.size):
            core_sizes[i], core_weight[i] = sizes[vertices[i]], weight[vertices[i]]
        best_core_order, core_order = np.empty(n_core, dtype=np.int64), np.empty(n_core, dtype=np.int64)
        cells = np.inf
        for attempt in range(PLAIN_RULES):
            # Each rule orders the whole graph; its order without the simplicial vertices costs no more than that.
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
                if not removed[v]:
                    core_order[count] = position[v]
                    count += 1
            separator, parent, joined = bucket_tree(core, core_sizes, core_order)
            total = joined.sum()
            if total < _OVERFLOW_CELLS:
                work += improve(core, core_sizes, separator, parent, joined, False, budget / 16, state)
                total = joined.sum()
            if total < cells:
                cells, rule = total, -2 if known else candidate
                order_of_tree(parent, best_core_order)
            if known:
                break
        cells, rule, _ = _explore(
            core, core_sizes, core_weight, n_core, rules, best_core_order, cells, rule, 0.75 * budget, state
        )
        separator, parent, joined = bucket_tree(core, core_sizes, best_core_order)
        if cells < _OVERFLOW_CELLS:
            limit = min(0.25 * budget, max(cells, SHORT_BUDGET))
            work += improve(core, core_sizes, separator, parent, joined, True, limit, state)
            order_of_tree(parent, best_core_order)
        for i in range(n_core):
            best[n_simplicial + i] = vertices[best_core_order[i]]
    for i in range(n_simplicial):
        best[i] = simplicial[i]
    separator, parent, joined = bucket_tree(graph, sizes, best)
    total, largest, width = totals(separator, joined, best)
    return total, largest, width, rule, work
