"""Test elimination orders: their cost, the quality of the portfolio, and known widths of graphs."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import naive
from support.graphs_to_order import by_rule, check_numbers, cycle, graphs, grid, random_graph, total_of, tree

import dmcmc.inference.orders.best_order as best_order_module
from dmcmc.inference.orders import best_order as estimate_cost
from dmcmc.inference.orders.best_order import (
    DEPTH_FIRST_RULES,
    RULES,
    best_order,
    cells_upper_bound,
    joins_at_least,
    primal_graph,
    scaled_weights,
)
from dmcmc.inference.tuning import MAX_EXACT_VARIABLES

every_rule = st.sampled_from((*RULES, *DEPTH_FIRST_RULES))


@given(graphs(), every_rule, st.one_of(st.none(), st.integers(0, 99)))
@settings(max_examples=200)
def test_a_rule_orders_exactly_the_chosen_variables_and_reports_their_cost(graph, rule, seed):
    scopes, domains, chosen = graph
    order = by_rule(scopes, domains, chosen, rule, seed if rule in RULES else None)
    assert sorted(order.variables) == np.flatnonzero(chosen).tolist()
    assert order.rule == rule
    check_numbers(order, scopes, domains)


@given(graphs())
def test_the_estimate_is_an_upper_bound_on_the_cells_of_the_best_order(graph):
    scopes, domains, chosen = graph
    eliminate, keep = np.flatnonzero(chosen).tolist(), np.flatnonzero(~chosen).tolist()
    inner = [scope for scope in scopes if any(chosen[v] for v in scope)]
    assert best_order(inner, domains, eliminate, keep).cells <= cells_upper_bound(inner, domains, eliminate) * (
        1 + 1e-9
    )


@given(graphs())
def test_the_estimate_eliminates_the_smallest_bucket_first(graph):
    scopes, domains, chosen = graph
    inner = [set(scope) for scope in scopes if any(chosen[v] for v in scope)]
    left, total = set(np.flatnonzero(chosen).tolist()), 0.0
    expected = cells_upper_bound([tuple(scope) for scope in inner], domains, sorted(left))
    while left:
        buckets = {v: {v}.union(*(scope for scope in inner if v in scope)) for v in left}
        v = min(left, key=lambda v: (math.prod(float(domains[u]) for u in buckets[v]), v))
        total += math.prod(float(domains[u]) for u in buckets[v])
        inner = [scope for scope in inner if v not in scope] + [buckets[v] - {v}]
        left.remove(v)
    assert math.isclose(total, expected)


@given(graphs(), st.floats(1, 1e6))
def test_for_many_variables_the_estimate_needs_no_search(graph, cells):
    scopes, domains, chosen = graph
    eliminate, keep = np.flatnonzero(chosen).tolist(), np.flatnonzero(~chosen).tolist()
    inner = [scope for scope in scopes if any(chosen[v] for v in scope)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmcmc.inference.tuning.MAX_BITSET_VARIABLES", 0)
        patch.setattr(estimate_cost, "best_order", None)
        large = joins_at_least(inner, domains, eliminate, keep, cells)
    assert large == (cells_upper_bound(inner, domains, eliminate) >= cells)
    assert large or best_order(inner, domains, eliminate, keep).cells < cells * (1 + 1e-9)


def rule_cost(rule, v, neighbours, weight):
    """Return a rule's cost of eliminating v, computed from the current sets of neighbours."""
    around = sorted(neighbours[v])
    if rule == "min-degree":
        return len(around)
    if rule == "min-weight":
        return weight[v] + sum(weight[u] for u in around)
    fill = [(a, b) for a, b in combinations(around, 2) if b not in neighbours[a]]
    return len(fill) if rule == "min-fill" else sum(weight[a] * weight[b] for a, b in fill)


