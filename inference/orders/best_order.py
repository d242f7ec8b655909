"""The best elimination order that is found in time, and its cost.

Find a cheap elimination order by greedy rules, depth-first pseudo-trees and a randomised search.

Orders are compared by the number of cells that they join: the entries of the joined table of each bucket, summed. The
order matters more than any kernel. :func:`best_order` tries every rule, then randomised ones. It improves the result by
windows, small connected parts of the bucket tree that are ordered optimally (``window_kernels``); for expensive
eliminations it also reorders large subtrees (``reorder_subtrees``). Few variables get an optimal order
(``exact_order``) and need no compiled kernels. All methods take domain sizes into account.

The unit of work is a *word*: one access to a 64-bit word of a graph, about 2 ns.

Estimate the cost of an elimination; for few variables, a greedy rule in Python needs no compiled kernels.
"""

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import chain
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference import tuning
from dmcmc.inference.orders.bitset_kernels import MAX_CELLS, graph_of_scopes, pack, seeded
from dmcmc.inference.orders.exact_order import exact_order, order_cost
from dmcmc.inference.orders.greedy_kernels import first_costs, greedy
from dmcmc.inference.orders.order_search_kernels import plain_order, search
from dmcmc.inference.orders.reorder_subtrees import SUBTREE_ORDERS, improve_subtrees
from dmcmc.inference.orders.window_kernels import bucket_tree, totals
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memo import Memo, digest, is_short_key
from dmcmc.inference.tuning import (
    DEFAULT_BUDGET,
    MAX_EXACT_CELLS,
    MAX_EXACT_VARIABLES,
    MAX_INTERPRETED_VARIABLES,
    MAX_SEARCH_WORDS,
    MIN_REORDERED_CELLS,
    SHORT_BUDGET,
    SUBTREE_BUDGET_RATIO,
    SUBTREE_WORDS_PER_CELL,
)

RULES = ("min-fill", "min-weight", "weighted-min-fill", "min-degree")
# The heuristic of GpuBE's journal paper, and the usual one.
DEPTH_FIRST_RULES = ("least-connected-first", "most-connected-first")
_REORDERED = Memo[NDArray[np.int64]]()  # orders of large plans
_ORDERS = Memo["Order"]()  # by graphs with their vertices numbered in the order of the request
_UNITS_PER_BIT = 256  # integer weights in units of 1/256 bit, so that no choice depends on a rounding error


@dataclass(frozen=True)
class Order:
    """An elimination order and its cost.

    Attributes
    ----------
    variables : tuple of int
        The eliminated variables, first to last.
    cells : float
        Σ over buckets of the joined table's cells, the eliminated variable included; a table counts at most 1e300.
    largest : float
        Cells of the largest joined table.
    width : int
        Induced width: the largest number of other variables in a bucket.
    rule : str
        The rule that it derives from (perhaps randomised and improved); "simplicial" if there was no choice, "exact"
        for an optimal order, "given" for a prescribed one.
    """

    variables: tuple[int, ...]
    cells: float
    largest: float
    width: int
    rule: str = ""


def primal_graph(scopes: Iterable[Sequence[int]], position: Mapping[int, int]) -> NDArray[np.bool_]:
    """Return the (n, n) adjacency of variables that share a scope; ``position`` numbers them 0..n-1."""
    adjacent = np.zeros((len(position), len(position)), dtype=np.bool_)
    for scope in {tuple(scope) for scope in scopes}:
        inside = [position[v] for v in scope]
        for a in inside:
            adjacent[a, inside] = True
    np.fill_diagonal(adjacent, False)
    return adjacent


