"""Problem families: exact edge counts, connected graphs, value ranges, reproducibility and feasibility."""

import math
import os
from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmcmc.formats import native
from dmcmc.generators import networks as graphs
from dmcmc.generators import registry
from dmcmc.generators.parameters import stream
from dmcmc.inference.model.tables import forbidden

FAMILIES = list(registry.names())
SMALL = {
    "meeting-scheduling": {"agents": 4, "variables_per_agent": 5, "domain_size": 8, "interface_variables": 2},
    "random": {"agents": 4, "variables_per_agent": 5, "domain_size": 3, "interface_variables": 2},
    "random-network": {"nodes": 8, "domain_size": 3},
    "scale-free": {"nodes": 8, "domain_size": 3},
    "colouring": {"nodes": 8, "domain_size": 3},
    "grid": {"rows": 3, "columns": 4, "domain_size": 3},
    "torus": {"rows": 3, "columns": 4, "domain_size": 3},
    "spin-glass": {"rows": 3, "columns": 4},
    "small-world": {"nodes": 8, "domain_size": 3},
    "timefold-meetings": {"meetings": 3, "rooms": 2, "days": 1},
    "business-meetings": {"participants": 7, "slots": 3, "tables": 2},
    "ising": {"rows": 3, "columns": 4},
    "dimes": {"persons": 3, "events": 3, "slots": 3},
    "sensors": {"rows": 2, "columns": 3, "targets": 3},
    "secp": {"lights": 4, "models": 2, "rules": 2},
    "smart-homes": {"homes": 3, "devices": 2, "slots": 6},
    "resource-allocation": {"consumers": 4, "resources": 4},
}
CONSTRAINED = {"timefold-meetings", "business-meetings"}  # global constraints in place of tables over two variables
CYCLIC = {"torus", "spin-glass", "small-world"}  # a cycle needs at least three variables
# Applications have factors over one, three or more variables, several over one pair, and no connected graph.
APPLICATIONS = {"ising", "dimes", "sensors", "secp", "smart-homes", "resource-allocation"}
NETWORKS = [family for family in FAMILIES if family not in CONSTRAINED | APPLICATIONS]


def pairs(problem):
    return [f.scope for f in problem.factors if len(f.scope) == 2]


def split(problem):
    """Return the edges within each agent, and the edges between agents."""
    local, between = {a: [] for a in range(problem.n_agents)}, []
    for u, v in pairs(problem):
        (local[problem.owner[u]] if problem.owner[u] == problem.owner[v] else between).append((u, v))
    return local, between


def agents_graph(problem):
    graph = nx.Graph(((problem.owner[u], problem.owner[v]) for u, v in split(problem)[1]))
    graph.add_nodes_from(range(problem.n_agents))
    return graph


def graph_of(problem):
    graph = nx.Graph(pairs(problem))
    graph.add_nodes_from(range(problem.n_variables))
    return graph


def finite(problem):
    return np.concatenate([f.table[~forbidden(f.table)] for f in problem.factors])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_file_byte_for_byte(family, tmp_path):
    files = {}
    for name, seed in (("one", 3), ("two", 3), ("three", 4)):
        native.save(registry.generate(family, SMALL[family] | {"seed": seed}), tmp_path / name)
        files[name] = (tmp_path / name).read_bytes()
    assert files["one"] == files["two"] != files["three"]


@pytest.mark.parametrize("family", NETWORKS)
def test_every_family_is_connected_simple_and_generated_from_its_defaults(family):
    for parameters in ({}, SMALL[family]):
        problem = registry.generate(family, parameters)
        assert nx.is_connected(graph_of(problem))
        assert max(Counter(map(frozenset, pairs(problem))).values()) == 1


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(0, 70), st.integers(0, 2**63 - 1))
def test_a_connected_graph_has_exactly_the_edges_asked_for(nodes, count, seed):
    edges = graphs.connected(stream(seed, 0), nodes, count)
    complete = nodes * (nodes - 1) // 2
    assert len(edges) == len({tuple(e) for e in edges.tolist()}) == min(max(count, nodes - 1), complete)
    assert all(0 <= u < v < nodes for u, v in edges)
    graph = nx.Graph(edges.tolist())
    graph.add_nodes_from(range(nodes))
    assert nx.is_connected(graph)


