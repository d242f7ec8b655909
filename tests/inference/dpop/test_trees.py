"""Pseudo-tree heuristics: each gives a pseudo-tree with the asked root, by its definition, and the true optimum."""

from itertools import combinations
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import soundness
from support.problem_strategies import random_problem

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.anytime.solve_private import solve_directory
from dmcmc.config.make_settings import settings_from
from dmcmc.formats import agent_files
from dmcmc.inference.dpop import trees as registry
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.dpop.pseudotree import agent_graph, build_pseudotree, tree_size
from dmcmc.inference.dpop.trees import (
    AgentGraph,
    TreeHeuristic,
    breadth_first_order,
    checked_parents,
    depths,
    elimination_tree,
    removal_tree,
)
from dmcmc.inference.model.compact_sequences import IndexGroups
from dmcmc.inference.runtime.errors import ConfigError

NAMES = [heuristic.name for heuristic in registry.BUILT_IN]
TREES = ["auto", "depth-first", *NAMES]
some_examples = settings(max_examples=60)


@st.composite
def graphs(draw, max_agents=12):
    """Draw the graph of up to 12 agents, with factors over two or three of them."""
    n, rng = draw(st.integers(0, max_agents)), np.random.default_rng(draw(st.integers(0, 10**6)))
    pairs = [pair for pair in combinations(range(n), 2) if rng.random() < draw(st.sampled_from([0.1, 0.25, 0.6]))]
    triples = [] if n < 3 else [tuple(sorted(rng.permutation(n)[:3].tolist())) for _ in range(int(rng.integers(3)))]
    return graph_of(n, [*pairs, *triples], rng.integers(1, 9, n).astype(float))


def graph_of(n, scopes, rows=None):
    """Return the agents' graph of some scopes over agents."""
    links = nx.Graph([pair for scope in scopes for pair in combinations(scope, 2)])
    neighbours = IndexGroups.of(sorted(links[a]) if a in links else [] for a in range(n))
    return AgentGraph([f"a{a}" for a in range(n)], neighbours, scopes, np.ones(n) if rows is None else rows)


def networkx_of(graph):
    """Return the agents' graph as a NetworkX graph."""
    found = nx.Graph()
    found.add_nodes_from(range(len(graph.neighbours)))
    found.add_edges_from((a, b) for a, near in enumerate(graph.neighbours) for b in near)
    return found


def path(parent, agent):
    """Return an agent and its ancestors, the root last."""
    return [agent, *path(parent, parent[agent])] if agent >= 0 else []


@pytest.mark.parametrize("name", NAMES)
@some_examples
@given(graph=graphs(), data=st.data())
def test_every_heuristic_gives_one_pseudo_tree_per_component_with_the_asked_root(name, graph, data):
    n = len(graph.neighbours)
    root = data.draw(st.one_of(st.none(), st.integers(0, n - 1))) if n else None
    parent = checked_parents(registry.get(name), graph, root).tolist()
    for scope in graph.scopes:
        deepest = max(scope, key=lambda a: len(path(parent, a)))
        assert set(scope) <= set(path(parent, deepest))
    components = nx.number_connected_components(networkx_of(graph)) if n else 0
    assert parent.count(-1) == components and (root is None or parent[root] == -1)
    assert depths(parent) == [len(path(parent, a)) for a in range(n)]


@some_examples
@given(graphs())
def test_depth_first_trees_visit_the_neighbour_of_highest_rank_first(graph):
    degree, near = graph.neighbours.lengths.tolist(), list(graph.neighbours)

    def tree(rank):
        """Return the parents of a recursive depth-first search that takes the neighbour of highest rank."""
        parent = {}

        def visit(agent, above):
            parent[agent] = above
            while unvisited := [b for b in near[agent] if b not in parent]:
                visit(max(unvisited, key=lambda b: (*rank(b, parent), -b)), agent)

        for first in graph.by_degree():
            if first not in parent:
                visit(first, -1)
        return [parent[a] for a in range(len(near))]

    by_degree, by_visited = (
        list(registry.get(name).parents(graph, None)) for name in ("max-degree", "max-cardinality")
    )
    assert by_degree == tree(lambda b, parent: (degree[b],))
    assert by_visited == tree(lambda b, parent: (sum(a in parent for a in near[b]), degree[b]))


@some_examples
@given(graphs())
def test_breadth_first_levels_are_those_of_the_graph_and_trees_stay_as_they_are(graph):
    links, order = networkx_of(graph), breadth_first_order(graph)
    parent = registry.get("breadth-first").parents(graph, None)
    place = {agent: i for i, agent in enumerate(order)}
    for component in nx.connected_components(links):
        first = min(component, key=place.__getitem__)
        distance = nx.single_source_shortest_path_length(links, first)
        in_order = sorted(component, key=place.__getitem__)
        assert [distance[a] for a in in_order] == sorted(distance.values())
        assert all(place[parent[a]] < place[a] for a in component if a != first)
        if links.subgraph(component).number_of_edges() == len(component) - 1:
            assert all(distance[parent[a]] == distance[a] - 1 for a in component if a != first)


