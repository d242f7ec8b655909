"""Test the reordering of large pieces: safe eliminations, separators, sweeps, and results on graphs of known width."""

import math
import time
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.graphs_to_order import check_numbers, cycle, graphs, grid, kernel_graph, random_graph, total_of

from dmcmc.inference.orders import reorder_subtrees
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.orders.bitset_kernels import seeded
from dmcmc.inference.orders.reorder_subtrees import improve_subtrees
from dmcmc.inference.orders.sweep_order_kernels import eliminate_almost_simplicial, sweep_order
from dmcmc.inference.orders.vertex_separator_kernels import balanced_cuts, cut_orders, neighbour_lists
from dmcmc.inference.runtime.deadline import Deadline


def largest_of(scopes, domains, order):
    """Return the cells of the largest joined table of an order."""
    return max(cells for _, cells in naive.simulate_order(scopes, domains, order))


def improved(scopes, domains, order, budget=3e5, stop=None):
    """Return an order after pieces of it were reordered."""
    words, sizes, weight, _ = kernel_graph(scopes, domains)
    more = {} if stop is None else {"stop": stop}
    return improve_subtrees(words, sizes, weight, np.asarray(order, dtype=np.int64), budget, **more).tolist()


@given(graphs(7), st.integers(0, 40))
@settings(max_examples=60)
def test_safe_eliminations_cost_no_more_than_the_limit_or_the_best_order(graph, limit):
    """Some order that starts with them has a largest table within the limit, or within that of the best order."""
    scopes, domains, _ = graph
    words, sizes, _, n = kernel_graph(scopes, domains)
    order = np.zeros(n, dtype=np.int64)
    safe = order[: eliminate_almost_simplicial(words.copy(), sizes, n, limit, order)[0]].tolist()
    rest = [v for v in range(n) if v not in safe]
    best = min(largest_of(scopes, domains, p) for p in permutations(range(n)))
    best_after = min(largest_of(scopes, domains, (*safe, *p)) for p in permutations(rest))
    assert best_after <= max(best, limit)


@pytest.mark.parametrize(("scopes", "n"), [(cycle(12), 12), ([(0, v) for v in range(1, 9)], 9), ([], 3)])
def test_cycles_star_graphs_and_isolated_vertices_are_eliminated_completely(scopes, n):
    words, sizes, _, _ = kernel_graph(scopes, np.full(n, 3))
    assert eliminate_almost_simplicial(words.copy(), sizes, n, np.inf, np.zeros(n, dtype=np.int64))[0] == n


def test_tables_above_the_limit_are_not_eliminated():
    words, sizes, _, n = kernel_graph(cycle(12), np.full(12, 3))
    assert eliminate_almost_simplicial(words, sizes, n, 26.0, np.zeros(n, dtype=np.int64))[0] == 0


def connected(graph, start, removed):
    """Return the vertices that can be reached from ``start``."""
    seen, queue = {start}, [start]
    while queue:
        for u in graph[queue.pop()]:
            if u not in seen and u not in removed:
                seen.add(u)
                queue.append(u)
    return seen


@given(st.integers(0, 999), st.integers(6, 16), st.integers(0, 99))
@settings(max_examples=100)
def test_cuts_separate_the_two_vertices_and_grow_in_weight_from_a_minimum_cut(seed, n, draws):
    rng = np.random.default_rng(seed)
    scopes = random_graph(seed, n, int(rng.integers(n - 1, 2 * n)))
    words, _, weight, _ = kernel_graph(scopes, rng.integers(2, 6, n))
    around = [{u for s in scopes for u in s if v in s} - {v} for v in range(n)]
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b and b not in around[a]]
    if not pairs:
        return
    source, target = pairs[int(rng.integers(len(pairs)))]
    start, ends, opposite = neighbour_lists(words, n)
    cuts = np.zeros((64, n), dtype=np.bool_)
    heavy, smaller = np.zeros(64, dtype=np.int64), np.zeros(64, dtype=np.int64)
    found, _ = balanced_cuts(
        start, ends, opposite, weight, source, target, 1 << 40, cuts, heavy, smaller, seeded(draws)
    )
    assert found
    assert (np.diff(heavy[:found]) > 0).all()
    for cut, value in zip(cuts[:found], heavy[:found], strict=True):
        chosen = set(np.flatnonzero(cut).tolist())
        assert weight[cut].sum() == value
        assert target not in connected(around, source, chosen)
        assert not {source, target} & chosen
    others = [v for v in range(n) if v not in (source, target)]
    if len(others) <= 8:
        least = min(
            sum(int(weight[v]) for i, v in enumerate(others) if subset >> i & 1)
            for subset in range(1 << len(others))
            if target not in connected(around, source, {v for i, v in enumerate(others) if subset >> i & 1})
        )
        assert heavy[0] == least


