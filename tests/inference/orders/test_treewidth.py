"""Orders have the width that a naive elimination has, exact ones the treewidth; safe steps do not raise it."""

import math
from functools import cache
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import naive
from support.graphs_to_order import graphs, grid, kernel_graph, random_graph, total_of

from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.orders.bitset_kernels import has, members, pack, random_unit, seeded, subgraph
from dmcmc.inference.orders.exact_order import exact_order, order_cost
from dmcmc.inference.orders.reorder_subtrees_kernels import children_of, extract_piece, insert_piece
from dmcmc.inference.orders.sweep_order_kernels import eliminate_almost_simplicial, sweep
from dmcmc.inference.orders.vertex_separator_kernels import farthest, neighbour_lists
from dmcmc.inference.orders.window_kernels import bucket_tree, order_of_tree, totals

LARGE = 1000.0  # values of each variable; with a number this large the fewest cells mean the least width


def network_of(scopes, n):
    """Return the primal graph."""
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(pair for scope in scopes for pair in combinations(scope, 2))
    return graph


def treewidth(graph):
    """Return the treewidth by dynamic programming over the sets of eliminated vertices (Bodlaender et al. 2012)."""
    vertices = frozenset(graph)

    @cache
    def best(eliminated):
        if not eliminated:
            return -1
        widths = []
        for v in eliminated:
            before = eliminated - {v}
            reached = nx.node_connected_component(graph.subgraph(before | {v}), v)
            neighbours = {u for w in reached for u in graph[w]} - reached
            widths.append(max(best(before), len(neighbours)))
        return min(widths)

    return best(vertices)


@given(st.integers(2, 8), st.floats(0.2, 0.9), st.integers(0, 2**32))
@settings(max_examples=40)
def test_the_best_order_of_large_equal_domains_has_the_treewidth(n, density, seed):
    scopes = random_graph(seed, n, int(density * n * (n - 1) / 2))
    order = best_order(scopes, np.full(n, int(LARGE)), range(n))
    assert order.width == treewidth(network_of(scopes, n))
    steps = naive.simulate_order(scopes, np.full(n, int(LARGE)), order.variables)
    assert order.width == max(len(around) for around, _ in steps)


@given(st.integers(5, 7), st.integers(5, 9), st.integers(0, 2**32), st.sampled_from([np.inf, LARGE**3]))
@settings(max_examples=100)
def test_safe_eliminations_do_not_raise_the_treewidth(n, edges, seed, limit):
    scopes = random_graph(seed, n, edges)
    network = network_of(scopes, n)
    width = treewidth(network)
    words, _, _, _ = kernel_graph(scopes, np.full(n, 2))
    order = np.zeros(n, dtype=np.int64)
    done, _ = eliminate_almost_simplicial(words, np.full(n, LARGE), n, limit, order)
    for v in order[:done].tolist():  # what remains is the graph after a naive elimination
        around = list(network[v])
        assert LARGE ** (1 + len(around)) <= limit
        network.add_edges_from(combinations(around, 2))
        network.remove_node(v)
        assert treewidth(network) <= width
    rest = sorted(network)
    adjacent = nx.to_numpy_array(network, nodelist=rest, dtype=np.bool_) if rest else np.zeros((0, 0), dtype=np.bool_)
    np.testing.assert_array_equal(subgraph(words, np.array(rest, dtype=np.int64)), pack(adjacent))


@given(graphs(8), st.data())
@settings(max_examples=60)
def test_fewer_factors_or_smaller_domains_never_cost_more(graph, data):
    scopes, domains, _ = graph
    assume(domains.min() >= 2)
    n = domains.size

    def least(some, sizes):
        found = exact_order(some, sizes, n)
        assert found is not None and sorted(found[0]) == list(range(n))
        return order_cost(some, sizes, found[0])[0]

    cost = least(scopes, domains.astype(float))
    if scopes:
        removed = data.draw(st.integers(0, len(scopes) - 1))
        assert least([s for i, s in enumerate(scopes) if i != removed], domains.astype(float)) <= cost
    smaller = domains.astype(float)
    smaller[data.draw(st.integers(0, n - 1))] = 2.0
    assert least(scopes, smaller) <= cost
    renamed = data.draw(st.permutations(range(n)))
    sizes = np.empty(n)
    sizes[renamed] = domains
    assert least([tuple(renamed[v] for v in scope) for scope in scopes], sizes) == cost