@some_examples
@given(graphs(), st.integers(0, 10**6))
def test_an_elimination_tree_is_that_of_buckets_with_fill(graph, seed):
    order = np.random.default_rng(seed).permutation(len(graph.neighbours)).tolist()
    place = {a: i for i, a in enumerate(order)}
    later = [{b for b in near if place[b] > place[a]} for a, near in enumerate(graph.neighbours)]
    expected = [-1] * len(order)
    for a in order:
        if later[a]:
            expected[a] = min(later[a], key=place.__getitem__)
            later[expected[a]] |= later[a] - {expected[a]}
    assert list(elimination_tree(order, graph.neighbours)) == expected


@some_examples
@given(graphs())
def test_a_removal_tree_leaves_the_smallest_largest_component(graph):
    links, parent = networkx_of(graph), removal_tree(graph)
    for agent in range(len(parent)):
        component = nx.subgraph(links, [b for b in range(len(parent)) if agent in path(parent, b)])

        def largest(removed, component=component):
            return max(map(len, nx.connected_components(component.subgraph(set(component) - {removed}))), default=0)

        assert largest(agent) == min(map(largest, component))


def test_min_depth_is_logarithmic_on_a_path_and_at_most_that_of_any_heuristic():
    graph = graph_of(15, [(a, a + 1) for a in range(14)])
    depth = {name: max(depths(registry.get(name).parents(graph, None))) for name in NAMES}
    assert depth["min-depth"] == 4 and depth["max-degree"] == 14 and min(depth.values()) == 4


@pytest.mark.parametrize("name", TREES)
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), sense=st.sampled_from(["max", "min"]), rooted=st.booleans())
def test_every_tree_gives_the_true_optimum(name, seed, sense, rooted):
    problem = random_problem(seed, variables=9, agents=6, domain=3, factors=12, hard=0.0, sense=sense)
    root = problem.agents[seed % problem.n_agents] if rooted else None
    result = dmcmc.solve(problem, method="exact", tree=name, root=root, presolve="none", combine="exact")
    sign = 1 if sense == "max" else -1
    assert result.status == "optimal" and sign * result.objective == soundness.optimum(problem)
    plan = result.provenance["plan"]
    assert root is None or plan["pseudo_tree"][root] is None
    assert plan["tree"]["heuristic"] == name


@pytest.mark.parametrize("name", TREES)
def test_dpop_takes_the_tree_and_a_variable_as_the_root(name):
    problem = random_problem(7, variables=9, agents=3, domain=3, factors=14, hard=0.0)
    result = dmcmc.solve(problem, algorithm="dpop", tree=name, root="x2")
    assert result.status == "optimal" and result.objective == soundness.optimum(problem)
    assert result.provenance["plan"]["pseudo_tree"]["x2"] is None


@pytest.mark.parametrize("name", TREES)
def test_agents_with_private_inputs_find_the_same_tree(name, tmp_path):
    problem = dmcmc.generate("random", agents=7, variables_per_agent=2, domain_size=3, seed=4)
    agent_files.write(problem, tmp_path, 1 << 30)
    options = {"method": "exact", "tree": name, "root": problem.agents[5]}
    alone = dmcmc.solve(problem, presolve="none", **options)
    found = solve_directory(tmp_path, settings_from(None, options))
    assert (found.status, found.objective) == ("optimal", alone.objective)
    for key in ("pseudo_tree", "tree"):
        assert found.provenance["plan"][key] == alone.provenance["plan"][key]


@given(seed=st.integers(0, 10**6), name=st.sampled_from(NAMES))
@some_examples
def test_sizes_of_a_tree_are_those_of_its_definition(seed, name):
    problem = random_problem(seed, 12, 7, 4, 16)
    division = divide(problem)
    tree = build_pseudotree(problem, division, heuristic=name)
    size = tree_size(problem, division, tree)
    joined = [{*local.interface, *tree.separators[local.agent]} for local in division.locals]
    assert size.depth == max(len(path(tree.parent, a)) for a in range(problem.n_agents))
    assert size.width == max(0, *(len(variables) - 1 for variables in joined))
    assert size.separator == max(map(len, tree.separators))
    assert size.message_cells == max(np.prod(problem.domains[list(s)]) for s in tree.separators)
    assert size.cells == sum(np.prod(problem.domains[list(variables)]) for variables in joined)


