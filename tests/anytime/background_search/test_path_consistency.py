"""Soft path consistency keeps the cost of every assignment, raises the bound, and saves nodes of the search."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constraints.cost_problems import costs_of_all, problems

from dmcmc.samplers.branch_and_bound.cost_network import (
    DEPTH,
    FORBIDDEN,
    LOWER,
    NODES,
    TOP,
    cost_tables,
    network_of,
)
from dmcmc.samplers.branch_and_bound.engine import make_path_consistent, triples_of
from dmcmc.samplers.branch_and_bound.search_kernels import COMPLETE, search
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.toulbar2.costs import costs_of

GO_ON = np.zeros(1, dtype=np.uint8)


def costs_by_assignment(tables):
    """Return the sum of all costs of each assignment, at most FORBIDDEN."""
    found = {}
    for values in product(*map(range, tables.domains.tolist())):
        total = tables.bound + sum(int(costs[x]) for costs, x in zip(tables.unary, values, strict=True))
        for scope, table in (*tables.pairs.items(), *tables.triples.items()):
            total += int(table[tuple(values[v] for v in scope)])
        found[values] = min(total, FORBIDDEN)
    return found


def random_network(seed, n=4, size=3, hard=0.2):
    """Return costs of a complete graph, some of them forbidden."""
    rng = np.random.default_rng(seed)
    scopes = list(combinations(range(n), 2))
    tables = [np.where(rng.random((size, size)) < hard, -np.inf, -rng.integers(0, 20, (size, size))) for _ in scopes]
    return cost_tables(costs_of(scopes, tables, np.full(n, size)))


def solved(tables):
    """Search to the end; return the optimum and the number of nodes."""
    network, state = network_of(tables)
    code, begin, more = -1, True, np.zeros_like(state.trail)
    while code != COMPLETE:
        code, begin = search(network, state, begin, 1000, GO_ON), False
        state = state._replace(trail=np.concatenate([state.trail, more]))
    return int(state.head[TOP]), int(state.head[NODES])


@pytest.mark.parametrize(("seed", "hard"), [(0, 0.0), (1, 0.2), (2, 0.2), (3, 0.5), (4, 0.9)])
def test_no_assignment_changes_its_cost_and_the_bound_holds(seed, hard):
    before = random_network(seed, n=5, hard=hard)
    after = make_path_consistent(before)
    expected = costs_by_assignment(before)
    assert costs_by_assignment(after) == expected
    assert 0 <= after.bound <= min(expected.values(), default=0)
    assert all((table >= 0).all() for table in (*after.unary, *after.pairs.values(), *after.triples.values()))
    assert all((table < FORBIDDEN).all() and table.any() for table in after.triples.values())


class NaivePass:
    """The kernels in NumPy: all costs of a pair or triple are added up, and taken by its parts one after another."""

    def __init__(self, tables, triples):
        self.bound, self.unary = tables.bound, [costs.copy() for costs in tables.unary]
        self.pairs = {pair: table.copy() for pair, table in tables.pairs.items()}
        self.triples = {triple: np.zeros(tables.domains[list(triple)], dtype=np.int64) for triple in triples}

    def run(self, forward):
        for tables in (self.pairs, self.triples):
            for scope in sorted(tables, reverse=not forward):
                parts = [p for p in self.pairs if len(scope) == 3 and set(p) <= set(scope)]
                total = tables[scope] + sum(self.along(self.unary[v], scope, (v,)) for v in scope)
                total = np.minimum(total + sum(self.along(self.pairs[p], scope, p) for p in parts), FORBIDDEN)
                for v in sorted(scope, reverse=forward):
                    self.unary[v], total = self.taken(total, scope, (v,))
                    if 0 < (smallest := self.unary[v].min()) < FORBIDDEN:
                        self.bound += smallest
                        self.unary[v] = np.where(self.unary[v] < FORBIDDEN, self.unary[v] - smallest, FORBIDDEN)
                for p in sorted(parts, reverse=forward):
                    self.pairs[p], total = self.taken(total, scope, p)
                tables[scope] = np.where(total == FORBIDDEN, 0, total) if len(scope) == 3 else total

    @staticmethod
    def along(table, scope, part):
        """Return a table with an axis for each variable of a scope."""
        return np.expand_dims(table, tuple(i for i, v in enumerate(scope) if v not in part))

    def taken(self, total, scope, part):
        """Return what all entries of each value of a part have in common, and the rest."""
        common = total.min(axis=tuple(i for i, v in enumerate(scope) if v not in part))
        return common, np.where(total < FORBIDDEN, total - self.along(common, scope, part), FORBIDDEN)


@pytest.mark.parametrize("seed", range(6))
def test_the_kernels_equal_numpy(seed, monkeypatch):
    monkeypatch.setattr(tuning, "MIN_PASS_GAIN", -1.0)  # until the last pass
    monkeypatch.setattr(tuning, "MAX_PASSES", 5)
    tables = random_network(seed)
    naive, found = NaivePass(tables, combinations(range(4), 3)), make_path_consistent(tables)
    for number in range(5):
        naive.run(number % 2 == 0)
    assert found.bound == naive.bound
    assert all(np.array_equal(a, b) for a, b in zip(found.unary, naive.unary, strict=True))
    assert all(np.array_equal(found.pairs[pair], table) for pair, table in naive.pairs.items())
    assert all(np.array_equal(found.triples.get(scope, 0 * t), t) for scope, t in naive.triples.items())


@pytest.mark.parametrize("seed", range(5))
def test_it_is_exact_on_three_variables_and_no_worse_than_pairs_alone(seed):
    triangle, larger = random_network(seed, n=3, hard=0.0), random_network(seed, n=5, hard=0.0)
    assert make_path_consistent(triangle).bound == min(costs_by_assignment(triangle).values())
    assert make_path_consistent(larger, max_entries=0).bound <= make_path_consistent(larger).bound


def test_the_smallest_triples_are_used_if_memory_is_short():
    domains = np.array([2, 3, 4, 5])
    pairs = {pair: np.zeros(domains[list(pair)], dtype=np.int64) for pair in combinations(range(4), 2)}
    assert triples_of(pairs, domains, 1000) == list(combinations(range(4), 3))
    assert triples_of(pairs, domains, 24 + 30) == [(0, 1, 2), (0, 1, 3)]
    assert triples_of(pairs, domains, 23) == []


def test_it_stops_when_asked():
    tables = random_network(0)
    assert make_path_consistent(tables, may_continue=lambda: False).bound == 0
    halted = make_path_consistent(tables, halt=np.ones(1, dtype=np.uint8))
    assert costs_by_assignment(halted) == costs_by_assignment(tables)


@given(problems())
@settings(deadline=None, max_examples=40)
def test_a_search_of_the_triples_continues_after_interruptions(costs):
    best = min(costs_of_all(costs).values(), default=costs.top)
    network, state = network_of(make_path_consistent(cost_tables(costs)))
    halt, begin, code, more = np.ones(1, dtype=np.uint8), True, -1, np.zeros_like(state.trail)
    while code != COMPLETE:
        code, begin = search(network, state, begin, 1, halt), False
        assert state.head[LOWER] <= best <= state.head[TOP]
        halt[0] = not halt[0]
        state = state._replace(trail=np.concatenate([state.trail, more]))
    assert state.head[TOP] == best and state.head[DEPTH] == 0


@given(st.integers(0, 2**32), st.integers(2, 4), st.sampled_from([0.0, 0.3, 0.6]))
@settings(deadline=None, max_examples=50)
def test_a_search_of_a_dense_network_finds_the_optimum(seed, size, hard):
    tables = random_network(seed, n=5, size=size, hard=hard)
    best = min((cost for cost in costs_by_assignment(tables).values() if cost < tables.top), default=tables.top)
    assert solved(tables)[0] == solved(make_path_consistent(tables))[0] == best


def test_most_nodes_of_a_random_network_are_saved():
    rng = np.random.default_rng(1)
    scopes = [pair for pair in combinations(range(16), 2) if rng.random() < 0.7]
    costs = costs_of(scopes, [-rng.integers(0, 100, (4, 4)) for _ in scopes], np.full(16, 4))
    (plain, nodes), (found, fewer) = solved(cost_tables(costs)), solved(make_path_consistent(cost_tables(costs)))
    assert plain == found and 2 * fewer < nodes