@given(st.integers(0, 2**50))
def test_codes_and_pairs_are_inverse(code):
    pair = graphs.pairs(np.array([code]))
    assert 0 <= pair[0, 0] < pair[0, 1]
    assert graphs.codes(pair).tolist() == [code]


def test_further_edges_are_uniform_among_the_pairs_outside_the_tree():
    # A path 0-1-2-3 leaves 02, 13 and 03; two of them are drawn, each with probability 2/3.
    rng, tree = stream(5, 0), np.array([[0, 1], [1, 2], [2, 3]])
    draws = 3000
    seen = Counter(tuple(e) for _ in range(draws) for e in graphs.add_edges(rng, tree, 6, 2).tolist())
    assert {seen.pop(e) for e in ((0, 1), (1, 2), (2, 3))} == {draws}
    assert set(seen) == {(0, 2), (1, 3), (0, 3)}
    assert all(abs(count - 2 * draws / 3) < 5 * math.sqrt(draws * 2 / 9) for count in seen.values())


@pytest.mark.parametrize(
    ("n", "p", "edges"), [(10, 0.5, 22), (10, 0, 9), (10, 1, 45), (10, 0.1, 9), (200, 0.29, 5771), (1, 0.5, 0)]
)
def test_edge_counts_are_floors_of_the_density_as_written(n, p, edges):
    problem = registry.generate("random-network", {"nodes": n, "density": p, "domain_size": 1})
    assert len(pairs(problem)) == edges


def test_a_torus_is_the_product_of_two_cycles():
    problem = registry.generate("torus", {"rows": 3, "columns": 5})
    expected = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 5, periodic=True), ordering="sorted")
    assert nx.utils.edges_equal(graph_of(problem).edges, expected.edges)


def test_aligned_spins_have_the_least_energy_of_a_ferromagnet_and_the_sum_of_the_couplings_in_a_glass():
    ferromagnet = registry.generate("spin-glass", {"rows": 3, "columns": 5, "positive": 1})
    assert [ferromagnet.evaluate([spin] * 15).objective for spin in (0, 1)] == [-30, -30]
    assert ferromagnet.evaluate([1] + [0] * 14).objective == -22  # one spin breaks its four edges
    glass = registry.generate("spin-glass", {"rows": 3, "columns": 5})
    couplings = [int(f.table[0, 0]) for f in glass.factors]
    assert set(couplings) == {-1, 1} and glass.evaluate([0] * 15).objective == -sum(couplings)


@pytest.mark.parametrize("shortcuts", [0, 0.5, 1])
def test_a_small_world_is_a_ring_lattice_with_shortcuts(shortcuts):
    problem = registry.generate("small-world", {"nodes": 60, "neighbours": 2, "shortcuts": shortcuts, "domain_size": 1})
    edges, ring = set(pairs(problem)), nx.circulant_graph(60, [1, 2]).edges
    assert {tuple(sorted(edge)) for edge in ring} <= edges
    deviation = 5 * math.sqrt(120 * shortcuts * (1 - shortcuts))  # of a binomial number of shortcuts
    assert abs(len(edges) - 120 - 120 * shortcuts) <= deviation


@pytest.mark.parametrize("family", ["meeting-scheduling", "random"])
@pytest.mark.parametrize("density", [0, 0.5, 1])
def test_local_graphs_have_their_density_and_a_spanning_tree(family, density):
    problem = registry.generate(family, {"agents": 4, "domain_size": 3, "local_density": density})
    for agent, edges in split(problem)[0].items():
        assert len(edges) == max(9, math.floor(45 * density))
        variables = np.flatnonzero(problem.owner == agent).tolist()
        graph = nx.Graph(edges)
        assert set(graph) == set(variables) and nx.is_connected(graph)


@pytest.mark.parametrize("interface", [1, 2, 3])
@pytest.mark.parametrize("density", [0, 0.3, 0.5, 1])
def test_random_interfaces_have_their_density_and_connect_all_agents(interface, density):
    agents, each = 5, 6
    parameters = {"agents": agents, "variables_per_agent": each, "domain_size": 2}
    problem = registry.generate(
        "random", parameters | {"interface_variables": interface, "global_density": density, "seed": 1}
    )
    between, b = split(problem)[1], agents * interface
    possible = agents * (agents - 1) // 2 * interface**2
    assert len(between) == min(max(agents - 1, math.floor(b * (b - 1) / 2 * density)), possible)
    assert all(v % each < interface for edge in between for v in edge)
    assert nx.is_connected(agents_graph(problem))