@given(graphs(), st.sampled_from(RULES))
@settings(max_examples=200)
def test_each_step_eliminates_a_cheapest_variable_of_the_current_graph(graph, rule):
    scopes, domains, chosen = graph
    weight = scaled_weights(domains.astype(float)).tolist()
    kept = np.flatnonzero(~chosen).tolist()
    neighbours = {v: set().union(*(s for s in (*scopes, kept) if v in s)) - {v} for v in range(len(domains))}
    todo = set(np.flatnonzero(chosen).tolist())
    for v in by_rule(scopes, domains, chosen, rule).variables:
        costs = {u: rule_cost(rule, u, neighbours, weight) for u in todo}
        assert costs[v] == min(costs.values())
        around = neighbours.pop(v)
        todo.remove(v)
        for u in around:
            neighbours[u] = (neighbours[u] | around) - {u, v}


@given(graphs(), st.sampled_from(DEPTH_FIRST_RULES))
@settings(max_examples=150)
def test_a_depth_first_order_has_every_factor_on_one_branch_of_a_tree_of_edges(graph, rule):
    """In a depth-first tree each variable's parent, the next of its separator, is a neighbour in the graph."""
    scopes, domains, _ = graph
    everyone = np.ones(len(domains), dtype=bool)
    order = by_rule(scopes, domains, everyone, rule).variables
    adjacent = primal_graph(scopes, {v: v for v in range(len(domains))})
    rank = {v: i for i, v in enumerate(order)}
    for v, (around, _) in zip(order, naive.simulate_order(scopes, domains, order), strict=True):
        if around:
            parent = min(around, key=rank.__getitem__)
            assert any(adjacent[u, parent] for u in order[: rank[v] + 1])


def test_the_two_depth_first_rules_start_from_opposite_ends():
    """On a star with one long arm, the journal's root is the end of the arm, and the usual root is the centre."""
    scopes = [(0, 1), (0, 2), (0, 3), (3, 4)]
    roots = [by_rule(scopes, np.full(5, 2), np.ones(5, dtype=bool), r).variables[-1] for r in DEPTH_FIRST_RULES]
    assert roots == [1, 0]


@given(graphs())
@settings(max_examples=100)
def test_the_portfolio_is_never_worse_than_any_rule(graph):
    scopes, domains, chosen = graph
    eliminate, keep = np.flatnonzero(chosen).tolist(), np.flatnonzero(~chosen).tolist()
    best = best_order(scopes, domains, eliminate, keep)
    assert sorted(best.variables) == eliminate
    check_numbers(best, scopes, domains)
    assert best == best_order(scopes, domains, eliminate, keep)
    for rule in (*RULES, *DEPTH_FIRST_RULES):
        assert best.cells <= by_rule(scopes, domains, chosen, rule).cells * (1 + 1e-9)


@given(graphs(7))
@settings(max_examples=40)
def test_small_graphs_are_ordered_optimally(graph):
    scopes, domains, _ = graph
    assume(domains.min() >= 2)
    best = min(total_of(scopes, domains, p) for p in permutations(range(len(domains))))
    assert best_order(scopes, domains, range(len(domains))).cells == best


@given(graphs(8))
@settings(max_examples=60)
def test_few_variables_have_an_optimal_order_given_kept_variables(graph):
    scopes, domains, chosen = graph
    assume(domains.min() >= 2)
    eliminate, keep = np.flatnonzero(chosen).tolist(), np.flatnonzero(~chosen).tolist()
    best = min(sum(c for _, c in naive.simulate_order(scopes, domains, p)) for p in permutations(eliminate))
    order = best_order(scopes, domains, eliminate, keep)
    assert order.cells == best
    check_numbers(order, scopes, domains)


def test_few_variables_need_no_kernels(monkeypatch):
    search_calls = []

    def search(graph, sizes, weight, eliminate, rules, budget, hard_limit, seed, known, best):
        search_calls.append(eliminate)
        best[:] = np.arange(eliminate)
        return 1.0, 1.0, 1, 0, 0

    monkeypatch.setattr(best_order_module, "search", search)
    for n in (MAX_EXACT_VARIABLES, MAX_EXACT_VARIABLES + 1):
        best_order(cycle(n), np.full(n, 9), range(n))
    best_order([(0, v) for v in range(99)], np.full(99, 2), [0, 1], range(2, 99))  # all variables form one clique
    best_order([(0, 1), (1, 2), (2, 3), (3, 0)], np.full(4, 2), [0, 1, 2, 3])
    assert search_calls == [MAX_EXACT_VARIABLES + 1]


