"""Cliques list exactly the rows that occur in an allowed assignment; cliques are those of the triangulated graph."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import naive
from support.junction_tree.beliefs import MAXIMA, evidence, tree_cases

from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.junction_tree.cliques import clique_tree
from dmcmc.inference.junction_tree.message_kernels import DOWN, MARGINAL, SEPARATOR_MARGINAL, UP
from dmcmc.inference.junction_tree.sparse_passes import SparsePasses, values_of
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.sparse.sparse_table import SparseTable, project_keys

HARD = (0.0, 0.3, 0.5, 0.8)


def sparse_passes(case, memory=None):
    tables = [SparseTable.of(t, case.domains, case.arithmetic) for t in case.tables]
    return SparsePasses(case.tree, tables, case.domains, case.arithmetic, case.maximise, memory)


def connected(case, clique):
    """Return the cliques of a clique's component."""
    root = clique
    while case.tree.parent[root] >= 0:
        root = case.tree.parent[root]
    return case.subtree(root)


def propagate(case, observed):
    rows = sparse_passes(case)
    rows.observed[:] = [observed.get(v, -1) for v in range(case.domains.size)]
    cliques = np.arange(len(case.tree.scopes))
    for kind, order in ((UP, cliques), (DOWN, cliques[::-1]), (SEPARATOR_MARGINAL, cliques), (MARGINAL, cliques)):
        rows.run(kind, order)
    return rows


@settings(max_examples=80)
@given(tree_cases(hard=HARD))
def test_a_clique_lists_exactly_the_rows_of_allowed_assignments(case):
    rows = sparse_passes(case)
    for c, (table, scope) in enumerate(zip(rows.cliques, case.tree.scopes, strict=True)):
        allowed = case.belief(scope, {}, connected(case, c)) > -np.inf
        shape = tuple(case.domains[list(scope)])
        listed = np.zeros(shape, dtype=np.bool_)
        listed[tuple(values_of(v, scope, table.keys, case.domains) for v in scope)] = True
        np.testing.assert_array_equal(listed, allowed)
        assert table.rows == np.count_nonzero(allowed)
    assert rows.rows == sum(table.rows for table in rows.cliques)


@settings(max_examples=80)
@given(tree_cases(hard=HARD))
def test_every_row_of_a_separator_has_rows_on_both_sides(case):
    rows = sparse_passes(case)
    for c, (keys, scope, parent) in enumerate(
        zip(rows.separators, case.tree.separators, case.tree.parent, strict=True)
    ):
        assert (np.diff(keys) > 0).all()
        sides = [(c, rows.clique_to_separator[c])]
        if parent >= 0:
            sides.append((parent, rows.parent_to_separator[c]))
        for side, index in sides:
            projected = project_keys(rows.cliques[side], scope, case.domains)
            np.testing.assert_array_equal(keys[index], projected)
            assert set(index.tolist()) == set(range(keys.size))


@settings(max_examples=80)
@given(st.data())
def test_messages_of_rows_are_the_marginals_of_the_tables_on_their_side_whatever_the_evidence(data):
    case = data.draw(tree_cases(hard=HARD))
    observed = data.draw(evidence(case))
    rows = propagate(case, observed)
    for c, scope in enumerate(case.tree.separators):
        at = tuple(values_of(v, scope, rows.separators[c], case.domains) for v in scope)
        below, parent = case.subtree(c), case.tree.parent[c]
        up = case.belief(scope, observed, below)
        # an entry without a row is forbidden by the tables of the whole component
        sides = [(rows.up[c], up)] + [(rows.down[c], case.belief(scope, observed, connected(case, c) - below))] * (
            parent >= 0
        )
        for found, expected in sides:
            found = naive.decoded(found, case.arithmetic).astype(float)
            np.testing.assert_allclose(found, np.atleast_1d(expected[at])[: found.size], atol=1e-9)
        if parent < 0:
            total = rows.total(c)
            total = -np.inf if case.arithmetic.is_lowest(total) else total
            assert total == pytest.approx(up.item(), abs=1e-9)


@settings(max_examples=80)
@given(st.data())
def test_tables_of_variables_from_rows_are_marginals_whatever_the_evidence(data):
    case = data.draw(tree_cases(hard=HARD))
    observed = data.draw(evidence(case))
    rows = propagate(case, observed)
    for v in range(case.domains.size):
        home = next(c for c, scope in enumerate(case.tree.scopes) if v in scope)
        belief, found = case.belief((v,), observed, connected(case, home)), rows.marginal(v)
        if case.maximise:
            np.testing.assert_array_equal(naive.decoded(found, case.arithmetic).astype(float), belief)
        elif belief.max() == -np.inf:
            assert np.isnan(found).all()
        else:
            np.testing.assert_allclose(found, np.exp(belief - np.logaddexp.reduce(belief)), atol=1e-9)
        assert v in case.tree.scopes[rows.home[v]]


