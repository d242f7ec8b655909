"""Elimination orders: what an order costs, how good the portfolio is, and the widths that graph theory knows."""

import math
from itertools import combinations, pairwise

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmcmc.inference.orders import RULES, best_order, greedy_order, primal_graph


@st.composite
def graphs(draw):
    """Scopes of 1 to 4 of up to 12 variables, domain sizes from 1, and which variables to eliminate."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, 12))
    scopes = [tuple(rng.permutation(n)[: rng.integers(1, min(n, 4) + 1)].tolist()) for _ in range(rng.integers(0, 16))]
    domains = rng.integers(1, 7, n)
    chosen = rng.random(n) < draw(st.sampled_from([0.3, 0.7, 1.0]))
    return scopes, domains, chosen


def greedy(scopes, domains, chosen, rule, tie_seed=None):
    n = len(domains)
    adjacent = primal_graph(scopes, {v: v for v in range(n)})
    return greedy_order(adjacent, np.log2(domains.astype(float)), chosen, rule, tie_seed)


def check_numbers(order, scopes, domains):
    """An order's numbers are those of eliminating in that order."""
    steps = naive.simulate_order(scopes, domains, order.variables)
    assert math.isclose(order.cells, sum(cells for _, cells in steps), rel_tol=1e-9, abs_tol=0)
    assert math.isclose(order.largest, max((cells for _, cells in steps), default=0), rel_tol=1e-9, abs_tol=0)
    assert order.width == max((len(around) for around, _ in steps), default=0)


@given(graphs(), st.sampled_from(RULES), st.one_of(st.none(), st.integers(0, 99)))
@settings(max_examples=200, deadline=None)
def test_a_rule_orders_exactly_the_chosen_variables_and_knows_the_cost(graph, rule, seed):
    scopes, domains, chosen = graph
    order = greedy(scopes, domains, chosen, rule, seed)
    assert sorted(order.variables) == np.flatnonzero(chosen).tolist()
    check_numbers(order, scopes, domains)


def rule_cost(rule, v, neighbours, weight):
    """What a rule says of eliminating v, from the sets of neighbours as they are."""
    around = sorted(neighbours[v])
    if rule == "min-degree":
        return len(around)
    if rule == "min-weight":
        return weight[v] + sum(weight[u] for u in around)
    fill = [(a, b) for a, b in combinations(around, 2) if b not in neighbours[a]]
    return len(fill) if rule == "min-fill" else sum(weight[a] * weight[b] for a, b in fill)


@given(graphs(), st.sampled_from(RULES))
@settings(max_examples=150, deadline=None)
def test_each_step_takes_a_cheapest_variable_of_the_graph_as_it_is_then(graph, rule):
    scopes, domains, chosen = graph
    weight = np.log2(domains.astype(float)).tolist()
    neighbours = {v: set().union(*(s for s in scopes if v in s)) - {v} for v in range(len(domains))}
    todo = set(np.flatnonzero(chosen).tolist())
    for v in greedy(scopes, domains, chosen, rule).variables:
        costs = {u: rule_cost(rule, u, neighbours, weight) for u in todo}
        assert costs[v] <= min(costs.values()) + 1e-9
        around = neighbours.pop(v)
        todo.remove(v)
        for u in around:
            neighbours[u] = (neighbours[u] | around) - {u, v}


@given(graphs())
@settings(max_examples=80, deadline=None)
def test_the_portfolio_is_never_worse_than_a_member_and_keeps_what_is_kept(graph):
    scopes, domains, chosen = graph
    eliminate, keep = np.flatnonzero(chosen).tolist(), np.flatnonzero(~chosen).tolist()
    best = best_order(scopes, domains, eliminate, keep)
    assert sorted(best.variables) == eliminate
    check_numbers(best, scopes, domains)
    assert best == best_order(scopes, domains, eliminate, keep)
    for rule in RULES:
        assert best.cells <= greedy(scopes, domains, chosen, rule).cells * (1 + 1e-9)
    assert best.cells <= best_order(scopes, domains, eliminate, keep, repeats=0).cells


def tree(n):
    return [(v, v // 2) for v in range(1, n)]


def cycle(n):
    return [(v, (v + 1) % n) for v in range(n)]


def grid(k):
    rows = [[k * r + c for c in range(k)] for r in range(k)]
    return [e for line in (*rows, *zip(*rows, strict=True)) for e in pairwise(line)]


@pytest.mark.parametrize(
    ("scopes", "n", "width"),
    [
        (tree(31), 31, 1),
        ([(0, v) for v in range(1, 20)], 20, 1),
        (cycle(17), 17, 2),
        (list(combinations(range(8), 2)), 8, 7),
        ([tuple(range(6))], 6, 5),
        ([], 4, 0),
    ],
)
@pytest.mark.parametrize("rule", RULES)
def test_known_widths_are_found_by_every_rule(scopes, n, width, rule):
    domains = np.full(n, 3)
    assert greedy(scopes, domains, np.ones(n, dtype=bool), rule).width == width
    assert best_order(scopes, domains, range(n)).width == width


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_a_grid_has_at_most_its_side_as_width(k):
    order = best_order(grid(k), np.full(k * k, 2), range(k * k))
    assert order.width <= k
    assert order.width >= 2


def test_domain_sizes_decide_where_the_graph_does_not():
    """On a cycle of four, eliminating the large variables first avoids the table that holds both of them."""
    order = best_order(cycle(4), np.array([2, 50, 2, 50]), range(4))
    assert order.variables[0] in (1, 3)
    assert order.largest == 2 * 2 * 50


def test_kept_variables_count_in_every_table_they_end_up_in():
    order = best_order([(0, 1), (0, 2), (0, 3)], np.array([2, 3, 5, 7]), [0], [1, 2, 3])
    assert (order.cells, order.width) == (pytest.approx(210), 3)