def test_random_and_uniform_utilities_range_from_1_to_1000():
    for family, tables in (("random", {}), ("meeting-scheduling", {"tables": "uniform"})):
        values = finite(registry.generate(family, tables))
        assert (values.min(), values.max()) == (1, 1000)
        assert abs(values.mean() - 500.5) < 5 * 288.7 / math.sqrt(values.size)


@pytest.mark.parametrize("interface", [1, 3])
def test_the_hierarchy_is_a_tree_that_shares_the_first_events(interface):
    problem = registry.generate("meeting-scheduling", {"agents": 7, "interface_variables": interface, "seed": 2})
    assert nx.is_tree(agents_graph(problem))
    copies = split(problem)[1]
    assert len(copies) == 6 * interface
    assert all(u % 10 == v % 10 < interface and problem.owner[u] < problem.owner[v] for u, v in copies)


def test_uniform_preferences_and_hard_share_the_graph():
    scopes = [pairs(registry.generate("meeting-scheduling", {"tables": t})) for t in ("uniform", "preferences", "hard")]
    assert scopes[0] == scopes[1] == scopes[2]


def test_overlapping_events_have_utility_0_and_agreeing_copies_a_reward():
    problem = registry.generate("meeting-scheduling", {})
    apart = np.abs(np.arange(24)[:, None] - np.arange(24))
    for factor in problem.factors:
        u, v = factor.scope
        table = factor.table
        if problem.owner[u] == problem.owner[v]:
            gap = min(g for g in range(1, 5) if table[apart == g].any())
            assert 1 <= gap <= 3 and not table[apart < gap].any()
            assert table.min() == 0 and table.max() < 24
        else:
            assert np.array_equal(table, np.diag(np.diag(table)))
            assert len(set(np.diag(table).tolist())) == 1 and table[0, 0] in {16, 24, 32, 40, 48}


def test_the_utility_of_a_pair_is_the_sum_of_both_preferences():
    table = registry.generate("meeting-scheduling", {}).factors[0].table.astype(int)
    far = table[:10, 13:]  # further apart than any gap
    assert np.abs(far - far[:1] - far[:, :1] + far[0, 0]).max() <= 2  # additive up to rounding