def places(order):
    return {v: i for i, v in enumerate(order)}


@given(graphs(14), st.integers(0, 2**32))
@settings(max_examples=60)
def test_the_bucket_tree_and_the_cost_of_an_order_are_those_of_a_naive_elimination(graph, seed):
    scopes, domains, chosen = graph
    kept, eliminated = np.flatnonzero(~chosen), np.random.default_rng(seed).permutation(np.flatnonzero(chosen))
    scopes = [*scopes, tuple(kept.tolist())]  # kept variables are a clique in both
    words, sizes, _, _ = kernel_graph(scopes, domains)
    separator, parent, cells = bucket_tree(words, sizes, eliminated)
    steps, place, row = (
        naive.simulate_order(scopes, domains, eliminated.tolist()),
        places(eliminated),
        np.empty(len(domains), dtype=np.int64),
    )
    for v, (around, joined) in zip(eliminated.tolist(), steps, strict=True):
        assert set(row[: members(separator[v], row)].tolist()) == around and cells[v] == joined
        assert parent[v] == min(around & set(place), key=place.__getitem__, default=-1)
    found = totals(separator, cells, eliminated)
    assert found[0] == sum(c for _, c in steps) and found[1] == max((c for _, c in steps), default=0)
    assert found[2] == max((len(around) for around, _ in steps), default=0)
    position = places([*eliminated.tolist(), *kept.tolist()])
    local = [tuple(position[v] for v in scope) for scope in scopes]
    by_position = domains[[*eliminated.tolist(), *kept.tolist()]].astype(float)
    assert order_cost(local, by_position, range(eliminated.size)) == pytest.approx(found)
    postorder = np.full(eliminated.size, -1, dtype=np.int64)
    order_of_tree(parent, postorder)
    place = places(postorder.tolist())
    assert sorted(place) == sorted(eliminated.tolist())
    assert all(parent[v] < 0 or place[v] < place[parent[v]] for v in place)
    after, _, same_cells = bucket_tree(words, sizes, postorder)
    assert np.array_equal(after, separator) and np.array_equal(same_cells, cells)


@given(st.integers(20, 70), st.integers(0, 2**32))
@settings(max_examples=60)
def test_a_piece_is_the_problem_that_decides_its_cells(n, seed):
    rng, scopes = np.random.default_rng(seed), random_graph(seed, n, n)
    domains = rng.integers(2, 5, n)
    words, sizes, _, n = kernel_graph(scopes, domains)
    order = rng.permutation(n)
    separator, parent, cells = bucket_tree(words, sizes, order)
    local, vertices, count, before, largest, work = extract_piece(words, order, separator, parent, cells, seeded(seed))
    piece = vertices[:count]
    assert before == pytest.approx(cells[piece].sum()) and largest == cells[piece].max() and work > 0
    assert [v for v in order.tolist() if v in set(piece.tolist())] == piece.tolist()
    new = rng.permutation(count)
    inserted = insert_piece(order, parent, piece[new])
    assert sorted(inserted.tolist()) == list(range(n))
    # the other buckets keep their cells; those of the piece have the cells of the extracted problem
    _, _, changed = bucket_tree(words, sizes, inserted)
    _, _, expected = bucket_tree(local, sizes[vertices], new)
    assert changed[piece].sum() == pytest.approx(expected[:count].sum())
    others = np.setdiff1d(np.arange(n), piece)
    np.testing.assert_array_equal(changed[others], cells[others])
    total = total_of(scopes, domains, order.tolist()) - before + expected[:count].sum()
    assert total_of(scopes, domains, inserted.tolist()) == pytest.approx(total)
    first, following = children_of(parent)
    for v in range(n):
        children, child = [], first[v]
        while child >= 0:
            children.append(int(child))
            child = following[child]
        assert children == np.flatnonzero(parent == v).tolist()