def scaled_weights(sizes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return log2 of domain sizes in units of 1/256 bit, rounded to integers."""
    weights: NDArray[np.int64] = np.rint(_UNITS_PER_BIT * np.log2(sizes)).astype(np.int64)
    return weights


def rule_order(
    adjacent: NDArray[np.bool_],
    sizes: NDArray[np.float64],
    eliminate: NDArray[np.bool_],
    rule: str,
    tie_seed: int | None = None,
) -> Order:
    """Return the order of one rule over 0..n-1, without improvement.

    Parameters
    ----------
    adjacent : (n, n) bool
        The graph; not changed.
    sizes : (n,) float64
        Domain sizes.
    eliminate : (n,) bool
        The vertices to eliminate. The others remain and count in every table that they end up in. Missing edges among
        the remaining vertices are not fill.
    rule
        One of :data:`RULES` or :data:`DEPTH_FIRST_RULES`.
    tie_seed
        Seed for breaking ties of the greedy rules at random; None breaks them by index.
    """
    n = adjacent.shape[0]
    vertices = np.concatenate([np.flatnonzero(eliminate), np.flatnonzero(~eliminate)])
    count = int(eliminate.sum())
    reordered = adjacent[np.ix_(vertices, vertices)]
    reordered[count:, count:] = ~np.eye(n - count, dtype=np.bool_)
    graph = pack(reordered)
    sizes = np.minimum(sizes[vertices], MAX_CELLS)
    weight = scaled_weights(sizes)
    order = np.empty(count, dtype=np.int64)
    rule_number = (*RULES, *DEPTH_FIRST_RULES).index(rule)
    if tie_seed is None:
        plain_order(graph, sizes, weight, count, rule_number, np.inf, order)
    else:
        ties = np.random.Generator(np.random.Philox(tie_seed)).permutation(n)
        cost, _ = first_costs(graph, weight, count, rule_number)
        greedy(graph.copy(), cost, sizes, weight, count, rule_number, 0.0, ties, seeded(0), np.inf, np.inf, order)
    separator, _, cells = bucket_tree(graph, sizes, order)
    total, largest, width = totals(separator, cells, order)
    return Order(tuple(vertices[order].tolist()), total, largest, width, rule)


def order_as_given(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64] | NDArray[np.float64],
    eliminate: Sequence[int],
    keep: Sequence[int] = (),
) -> Order:
    """Return a prescribed order with its cost.

    Parameters
    ----------
    scopes
        Scopes over variables of ``eliminate`` and ``keep``.
    domains
        Domain sizes by variable.
    eliminate
        The variables to eliminate, in this order.
    keep
        The variables that remain.
    """
    if not eliminate:
        return Order((), 0.0, 0.0, 0, "given")
    variables, order = np.array([*eliminate, *keep], dtype=np.int64), np.arange(len(eliminate), dtype=np.int64)
    graph = _graph(scopes, variables, len(eliminate), len(domains))
    separator, _, joined = bucket_tree(graph, domains[variables].astype(np.float64), order)
    cells, largest, width = totals(separator, joined, order)
    return Order(tuple(eliminate), cells, largest, width, "given")


def best_order(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64] | NDArray[np.float64],
    eliminate: Sequence[int],
    keep: Sequence[int] = (),
    budget: float = DEFAULT_BUDGET,
    stop: Deadline = NO_DEADLINE,
    expected_cells: float | None = None,
) -> Order:
    """Return the cheapest order of a portfolio: every rule, randomised rules, improvement by windows and subtrees.

    The cost is the number of cells of all joined tables. Work is counted, not timed, so the order is the same on every
    machine. It is never worse than that of a plain rule, except for rules abandoned on graphs where one takes 10^8
    words.

    Parameters
    ----------
    scopes
        Scopes over variables of ``eliminate`` and ``keep``.
    domains
        Domain sizes by variable; floats up to 1e300 if they are products.
    eliminate, keep
        The variables to eliminate and those that remain.
    budget
        Work of the search in words, about 2 ns each; less is used if the elimination itself has fewer cells.
    stop
        Deadline, checked between subtrees; the best order so far is returned, which then depends on the clock.
    expected_cells
        Number of cells that will be joined by orders like this; None for the cells of the order itself. A larger number
        makes the search longer.

    Examples
    --------
    >>> best_order([(0, 1), (1, 2), (2, 3)], np.array([2, 9, 9, 2]), [0, 1, 2], keep=[3]).variables
    (0, 1, 2)
    """
    variables = np.array([*eliminate, *keep], dtype=np.int64)
    if not len(eliminate):
        return Order((), 0.0, 0.0, 0, "simplicial")
    parameters = budget, expected_cells, SUBTREE_ORDERS.is_ready(requested=False)
    key = _key(scopes, domains, variables, len(eliminate), parameters)
    order = None if key is None else _ORDERS.find(key)
    if order is None:
        order = _searched_order(scopes, domains, variables, len(eliminate), (budget, stop, expected_cells))
        if key is not None and not stop.over:  # otherwise it may depend on the clock
            _ORDERS.put(key, order)
    return replace(order, variables=tuple(variables[list(order.variables)].tolist()))


def _key(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64] | NDArray[np.float64],
    variables: NDArray[np.int64],
    count: int,
    parameters: tuple[float, float | None, bool],
) -> Hashable:
    """Return the cache key of an order, independent of the variables' numbers; None if the problem is large.

    ``parameters`` are the budget in words, the expected cells, and whether subtrees can be reordered.
    """
    if not is_short_key(variables.size + len(scopes)):
        return None
    positions = {v: i for i, v in enumerate(variables.tolist())}
    scope_positions = [positions[v] for scope in scopes for v in scope]
    lengths = np.fromiter(map(len, scopes), dtype=np.int64, count=len(scopes))
    return (
        digest(lengths, np.array(scope_positions, dtype=np.int64), domains[variables].astype(np.float64)),
        count,
        parameters,
    )


def _searched_order(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64] | NDArray[np.float64],
    variables: NDArray[np.int64],
    count: int,
    limits: tuple[float, Deadline, float | None],
) -> Order:
    """Compute the order of :func:`best_order`; its variables are positions in ``variables``.

    The first ``count`` variables are eliminated. ``limits`` are the budget in words, the deadline, and the expected
    cells (None: those of the order).
    """
    budget, stop, expected_cells = limits
    if count <= MAX_EXACT_VARIABLES and (exact := _exact(scopes, domains, variables, count)) is not None:
        return exact
    graph = _graph(scopes, variables, count, len(domains))
    sizes = domains[variables].astype(np.float64)
    weight = scaled_weights(sizes)
    # With equal domain sizes the weighted rules equal the plain ones.
    rules = np.arange(2 if (sizes == sizes[0]).all() else len(RULES))
    order = np.empty(count, dtype=np.int64)
    search_words = float(min(budget, MAX_SEARCH_WORDS))
    cells, largest, width, rule, _ = search(
        graph, sizes, weight, count, rules, search_words, float(MAX_SEARCH_WORDS), 0, False, order
    )
    subtree_work = _subtree_work(cells if expected_cells is None else expected_cells, budget)
    if subtree_work and rule != -1 and SUBTREE_ORDERS.is_ready():
        order = _with_subtrees_reordered(graph, sizes, weight, order, subtree_work, stop)
        separator, _, joined = bucket_tree(graph, sizes, order)
        cells, largest, width = totals(separator, joined, order)
    return Order(tuple(order.tolist()), cells, largest, width, _rule_name(rule))


def compile_search() -> None:
    """Compile the kernels of the search for orders, except those of subtree reordering."""
    n = MAX_EXACT_VARIABLES + 1
    ring = [(v, (v + 1) % n) for v in range(n)]
    _searched_order(ring, np.full(n, 2), np.arange(n), n, (1.0, NO_DEADLINE, None))
    adjacent = np.eye(n, k=1, dtype=np.bool_) | np.eye(n, k=-1, dtype=np.bool_)
    rule_order(adjacent, np.ones(n), np.ones(n, dtype=np.bool_), RULES[0])  # the pseudo-tree over agents uses it


ORDER_SEARCH = KernelSet("order search", compile_search)


def _exact(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64] | NDArray[np.float64],
    variables: NDArray[np.int64],
    count: int,
) -> Order | None:
    """Return an optimal order of the first ``count`` variables; None if that would take too long."""
    positions = {v: i for i, v in enumerate(variables.tolist())}
    scope_positions = [[positions[v] for v in scope] for scope in scopes]
    sizes = np.minimum(domains[variables].astype(np.float64), MAX_CELLS).tolist()
    result = exact_order(scope_positions, sizes, count)
    if result is None:
        return None
    order, had_choice = result
    return Order(tuple(order), *order_cost(scope_positions, sizes, order), "exact" if had_choice else "simplicial")


def _subtree_work(cells: float, budget: float) -> float:
    """Return the words of work for subtree reordering; 0 for none.

    It is the least of ``SUBTREE_WORDS_PER_CELL`` · cells, ``SUBTREE_BUDGET_RATIO`` · budget, and the larger of the
    budget and ``MAX_SEARCH_WORDS``.
    """
    if cells < MIN_REORDERED_CELLS or (cells > MAX_EXACT_CELLS and budget < MAX_SEARCH_WORDS):
        return 0.0
    return min(SUBTREE_WORDS_PER_CELL * cells, SUBTREE_BUDGET_RATIO * budget, max(budget, MAX_SEARCH_WORDS))


def _with_subtrees_reordered(
    graph: NDArray[np.uint64],
    sizes: NDArray[np.float64],
    weight: NDArray[np.int64],
    order: NDArray[np.int64],
    work: float,
    stop: Deadline,
) -> NDArray[np.int64]:
    """Return an order with reordered subtrees, cached because cycles of messages repeat the same request."""
    content = graph.tobytes() + sizes.tobytes() + order.tobytes() + np.float64(work).tobytes()
    key = hashlib.blake2b(content, digest_size=16).digest()
    reordered = _REORDERED.find(key)
    if reordered is None:
        reordered = improve_subtrees(graph, sizes, weight, order, work, stop)
        if not stop.over:  # else it depends on the clock
            _REORDERED.put(key, reordered)
    return reordered


def _graph(
    scopes: Sequence[Sequence[int]], variables: NDArray[np.int64], count: int, n_variables: int
) -> NDArray[np.uint64]:
    """Return the primal graph over ``variables`` as rows of bits; the first ``count`` variables are eliminated."""
    offsets = np.zeros(len(scopes) + 1, dtype=np.int64)
    np.cumsum([len(scope) for scope in scopes], out=offsets[1:])
    position = np.empty(n_variables, dtype=np.int64)
    position[variables] = np.arange(variables.size)
    flat = position[np.fromiter(chain.from_iterable(scopes), dtype=np.int64, count=int(offsets[-1]))]
    return graph_of_scopes(flat, offsets, variables.size, count)  # type: ignore[no-any-return]


def _rule_name(rule: int) -> str:
    """Return the name of a rule from its number in the search."""
    return "simplicial" if rule < 0 else (*RULES, *DEPTH_FIRST_RULES)[rule]


# Variables of an 8 MB graph as rows of bits; its size and the work on it grow with the square.


def cells_upper_bound(scopes: Sequence[Sequence[int]], domains: NDArray[np.int64], eliminate: Sequence[int]) -> float:
    """Return the joined cells of the order that eliminates the smallest bucket first; inf for too many variables.

    An order from :func:`dmcmc.inference.orders.best_order.best_order` joins no more cells.

    Parameters
    ----------
    scopes
        Scopes over the variables to eliminate and others, which remain.
    domains
        Domain sizes by variable.
    eliminate
        The variables to eliminate.

    Examples
    --------
    >>> cells_upper_bound([(0, 1), (1, 2)], np.array([2, 3, 5]), [0, 1])
    21.0
    """
    return inf if len(eliminate) > MAX_INTERPRETED_VARIABLES else _min_weight_cells(scopes, domains, eliminate, inf)


def joins_at_least(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64],
    eliminate: Sequence[int],
    keep: Sequence[int],
    cells: float,
) -> bool:
    """Return whether elimination joins ``cells`` cells or more.

    A short search for an order decides; for very many variables it is the greedy rule.

    Parameters
    ----------
    scopes, domains, eliminate
        As in ``cells_upper_bound``.
    keep
        The variables that remain.
    cells
        The threshold.

    Examples
    --------
    >>> joins_at_least([(0, 1), (1, 2)], np.array([2, 3, 5]), [0, 1], [2], cells=22)
    False
    """
    if len(eliminate) + len(keep) > tuning.MAX_BITSET_VARIABLES:
        return _min_weight_cells(scopes, domains, eliminate, cells) >= cells
    return best_order(scopes, domains, eliminate, keep, budget=SHORT_BUDGET, expected_cells=0).cells >= cells


def _min_weight_cells(
    scopes: Sequence[Sequence[int]], domains: NDArray[np.int64], eliminate: Sequence[int], threshold: float
) -> float:
    """Return the joined cells of the min-weight order; the cells so far as soon as they reach the threshold."""
    neighbours: dict[int, set[int]] = {v: {v} for v in eliminate}
    for scope in scopes:
        for v in scope:
            if v in neighbours:
                neighbours[v].update(scope)
    size = {v: float(domains[v]) for neighbourhood in neighbours.values() for v in neighbourhood}
    cells = {v: prod(size[u] for u in neighbourhood) for v, neighbourhood in neighbours.items()}
    queue = [(joined, v) for v, joined in cells.items()]  # entries may be outdated
    heapify(queue)
    total = 0.0
    while neighbours and total < threshold:
        joined, v = heappop(queue)
        if v not in neighbours or cells[v] != joined:
            continue
        neighbourhood = neighbours.pop(v)
        total += joined
        neighbourhood.remove(v)
        for u in neighbourhood & neighbours.keys():
            neighbours[u] |= neighbourhood
            neighbours[u].discard(v)
            cells[u] = prod(size[w] for w in neighbours[u])
            heappush(queue, (cells[u], u))
    return total