def test_agents_are_busy_in_their_share_of_the_slots_in_hard_tables():
    problem = registry.generate("meeting-scheduling", {"tables": "hard", "busy": 0.25})
    unary = [f for f in problem.factors if len(f.scope) == 1]
    assert sorted(f.scope[0] for f in unary) == list(range(100))
    assert {int(forbidden(f.table).sum()) for f in unary} == {6}
    for f in unary:
        assert np.array_equal(f.table, unary[f.scope[0] // 10 * 10].table)


def feasible(problem):
    """Return whether some assignment satisfies all constraints, by backtracking with forward checking."""
    allowed = [np.ones(d, dtype=bool) for d in problem.domains]
    neighbours = {v: [] for v in range(problem.n_variables)}
    for f in problem.factors:
        allowed_pairs = ~forbidden(f.table)
        if len(f.scope) == 1:
            allowed[f.scope[0]] &= allowed_pairs
        else:
            neighbours[f.scope[0]].append((f.scope[1], allowed_pairs))
            neighbours[f.scope[1]].append((f.scope[0], allowed_pairs.T))

    def search(domains, left):
        if not left:
            return True
        v = min(left, key=lambda u: domains[u].sum())
        for value in np.flatnonzero(domains[v]):
            after = list(domains)
            for u, allowed_pairs in neighbours[v]:
                if u in left:
                    after[u] = after[u] & allowed_pairs[value]
            if all(after[u].any() for u in left if u != v) and search(after, left - {v}):
                return True
        return False

    return search(allowed, frozenset(range(problem.n_variables)))


@pytest.mark.parametrize("seed", range(4))
def test_hard_meetings_can_be_scheduled(seed):
    parameters = {"agents": 12, "variables_per_agent": 5, "domain_size": 10, "interface_variables": 2, "tables": "hard"}
    assert feasible(registry.generate("meeting-scheduling", parameters | {"seed": seed}))


def test_more_meetings_than_slots_give_an_infeasible_problem():
    crowded = {"agents": 1, "variables_per_agent": 4, "domain_size": 3, "local_density": 1, "tables": "hard"}
    assert not feasible(registry.generate("meeting-scheduling", crowded))


@pytest.mark.parametrize("family", ["random-network", "scale-free", "grid"])
@pytest.mark.parametrize("tightness", [0, 0.29, 0.5, 1])
def test_networks_forbid_the_same_number_of_entries_in_each_table(family, tightness):
    problem = registry.generate(family, {"tightness": tightness, "domain_size": 10})
    assert {int(forbidden(f.table).sum()) for f in problem.factors} == {round(100 * tightness)}
    assert problem.sense == "min" and problem.n_agents == problem.n_variables
    costs = -finite(problem)
    assert costs.size == 0 or (costs.min() >= 0 and costs.max() <= 100)


def test_forbidden_entries_are_uniformly_distributed():
    problem = registry.generate("grid", {"domain_size": 2, "rows": 30, "tightness": 0.25})
    counts = Counter(int(np.flatnonzero(forbidden(f.table).ravel())[0]) for f in problem.factors)
    m = len(problem.factors)
    assert all(abs(counts[i] - m / 4) < 5 * math.sqrt(m * 3 / 16) for i in range(4))


@pytest.mark.parametrize(("nodes", "edges"), [(1, 0), (2, 1), (3, 3), (50, 97)])
def test_scale_free_networks_have_two_edges_per_new_node(nodes, edges):
    problem = registry.generate("scale-free", {"nodes": nodes, "domain_size": 2})
    assert len(pairs(problem)) == edges
    assert all(d >= 2 for _, d in graph_of(problem).degree()) or nodes < 3


def test_scale_free_networks_prefer_nodes_of_high_degree():
    degrees = [d for _, d in graph_of(registry.generate("scale-free", {"nodes": 2000, "domain_size": 1})).degree()]
    # Uniform attachment gives a largest degree of order log n, about 30; preferential attachment one of order sqrt n.
    assert max(degrees) > 60


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 5), (3, 4), (4, None)])
def test_grids_join_neighbours(rows, columns):
    problem = registry.generate("grid", {"rows": rows, "domain_size": 2} | ({"columns": columns} if columns else {}))
    expected = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns or rows), ordering="sorted")
    assert nx.utils.graphs_equal(graph_of(problem), nx.Graph(expected.edges)) or rows * (columns or rows) == 1


def test_agents_own_contiguous_blocks_of_a_network():
    problem = registry.generate("grid", {"rows": 4, "agents": 3, "domain_size": 2})
    assert problem.n_agents == 3
    assert np.all(np.diff(problem.owner) >= 0) and set(Counter(problem.owner.tolist()).values()) == {5, 6}


def test_names_contain_agent_and_event():
    problem = registry.generate("meeting-scheduling", {})
    assert (problem.variables[37], problem.agents[problem.owner[37]]) == ("a3.e7", "a3")


@pytest.mark.parametrize("family", [family for family in NETWORKS if family not in CYCLIC])
def test_the_smallest_sizes_are_valid(family):
    smallest = {k: 1 for k in registry.defaults(family) if k in SMALL[family]} | {"seed": 0}
    problem = registry.generate(family, smallest)
    assert problem.n_variables == 1 and problem.evaluate([0]).objective == 0


@pytest.mark.skipif("DMCMC_INSTANCES" not in os.environ, reason="DMCMC_INSTANCES names the folder of benchmark files")
def test_preferences_have_the_magnitude_of_the_benchmark_files():
    benchmark = native.load(Path(os.environ["DMCMC_INSTANCES"]) / "meetings" / "ms_A50_n10_D24_pl0.5_s0.npz")
    generated = registry.generate("meeting-scheduling", {"agents": 50})
    assert len(generated.factors) == len(benchmark.factors)

    def statistics(problem):
        values = np.concatenate([f.table.ravel() for f in problem.factors])
        return (values == 0).mean(), values[values > 0].mean()

    for found, expected in zip(statistics(generated), statistics(benchmark), strict=True):
        assert found == pytest.approx(expected, rel=0.15)


def test_only_neighbours_of_equal_colour_have_a_cost():
    problem = registry.generate("colouring", {"nodes": 30, "density": 0.2, "domain_size": 4, "seed": 3})
    assert problem.sense == "min" and len(problem.factors) == 87
    for factor in problem.factors:
        weight = -factor.table[0, 0]
        assert 1 <= weight <= 100 and np.array_equal(factor.table, -weight * np.eye(4, dtype=int))