@given(graphs(16), st.integers(0, 15))
@settings(max_examples=60)
def test_a_sweep_takes_the_vertex_that_enlarges_the_front_least(graph, begin):
    scopes, domains, _ = graph
    words, _, weight, n = kernel_graph(scopes, domains)
    order, network = np.zeros(n, dtype=np.int64), network_of(scopes, n)
    sweep(words, weight, n, begin % n, 0.0, seeded(3), order)
    assert order[0] == begin % n and sorted(order.tolist()) == list(range(n))
    front, swept, entered = {order[0]}, set(), {order[0]: 0}
    for step, v in enumerate(order.tolist()):
        if not front:  # a component is finished before the next begins
            assert v == min(set(range(n)) - swept)
            front, entered[v] = {v}, step

        values = {
            u: sum(weight[x] for x in set(network[u]) - front - swept) - weight[u] + 1e-3 * entered[u] for u in front
        }
        assert values[v] == pytest.approx(min(values.values()))
        new = set(network[v]) - front - swept
        entered |= dict.fromkeys(new, step)
        front, swept = (front | new) - {v}, swept | {v}


@pytest.mark.parametrize(("side", "begin"), [(3, 0), (5, 4), (8, 0)])
def test_a_sweep_over_a_grid_from_a_corner_is_little_wider_than_its_side(side, begin):
    scopes, n = grid(side), side * side
    words, _, weight, _ = kernel_graph(scopes, np.full(n, 2))
    order = np.zeros(n, dtype=np.int64)
    sweep(words, weight, n, begin, 0.0, seeded(0), order)
    assert max(len(around) for around, _ in naive.simulate_order(scopes, np.full(n, 2), order.tolist())) <= side + 1


@given(graphs(20), st.data())
def test_neighbour_lists_and_distances_are_those_of_the_graph(graph, data):
    scopes, domains, _ = graph
    words, _, _, n = kernel_graph(scopes, domains)
    count = data.draw(st.integers(1, n))
    network = network_of(scopes, n).subgraph(range(count))
    start, ends, opposite = neighbour_lists(words, count)
    arcs = [(v, int(u)) for v in range(count) for u in ends[start[v] : start[v + 1]]]
    assert arcs == [(v, u) for v in range(count) for u in sorted(network[v])]
    assert [arcs[a] for a in opposite] == [(u, v) for v, u in arcs]
    source, distance, queue = (
        data.draw(st.integers(0, count - 1)),
        np.empty(count, dtype=np.int32),
        np.empty(count, dtype=np.int32),
    )
    last = farthest(start, ends, source, distance, queue, seeded(1))
    expected = nx.single_source_shortest_path_length(network, source)
    assert distance.tolist() == [expected.get(v, -1) for v in range(count)]
    assert distance[last] == max(expected.values())


@given(st.integers(1, 150), st.integers(0, 2**32))
def test_rows_of_bits_are_sets(n, seed):
    rng = np.random.default_rng(seed)
    adjacent = np.triu(rng.random((n, n)) < 0.2, 1)
    words = pack(adjacent | adjacent.T)
    chosen = rng.permutation(n)[: rng.integers(0, n + 1)]
    np.testing.assert_array_equal(subgraph(words, chosen), pack((adjacent | adjacent.T)[np.ix_(chosen, chosen)]))
    v, out = int(rng.integers(0, n)), np.empty(n, dtype=np.int64)
    neighbours = np.flatnonzero(adjacent[v] | adjacent[:, v]).tolist()
    assert out[: members(words[v], out)].tolist() == neighbours
    assert [u for u in range(n) if has(words[v], u)] == neighbours


def test_random_numbers_are_uniform_and_differ_between_seeds():
    numbers = []
    for seed in (0, 1, 2**40):
        state = seeded(seed)
        numbers.append([random_unit(state) for _ in range(4000)])
        assert min(numbers[-1]) >= 0 and max(numbers[-1]) < 1
        assert np.histogram(numbers[-1], 10, (0, 1))[0] == pytest.approx(400, abs=6 * math.sqrt(360))
    assert not set(numbers[0]) & set(numbers[1]) - {0.0}
