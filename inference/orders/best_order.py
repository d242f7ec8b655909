"""Elimination orders: greedy rules, depth-first pseudo-trees, and a portfolio scored by the cells that they make.

The order matters more than any kernel. :func:`best_order` tries every rule, then randomised ones, and improves what
it finds by windows (:mod:`.search_kernels`); where many cells are at stake it goes on with large pieces
(:mod:`.pieces`). Few variables have the best order there is (:mod:`.subsets`), and need no kernels. Domain sizes count
in all of it.
"""

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.orders.bitset import pack
from dmcmc.inference.orders.bitset_kernels import graph_of_scopes
from dmcmc.inference.orders.exact_order import FEW, cost_of, exact_order
from dmcmc.inference.orders.greedy_kernels import CAP, first_costs, greedy, seeded
from dmcmc.inference.orders.order_search_kernels import plain_order, search
from dmcmc.inference.orders.reorder_subtrees import improve_pieces
from dmcmc.inference.orders.window_kernels import bucket_tree, totals
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.memo import LARGEST, Memo, digest

RULES = ("min-fill", "min-weight", "weighted-min-fill", "min-degree")
DEPTH_FIRST_RULES = ("least-connected-first", "most-connected-first")  # the journal's heuristic, and the usual one
BUDGET = 10_000_000  # words of search: about 20 ms
SEARCH_LONG = 1_000_000_000  # where one elimination is all there is to do: about 3 s, if that takes longer
_SEARCHED = 100_000_000  # words for the search, at most; pieces are better beyond
STAKE = 1e8  # cells from which on pieces are tried
_RATE = 0.125  # words for pieces, for each cell
_PIECES, _PIECES_MOST = 20.0, 5e7  # words for pieces, for each word of the budget, and where that is small
_HOPELESS = 1e13  # cells beyond which a small budget is not exceeded
_HARD_LIMIT = 100_000_000  # words after which a rule is given up on huge graphs: about 0.2 s
_KEPT = 256  # orders of large plans
_KNOWN: dict[bytes, NDArray[np.int64]] = {}
_ORDERS = Memo["Order"]()  # by graphs whose vertices are numbered as they are asked for
_SCALE = 256  # weights are whole numbers of 1/256 bit, so that no choice hangs on a rounding error