@given(graphs(16), st.integers(0, 99))
@settings(max_examples=60)
def test_orders_of_all_methods_have_each_vertex_once(graph, seed):
    scopes, domains, _ = graph
    words, _, weight, n = kernel_graph(scopes, domains)
    for orders, work in (
        sweep_order(words, weight, n, seeded(seed)),
        cut_orders(words, weight, n, 1 << 40, seeded(seed)),
    ):
        assert work >= 0
        for order in orders:
            assert sorted(order.tolist()) == list(range(n))


@given(graphs(20), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_reordered_pieces_never_make_an_order_worse_and_are_reproducible(graph, seed):
    scopes, domains, _ = graph
    n = len(domains)
    order = np.random.default_rng(seed).permutation(n)
    better = improved(scopes, domains, order)
    assert sorted(better) == list(range(n))
    assert total_of(scopes, domains, better) <= total_of(scopes, domains, order) * (1 + 1e-9)
    assert better == improved(scopes, domains, order)


@pytest.mark.parametrize("k", [12, 16])
def test_grids_have_the_width_of_their_side_and_little_more(k):
    """Greedy rules leave islands on grids; reordered pieces do not."""
    order = best_order(grid(k), np.full(k * k, 2), range(k * k), expected_cells=1e9)
    assert order.width <= k + 1
    check_numbers(order, grid(k), np.full(k * k, 2))


def test_annealing_finds_an_order_that_improvements_alone_do_not_find(monkeypatch):
    """Annealing is also reproducible, and returns the best order on the way."""
    scopes, domains = random_graph(3, 80, 150), np.full(80, 2)
    start = best_order(scopes, domains, range(80)).variables
    monkeypatch.setattr(reorder_subtrees, "LONG_BUDGET", 1e7)
    found = []
    for temperature in (0.0, 0.01, 0.01):
        monkeypatch.setattr(reorder_subtrees, "START_TEMPERATURE", temperature)
        found.append(improved(scopes, domains, start, budget=4e7))
    assert found[1] == found[2]
    assert total_of(scopes, domains, found[1]) < total_of(scopes, domains, found[0])


def test_more_expected_cells_give_an_order_no_worse():
    scopes, domains = random_graph(4, 60, 160), np.full(60, 2)
    plain = best_order(scopes, domains, range(60))
    longer = best_order(scopes, domains, range(60), expected_cells=1e9)
    assert longer.cells <= plain.cells
    assert longer == best_order(scopes, domains, range(60), expected_cells=1e9)
    check_numbers(longer, scopes, domains)


def test_kept_variables_stay_and_count():
    scopes, domains = grid(9), np.full(81, 3)
    keep = list(range(9))
    order = best_order(scopes, domains, range(9, 81), keep, expected_cells=1e9)
    assert sorted(order.variables) == list(range(9, 81))
    check_numbers(order, scopes, domains)


def test_the_deadline_ends_the_search_with_the_best_order_so_far():
    scopes, domains = random_graph(5, 400, 1500), np.full(400, 2)
    plain = best_order(scopes, domains, range(400), budget=1e6)
    start = time.perf_counter()
    ended = best_order(scopes, domains, range(400), budget=1e9, stop=Deadline(start), expected_cells=math.inf)
    assert ended.cells <= plain.cells * (1 + 1e-9)
    check_numbers(ended, scopes, domains)