def test_an_ising_model_has_couplings_and_fields_in_their_ranges():
    problem = registry.generate("ising", {"rows": 5, "columns": 4, "coupling": 1600, "field": 50})
    couplings = [f.table for f in problem.factors if len(f.scope) == 2]
    fields = [f.table for f in problem.factors if len(f.scope) == 1]
    assert (len(couplings), len(fields)) == (40, 20)
    assert all(t[0, 0] == t[1, 1] == -t[0, 1] == -t[1, 0] and abs(t[0, 0]) <= 1600 for t in couplings)
    assert all(t[0] == -t[1] and abs(t[0]) <= 50 for t in fields)


@pytest.mark.parametrize("seed", range(3))
def test_both_models_of_events_have_the_same_optimum(seed):
    sizes = {"persons": 3, "events": 4, "slots": 4, "seed": seed}
    private, events = (registry.generate("dimes", sizes | {"model": model}) for model in ("peav", "eav"))
    assert events.n_variables == 4 < private.n_variables
    assert best(private) == best(events)
    assert all(name.startswith(private.agents[a]) for name, a in zip(private.variables, private.owner, strict=True))


def best(problem):
    """Return the best objective by enumeration."""
    total = np.zeros(tuple(problem.domains))
    for factor in problem.factors:
        table = np.where(forbidden(factor.table), -np.inf, factor.table)
        order = np.argsort(factor.scope)
        shape = [problem.domains[v] if v in factor.scope else 1 for v in range(problem.n_variables)]
        total = total + table.transpose(order).reshape(shape)
    return problem.to_own_sense(total.max())


def test_a_target_is_worth_more_the_more_sensors_track_it_up_to_the_number_needed():
    problem = registry.generate("sensors", {"rows": 2, "columns": 2, "targets": 2, "needed": 3})
    assert [f.scope for f in problem.factors] == [(0, 1, 2, 3)] * 2
    first, second = (f.table for f in problem.factors)
    worth = first[0, 0, 0, 0]
    along = [first[1, 1, 1, 1], first[0, 1, 1, 1], first[0, 0, 1, 1], first[0, 0, 0, 1], worth]
    assert along == [worth * min(k, 3) // 3 for k in range(5)]
    assert second[1, 1, 1, 1] == second[0, 1, 1, 1] > second[0, 0, 1, 1]


def test_a_place_has_the_rounded_mean_of_its_lights_and_rules_cost_the_distance():
    problem = registry.generate("secp", {"lights": 6, "models": 3, "rules": 3, "max_model_size": 2})
    lights, places, rules = problem.factors[:6], problem.factors[6:9], problem.factors[9:]
    assert [f.scope for f in lights] == [(v,) for v in range(6)]
    for place in places:
        allowed = ~forbidden(place.table)
        assert (allowed.sum(axis=-1) == 1).all()
        means = allowed.argmax(axis=-1)
        assert means[0, 0] == 0 and means[4, 4] == 4 and (np.diff(means, axis=0) >= 0).all()
    assert all(f.table.max() == 0 and (f.table % 1000 == 0).all() for f in rules)


def test_devices_pay_prices_and_common_slots_and_the_second_follows_the_first():
    problem = registry.generate("smart-homes", {"homes": 4, "devices": 2, "slots": 8})
    joined = {f.scope for f in problem.factors if len(f.scope) == 2}
    assert joined == {(u, v) for u in range(8) for v in range(u + 1, 8) if v // 2 - u // 2 <= 1}
    for first in range(0, 8, 2):
        prices, common, after = (
            [f.table for f in problem.factors if f.scope == s]
            for s in ((first,), (first, first + 1), (first, first + 1))
        )
        assert (prices[0] < 0).all()
        assert (common[0] <= 0).all() and (common[0] < 0).any()
        allowed = ~forbidden(after[1])
        assert (common[0][allowed] == 0).all(), "devices one after the other have no common slot"
        assert allowed[0, -1] and not allowed[-1, 0]


def test_bundles_that_overlap_exclude_each_other_and_nothing_excludes_nothing():
    problem = registry.generate("resource-allocation", {"consumers": 8, "resources": 5, "bids": 3, "bundle": 2})
    for factor in problem.factors:
        if len(factor.scope) == 1:
            assert factor.table[0] == 0 and (factor.table[1:] > 0).all()
        else:
            excluded = forbidden(factor.table)
            assert not excluded[0].any() and not excluded[:, 0].any() and excluded.any()