@dataclass(frozen=True)
class Order:
    """An elimination order and what it costs.

    Attributes
    ----------
    variables : tuple of int
        The eliminated variables, first to last.
    cells : float
        Σ over buckets of the joined table's cells, the eliminated variable included; a table counts at most 1e300.
    largest : float
        Cells of the largest joined table.
    width : int
        Induced width: the most variables a bucket has beside its own.
    rule : str
        The rule that it comes from (randomised and improved, perhaps); "simplicial" if there was nothing to choose,
        "exact" for the cheapest of all.
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
    """Return log2 of domain sizes in units of 1/256 bit, rounded."""
    weights: NDArray[np.int64] = np.rint(_SCALE * np.log2(sizes)).astype(np.int64)
    return weights


def rule_order(
    adjacent: NDArray[np.bool_],
    sizes: NDArray[np.float64],
    eliminate: NDArray[np.bool_],
    rule: str,
    tie_seed: int | None = None,
) -> Order:
    """Return the order of one rule over 0..n-1, as it is.

    Parameters
    ----------
    adjacent : (n, n) bool
        The graph; not changed.
    sizes : (n,) float
        Domain sizes.
    eliminate : (n,) bool
        Which vertices are eliminated; the others stay and count in every table that they end up in. Missing edges
        among those are not fill.
    rule
        One of :data:`RULES` or :data:`DEPTH_FIRST_RULES`.
    tie_seed
        Breaks ties of the greedy rules at random; None breaks them by index.
    """
    n = adjacent.shape[0]
    vertices = np.concatenate([np.flatnonzero(eliminate), np.flatnonzero(~eliminate)])
    count = int(eliminate.sum())
    inner = adjacent[np.ix_(vertices, vertices)]
    inner[count:, count:] = ~np.eye(n - count, dtype=np.bool_)
    graph = pack(inner)
    sizes = np.minimum(sizes[vertices], CAP)
    weight = scaled_weights(sizes)
    order = np.empty(count, dtype=np.int64)
    number = (*RULES, *DEPTH_FIRST_RULES).index(rule)
    if tie_seed is None:
        plain_order(graph, sizes, weight, count, number, np.inf, order)
    else:
        ties = np.random.Generator(np.random.Philox(tie_seed)).permutation(n)
        cost, _ = first_costs(graph, weight, count, number)
        greedy(graph.copy(), cost, sizes, weight, count, number, 0.0, ties, seeded(0), np.inf, np.inf, order)
    separator, _, cells = bucket_tree(graph, sizes, order)
    total, largest, width = totals(separator, cells, order)
    return Order(tuple(vertices[order].tolist()), total, largest, width, rule)


def order_as_given(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64] | NDArray[np.float64],
    eliminate: Sequence[int],
    keep: Sequence[int] = (),
) -> Order:
    """Return an order that was chosen elsewhere, with what it costs; ``eliminate`` is in that order."""
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
    budget: float = BUDGET,
    stop: Stop = NO_STOP,
    stake: float | None = None,
) -> Order:
    """Return the cheapest order of a portfolio: every rule, randomised greedy orders, windows and pieces reordered.

    Scored by the cells of all joined tables. All work is counted, so the order is the same on every machine. Never
    worse than a plain rule, except for rules abandoned on graphs where one takes 10^8 words of work.

    Parameters
    ----------
    scopes
        Scopes over variables of ``eliminate`` and ``keep``.
    domains
        Domain sizes by variable; floats up to 1e300 if they are products.
    eliminate, keep
        The variables to eliminate and those that stay.
    budget
        Work of the search in words touched, about 2 ns each; less where the elimination itself has fewer cells.
    stop
        When to end with the best so far; looked at between pieces. An order that it ended depends on the clock.
    stake
        Cells that will be joined by orders like this; those of the order itself if None. The more, the longer the
        search for it.

    Examples
    --------
    >>> best_order([(0, 1), (1, 2), (2, 3)], np.array([2, 9, 9, 2]), [0, 1, 2], keep=[3]).variables
    (0, 1, 2)
    """
    variables = np.array([*eliminate, *keep], dtype=np.int64)
    if not len(eliminate):
        return Order((), 0.0, 0.0, 0, "simplicial")
    key = _key(scopes, domains, variables, len(eliminate), (budget, stake))
    found = None if key is None else _ORDERS.find(key)
    if found is None:
        found = _searched_order(scopes, domains, variables, len(eliminate), (budget, stop, stake))
        if key is not None and not stop.over:  # else it may depend on the clock
            _ORDERS.put(key, found)
    return replace(found, variables=tuple(variables[list(found.variables)].tolist()))


def _key(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64] | NDArray[np.float64],
    variables: NDArray[np.int64],
    count: int,
    what: tuple[float, float | None],
) -> Hashable:
    """Return all that an order depends on, whatever the variables' numbers; None where that is much."""
    if variables.size + len(scopes) > LARGEST:
        return None
    place = {v: i for i, v in enumerate(variables.tolist())}
    inner = [place[v] for scope in scopes for v in scope]
    lengths = np.fromiter(map(len, scopes), dtype=np.int64, count=len(scopes))
    return digest(lengths, np.array(inner, dtype=np.int64), domains[variables].astype(np.float64)), count, what