@settings(max_examples=80)
@given(tree_cases(hard=HARD))
def test_the_memory_limit_is_an_upper_bound_on_the_memory_taken(case):
    needed = sparse_passes(case).bytes
    for memory in (needed // 2, needed, 10**9):
        try:
            assert sparse_passes(case, memory).bytes == needed <= memory
        except OutOfMemory:
            assert memory < 10**9


@st.composite
def ordered_graphs(draw):
    """Draw scopes over up to 12 variables, each of them in a scope, their domain sizes and an elimination order."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = int(rng.integers(1, 13))
    scopes = [tuple(rng.permutation(n)[: rng.integers(1, 4)].tolist()) for _ in range(int(rng.integers(1, 16)))]
    return [*scopes, *((v,) for v in range(n))], rng.integers(1, 4, n), rng.permutation(n).tolist()


def triangulated(scopes, order):
    """Return the primal graph with the fill-in edges of an elimination order."""
    graph = nx.Graph()
    graph.add_nodes_from(order)
    graph.add_edges_from((u, v) for scope in scopes for u in scope for v in scope if u != v)
    remaining = graph.copy()
    for v in order:
        around = list(remaining[v])
        edges = [(a, b) for a in around for b in around if a != b]
        remaining.add_edges_from(edges)
        graph.add_edges_from(edges)
        remaining.remove_node(v)
    return graph


@given(ordered_graphs())
def test_the_cliques_are_the_maximal_cliques_of_the_triangulated_graph(case):
    scopes, domains, order = case
    tree, graph = clique_tree(scopes, domains, order), triangulated(scopes, order)
    assert sorted(map(sorted, tree.scopes)) == sorted(map(sorted, nx.find_cliques(graph)))
    assert tree.width == plan_elimination(scopes, domains, order).width
    assert len(tree.roots) == nx.number_connected_components(graph)
    position = {v: i for i, v in enumerate(order)}
    for scope in (*tree.scopes, *tree.separators):
        assert list(scope) == sorted(scope, key=position.__getitem__)
    assert all(c in tree.children[p] for c, p in enumerate(tree.parent) if p >= 0)
    assert sum(map(len, tree.children)) == len(tree.scopes) - len(tree.roots)


@given(ordered_graphs())
def test_a_separator_separates_the_variables_on_its_sides(case):
    scopes, domains, order = case
    tree, graph = clique_tree(scopes, domains, order), triangulated(scopes, order)
    for c, parent in enumerate(tree.parent):
        if parent >= 0:
            separator = set(tree.separators[c])
            rest = graph.subgraph(set(graph) - separator)
            sides = [set(tree.scopes[k]) - separator for k in (c, parent)]
            assert all(sides) and not any(nx.has_path(rest, a, b) for a in sides[0] for b in sides[1])


@given(st.integers(3, 40), st.integers(0, 2**32))
def test_paths_of_dependent_messages_are_at_most_a_third_longer_than_from_the_centre(n, seed):
    rng = np.random.default_rng(seed)
    edges = [(v, int(rng.integers(max(0, v - 2), v))) for v in range(1, n)]
    tree = clique_tree(edges, np.full(n, 2), list(range(n)) if seed % 2 else list(reversed(range(n))))
    depth = [0] * len(tree.scopes)
    for c in reversed(range(len(tree.scopes))):
        depth[c] = 0 if tree.parent[c] < 0 else depth[tree.parent[c]] + 1
    graph = nx.Graph([(c, p) for c, p in enumerate(tree.parent) if p >= 0])
    assume(graph.number_of_nodes())
    assert 3 * max(depth) <= 4 * ((nx.diameter(graph) + 1) // 2)


def test_a_clique_that_no_table_restricts_lists_all_values():
    tree = clique_tree([(0,), (1,)], np.array([3, 2]), [0, 1])
    empty = SparseTable((1,), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    full = SparseTable((0,), np.arange(3), np.zeros(3, dtype=np.int64))
    rows = SparsePasses(tree, [full, empty], np.array([3, 2]), MAXIMA, True)
    assert sorted(table.rows for table in rows.cliques) == [0, 3]
    rows.run(UP, np.arange(2))
    assert sorted(MAXIMA.is_lowest(rows.total(root)) for root in tree.roots) == [False, True]
