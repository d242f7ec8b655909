"""Graphs for the tests of elimination orders, and the cost of an order."""

import math
from itertools import combinations, pairwise

import numpy as np
from hypothesis import strategies as st

from dmcmc.inference.orders.best_order import primal_graph, rule_order, scaled_weights
from dmcmc.inference.orders.bitset_kernels import pack
from support import naive


@st.composite
def graphs(draw, largest=12):
    """Draw scopes of 1 to 5 variables, domain sizes from 1, and the variables to eliminate."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, largest))
    count = rng.integers(0, 2 * n)
    scopes = [tuple(rng.permutation(n)[: rng.integers(1, min(n, 5) + 1)].tolist()) for _ in range(count)]
    domains = rng.integers(1, 7, n)
    chosen = rng.random(n) < draw(st.sampled_from([0.3, 0.7, 1.0]))
    return scopes, domains, chosen


def by_rule(scopes, domains, chosen, rule, tie_seed=None):
    """Return the order of one greedy rule; variables outside ``chosen`` are not eliminated."""
    adjacent = primal_graph(scopes, {v: v for v in range(len(domains))})
    return rule_order(adjacent, domains.astype(float), chosen, rule, tie_seed)


def total_of(scopes, domains, order):
    """Return the number of joined cells of an elimination in this order."""
    return sum(cells for _, cells in naive.simulate_order(scopes, domains, order))


def check_numbers(order, scopes, domains):
    """Check that the numbers of an order are those of its elimination."""
    steps = naive.simulate_order(scopes, domains, order.variables)
    assert math.isclose(order.cells, sum(cells for _, cells in steps), rel_tol=1e-9, abs_tol=0)
    assert math.isclose(order.largest, max((cells for _, cells in steps), default=0), rel_tol=1e-9, abs_tol=0)
    assert order.width == max((len(around) for around, _ in steps), default=0)


def kernel_graph(scopes, domains):
    """Return the arguments of the order kernels for eliminating all variables."""
    n = len(domains)
    adjacent = primal_graph(scopes, {v: v for v in range(n)})
    sizes = np.asarray(domains, dtype=float)
    return pack(adjacent), sizes, scaled_weights(sizes), n


def tree(n):
    """Return the edges of a binary tree."""
    return [(v, v // 2) for v in range(1, n)]


def cycle(n):
    """Return the edges of a cycle."""
    return [(v, (v + 1) % n) for v in range(n)]


def grid(k):
    """Return the edges of a k by k grid."""
    rows = [[k * r + c for c in range(k)] for r in range(k)]
    return [e for line in (*rows, *zip(*rows, strict=True)) for e in pairwise(line)]


def random_graph(seed, n, edges):
    """Return a number of different random edges among n vertices."""
    rng = np.random.default_rng(seed)
    pairs = list(combinations(range(n), 2))
    return [pairs[i] for i in rng.choice(len(pairs), edges, replace=False)]