def _searched_order(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64] | NDArray[np.float64],
    variables: NDArray[np.int64],
    count: int,
    limits: tuple[float, Stop, float | None],
) -> Order:
    """Return the order of :func:`best_order`; its variables are places in ``variables``."""
    budget, stop, stake = limits
    if count <= FEW and (exact := _exact(scopes, domains, variables, count)) is not None:
        return exact
    graph = _graph(scopes, variables, count, len(domains))
    sizes = domains[variables].astype(np.float64)
    weight = scaled_weights(sizes)
    # With equal domains, weights change nothing.
    rules = np.arange(2 if (sizes == sizes[0]).all() else len(RULES))
    order = np.empty(count, dtype=np.int64)
    searched = float(min(budget, _SEARCHED))
    cells, largest, width, rule, _ = search(
        graph, sizes, weight, count, rules, searched, float(_HARD_LIMIT), 0, False, order
    )
    work = _worth(cells if stake is None else stake, budget)
    if work and rule != -1:
        order = _in_pieces(graph, sizes, weight, order, work, stop)
        separator, _, joined = bucket_tree(graph, sizes, order)
        cells, largest, width = totals(separator, joined, order)
    return Order(tuple(order.tolist()), cells, largest, width, _name(rule))


def compile_search() -> None:
    """Compile what orders are searched with, beside pieces."""
    n = FEW + 1
    ring = [(v, (v + 1) % n) for v in range(n)]
    _searched_order(ring, np.full(n, 2), np.arange(n), n, (1.0, NO_STOP, None))
    adjacent = np.eye(n, k=1, dtype=np.bool_) | np.eye(n, k=-1, dtype=np.bool_)
    rule_order(adjacent, np.ones(n), np.ones(n, dtype=np.bool_), RULES[0])  # of agents, for their tree


def _exact(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64] | NDArray[np.float64],
    variables: NDArray[np.int64],
    count: int,
) -> Order | None:
    """Return the cheapest order of the first ``count`` variables; None where too much stays."""
    place = {v: i for i, v in enumerate(variables.tolist())}
    inner = [[place[v] for v in scope] for scope in scopes]
    sizes = np.minimum(domains[variables].astype(np.float64), CAP).tolist()
    found = exact_order(inner, sizes, count)
    if found is None:
        return None
    order, chosen = found
    return Order(tuple(order), *cost_of(inner, sizes, order), "exact" if chosen else "simplicial")


def _worth(cells: float, budget: float) -> float:
    """Return the work that an order is worth beyond the search; 0 for none."""
    if cells < STAKE or (cells > _HOPELESS and budget < _SEARCHED):
        return 0.0
    return min(_RATE * cells, _PIECES * budget, max(budget, _PIECES_MOST))


def _in_pieces(
    graph: NDArray[np.uint64],
    sizes: NDArray[np.float64],
    weight: NDArray[np.int64],
    order: NDArray[np.int64],
    work: float,
    stop: Stop,
) -> NDArray[np.int64]:
    """Return an order improved in pieces; what has been found is kept: cycles of messages ask the same again."""
    whole = graph.tobytes() + sizes.tobytes() + order.tobytes() + np.float64(work).tobytes()
    key = hashlib.blake2b(whole, digest_size=16).digest()
    known = _KNOWN.get(key)
    if known is None:
        known = improve_pieces(graph, sizes, weight, order, work, stop)
        if not stop.over:  # else it depends on the clock
            if len(_KNOWN) >= _KEPT:
                _KNOWN.clear()
            _KNOWN[key] = known
    return known


def _graph(scopes: Sequence[Sequence[int]], variables: NDArray[np.int64], count: int, most: int) -> NDArray[np.uint64]:
    """Return the primal graph over ``variables``, the first ``count`` of which are eliminated, as bit sets."""
    offsets = np.zeros(len(scopes) + 1, dtype=np.int64)
    np.cumsum([len(scope) for scope in scopes], out=offsets[1:])
    place = np.empty(most, dtype=np.int64)
    place[variables] = np.arange(variables.size)
    flat = place[np.fromiter(chain.from_iterable(scopes), dtype=np.int64, count=int(offsets[-1]))]
    return graph_of_scopes(flat, offsets, variables.size, count)  # type: ignore[no-any-return]


def _name(rule: int) -> str:
    """Return the name of a rule's number in the search."""
    return "simplicial" if rule < 0 else (*RULES, *DEPTH_FIRST_RULES)[rule]
