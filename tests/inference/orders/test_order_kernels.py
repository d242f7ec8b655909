"""Test the kernels of the order search: bit rows, greedy rules, simplicial vertices, bucket trees, windows, budget."""

import math
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs_to_order import graphs, kernel_graph, random_graph, total_of

from dmcmc.inference.orders.best_order import primal_graph
from dmcmc.inference.orders.bitset_kernels import graph_of_scopes, pack, seeded
from dmcmc.inference.orders.greedy_kernels import first_costs, greedy
from dmcmc.inference.orders.order_search_kernels import eliminate_simplicial, search
from dmcmc.inference.orders.window_kernels import bucket_tree, improve, order_of_tree


@given(graphs())
@settings(max_examples=100)
def test_the_rows_of_bits_are_the_primal_graph_with_the_kept_variables_as_a_clique(graph):
    scopes, domains, _ = graph
    n = len(domains)
    eliminate = n // 2
    flat = np.array([v for s in scopes for v in s], dtype=np.int64)
    offsets = np.cumsum([0, *map(len, scopes)]).astype(np.int64)
    expected = primal_graph([*scopes, range(eliminate, n)], {v: v for v in range(n)})
    assert (graph_of_scopes(flat, offsets, n, eliminate) == pack(expected)).all()


@given(graphs(), st.sampled_from(range(4)), st.integers(0, 9), st.floats(0.1, 2))
@settings(max_examples=150)
def test_a_limit_on_cells_only_stops_orders_that_exceed_it(graph, rule, seed, share):
    scopes, domains, _ = graph
    words, sizes, weight, n = kernel_graph(scopes, domains)
    cost, _ = first_costs(words, weight, n, rule)

    def run(limit):
        order = np.zeros(n, dtype=np.int64)
        ties = np.zeros(n, dtype=np.int64)
        cells, work = greedy(
            words.copy(), cost.copy(), sizes, weight, n, rule, 1.0, ties, seeded(seed), limit, np.inf, order
        )
        return cells, work, order.tolist()

    cells, work, order = run(np.inf)
    assert math.isclose(cells, total_of(scopes, domains, order), rel_tol=1e-9)
    limited = run(share * cells)
    if share > 1:
        assert limited == (cells, work, order)
    elif share < 1:
        assert limited[0] == np.inf
        assert limited[1] <= work


@given(graphs(7))
@settings(max_examples=60)
def test_simplicial_variables_first_is_optimal(graph):
    """No order is cheaper than the best order that starts with the simplicial variables."""
    scopes, domains, _ = graph
    domains = np.maximum(domains, 2)
    words, sizes, _, n = kernel_graph(scopes, domains)
    order = np.zeros(n, dtype=np.int64)
    first = order[: eliminate_simplicial(words.copy(), sizes, n, np.inf, order)].tolist()
    rest = [v for v in range(n) if v not in first]
    best = min(total_of(scopes, domains, p) for p in permutations(range(n)))
    assert best == min(total_of(scopes, domains, (*first, *p)) for p in permutations(rest))


@given(graphs(20), st.integers(0, 99), st.booleans())
@settings(max_examples=150)
def test_windows_keep_the_bucket_tree_consistent_and_never_make_it_worse(graph, seed, thorough):
    scopes, domains, _ = graph
    words, sizes, _, n = kernel_graph(scopes, domains)
    order = np.random.default_rng(seed).permutation(n)
    separator, parent, cells = bucket_tree(words, sizes, order)
    before = total_of(scopes, domains, order)
    assert math.isclose(cells.sum(), before, rel_tol=1e-9)
    improve(words, sizes, separator, parent, cells, thorough, np.inf, seeded(seed))
    after = np.empty(n, dtype=np.int64)
    order_of_tree(parent, after)
    assert sorted(after.tolist()) == list(range(n))
    assert math.isclose(cells.sum(), total_of(scopes, domains, after), rel_tol=1e-9)
    assert cells.sum() <= before * (1 + 1e-9)
    again = bucket_tree(words, sizes, after)
    assert (again[0] == separator).all()
    assert (again[1] == parent).all()


@given(graphs(6), st.integers(0, 99))
@settings(max_examples=60)
def test_a_window_that_holds_a_connected_graph_finds_the_optimum(graph, seed):
    scopes, domains, _ = graph
    domains = np.maximum(domains, 2)
    n = len(domains)
    scopes = [*scopes, *pairwise(range(n))]
    words, sizes, _, _ = kernel_graph(scopes, domains)
    order = np.random.default_rng(seed).permutation(n)
    separator, parent, cells = bucket_tree(words, sizes, order)
    improve(words, sizes, separator, parent, cells, True, np.inf, seeded(seed))
    best = min(total_of(scopes, domains, p) for p in permutations(range(n)))
    assert math.isclose(cells.sum(), best, rel_tol=1e-8)


@pytest.mark.parametrize("budget", [0, 20_000, 200_000, 2_000_000])
@pytest.mark.parametrize(("n", "edges"), [(30, 80), (80, 200), (300, 500)])
def test_the_search_touches_no_more_words_than_its_budget(n, edges, budget):
    """The search may exceed its budget by the last batch or window only."""
    words, sizes, weight, _ = kernel_graph(random_graph(1, n, edges), np.full(n, 4))
    order = np.empty(n, dtype=np.int64)
    *_, work = search(words, sizes, weight, n, np.arange(2), float(budget), 1e8, 0, False, order)
    assert work <= 2 * budget + 100 * words.size
    assert work or not budget
    assert sorted(order.tolist()) == list(range(n))