@given(graphs(), st.integers(0, 2**32))
@settings(max_examples=40)
def test_repeated_and_reordered_scopes_change_nothing(graph, seed):
    scopes, domains, _ = graph
    rng = np.random.default_rng(seed)
    other = [tuple(rng.permutation(s).tolist()) for s in (*scopes, *scopes[:3], ())]
    rng.shuffle(other)
    assert best_order(other, domains, range(len(domains))) == best_order(scopes, domains, range(len(domains)))


@pytest.mark.parametrize(
    ("scopes", "n", "width"),
    [
        (tree(31), 31, 1),
        ([(0, v) for v in range(1, 20)], 20, 1),
        (cycle(17), 17, 2),
        (list(combinations(range(8), 2)), 8, 7),
        ([tuple(range(6))], 6, 5),
        ([tuple(range(70)), (69, 70)], 71, 69),
        ([], 4, 0),
        ([*tree(5), *[(a + 5, b + 5) for a, b in cycle(5)]], 12, 2),
        ([()], 1, 0),
    ],
)
@pytest.mark.parametrize("rule", RULES)
def test_known_widths_are_found_by_every_rule(scopes, n, width, rule):
    domains = np.full(n, 3)
    assert by_rule(scopes, domains, np.ones(n, dtype=bool), rule).width == width
    assert best_order(scopes, domains, range(n)).width == width


def test_nothing_to_eliminate_is_an_empty_order():
    order = best_order([(0, 1)], np.array([2, 2]), [], [0, 1])
    assert (order.variables, order.cells, order.largest, order.width) == ((), 0, 0, 0)


def test_the_rule_of_an_order_reports_whether_there_was_a_choice():
    assert best_order(tree(9), np.full(9, 3), range(9)).rule == "simplicial"
    assert best_order(cycle(9), np.full(9, 3), range(9)).rule == "exact"
    assert best_order(cycle(15), np.full(15, 3), range(15)).rule in (*RULES, *DEPTH_FIRST_RULES)


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6])
def test_a_grid_has_its_side_as_width(k):
    order = best_order(grid(k), np.full(k * k, 4), range(k * k))
    assert order.width == k


def test_a_grid_of_ten_is_ordered_better_than_min_fill_can():
    """Compare: min-fill, best of 20, joins 4.6e8 cells; random greedy, 128 tries, joins 1.3e8."""
    order = best_order(grid(10), np.full(100, 4), range(100))
    assert order.cells <= 1.3e8


def test_domain_sizes_decide_where_the_graph_does_not():
    """On a cycle of four, eliminating the large variables first avoids the table that holds both of them."""
    order = best_order(cycle(4), np.array([2, 50, 2, 50]), range(4))
    assert order.variables[0] in (1, 3)
    assert order.largest == 2 * 2 * 50


def test_kept_variables_count_in_every_table_they_end_up_in():
    order = best_order([(0, 1), (0, 2), (0, 3)], np.array([2, 3, 5, 7]), [0], [1, 2, 3])
    assert (order.cells, order.width) == (210, 3)


def test_cells_stay_finite_for_huge_tables():
    order = best_order(list(combinations(range(400), 2)), np.full(400, 1000), range(400))
    assert 1e300 <= order.cells < math.inf
    assert order.largest == 1e300
    assert order.width == 399


def test_a_larger_budget_gives_an_order_no_worse_on_a_graph_where_it_pays():
    scopes, domains = random_graph(3, 60, 160), np.full(60, 4)
    cells = [best_order(scopes, domains, range(60), budget=b).cells for b in (0, 1e5, 1e7)]
    assert cells[2] <= cells[0]
    assert cells[1] <= cells[0]