def test_the_plan_compares_heuristics():
    ring = [Factor.of((v, (v + 1) % 8), np.eye(3)) for v in range(8)]
    names = tuple(f"x{v}" for v in range(8))
    problem = Problem(names, [3] * 8, names, range(8), tuple(ring))
    plans = {name: dmcmc.plan(problem, tree=name, root="x3", presolve="none").tree for name in NAMES}
    assert {name: (tree.roots, tree.width, tree.separator) for name, tree in plans.items()} == dict.fromkeys(
        NAMES, (("x3",), 2, 2)
    )
    assert plans["max-degree"].depth == 8 and plans["breadth-first"].depth == 8 and plans["min-depth"].depth == 4
    text = str(dmcmc.plan(problem, tree="min-depth", root="x3", presolve="none"))
    assert "pseudo-tree: min-depth, root x3, depth 4, induced width 2; largest separator 2 variables, 9 cells" in text


def plug_in(monkeypatch, parents, name="own"):
    """Register a heuristic as another distribution does."""
    heuristic = TreeHeuristic(name, "a heuristic of the tests", parents)
    entry = SimpleNamespace(name=name, value="elsewhere:TREE", load=lambda: heuristic)
    found = "dmcmc.inference.runtime.plugins.entry_points"
    monkeypatch.setattr(found, lambda group: [entry] if group == registry.GROUP else [])


def chain(graph, root):
    """Return a chain of all agents, also across components, the root first."""
    order = graph.by_degree(root)
    return [order[order.index(a) - 1] if a != order[0] else -1 for a in range(len(order))]


@pytest.mark.parametrize("seed", range(6))
def test_a_plug_in_is_found_by_its_entry_point_and_may_chain_all_agents(seed, monkeypatch):
    plug_in(monkeypatch, chain)
    assert registry.names()["own"] == "a heuristic of the tests"
    problem = random_problem(seed, variables=9, agents=6, domain=3, factors=8, hard=0.0)
    result = dmcmc.solve(problem, method="exact", tree="own", root=problem.agents[-1], presolve="none")
    assert result.status == "optimal" and result.objective == soundness.optimum(problem)
    assert result.provenance["plan"]["tree"]["depth"] == problem.n_agents


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        (lambda graph, root: [-1] * 4, "tree: own: 'a' and 'b' share a factor, but neither is an ancestor"),
        (lambda graph, root: [1, 0, -1, -1], "combine.tree: own: agent 'a' is its own ancestor"),
        (lambda graph, root: [-1, 0], "combine.tree: own: expected 4 parents, each -1 or the index of an agent"),
        (lambda graph, root: [-1, 0, 1, 4], "combine.tree: own: expected 4 parents"),
        (lambda graph, root: ["x"] * 4, "combine.tree: own: ValueError: invalid literal for int"),
        (lambda graph, root: 1 / 0, "combine.tree: own: ZeroDivisionError: division by zero"),
        (lambda graph, root: [-1, 0, 1, 2], "combine.root: 'd' is not a root in the tree of own"),
    ],
)
def test_a_wrong_tree_of_a_plug_in_is_a_one_line_error(parents, message, monkeypatch):
    plug_in(monkeypatch, parents)
    scopes = [(0, 1), (1, 2), (2, 3)]
    factors = tuple(Factor.of(scope, np.eye(2)) for scope in scopes)
    problem = Problem(("u", "v", "w", "x"), [2] * 4, ("a", "b", "c", "d"), range(4), factors)
    with pytest.raises(ConfigError) as caught:
        dmcmc.solve(problem, tree="own", root="d", presolve="none")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_root_is_a_one_line_error():
    problem = random_problem(1, agents=4)
    for tree in TREES:
        with pytest.raises(ConfigError, match=r"^combine.root: no agent is named 'nobody' \(agents: a0"):
            dmcmc.solve(problem, tree=tree, root="nobody")


def test_the_root_follows_the_names_in_problems_of_the_same_shape():
    table = np.arange(4).reshape(2, 2)
    factors = tuple(Factor.of((v, v + 1), table) for v in range(3))
    for agents in (("a", "b", "c", "d"), ("d", "c", "b", "a")):
        problem = Problem(("u", "v", "w", "x"), [2] * 4, agents, range(4), factors)
        for tree in TREES:
            found = dmcmc.solve(problem, tree=tree, root="b", presolve="none").provenance["plan"]["pseudo_tree"]
            assert found["b"] is None and list(found.values()).count(None) == 1


def test_min_fill_names_its_limit_and_others_take_many_agents():
    n = 2001
    names = tuple(map(str, range(n)))
    factors = tuple(Factor.of((v, v + 1), np.eye(2)) for v in range(n - 1))
    problem = Problem(names, [2] * n, names, range(n), factors)
    graph = agent_graph(problem, divide(problem))
    with pytest.raises(ConfigError, match="min-fill takes at most 2,000 agents, got 2,001 agents; use max-degree"):
        registry.get("min-fill").parents(graph, None)
    for name in ("max-degree", "max-cardinality", "breadth-first", "min-depth"):
        assert max(depths(checked_parents(registry.get(name), graph, 7))) == n - 7
