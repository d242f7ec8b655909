"""Test the agents' pseudo-tree: factors on one branch, and separators that the sender's subtree needs."""

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clock import ExpiresAfterChecks
from support.problem_strategies import problems, random_problem

from dmcmc.inference.dpop.division import divide
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.runtime.errors import OutOfTime

any_problem = st.one_of(
    problems(),
    st.builds(
        lambda seed, n, agents, factors: random_problem(seed, n, agents, 3, factors),
        st.integers(0, 2**32),
        st.integers(0, 20),
        st.integers(1, 10),
        st.integers(0, 25),
    ),
)


def ancestors(tree, agent):
    """Return the agents above one, its parent first."""
    found = []
    while tree.parent[agent] >= 0:
        agent = tree.parent[agent]
        found.append(agent)
        assert len(found) <= len(tree.parent), "a cycle of parents"
    return found


def built(problem):
    division = divide(problem)
    return division, build_pseudotree(problem, division)


@given(any_problem)
@settings(max_examples=150)
def test_division_loses_nothing(problem):
    division = divide(problem)
    together = [*division.crossing, *division.constants, *(f for local in division.locals for f in local.factors)]
    assert sorted(map(id, together)) == sorted(map(id, problem.factors))
    crossing = {v for f in division.crossing for v in f.scope}
    for local in division.locals:
        owned = [v for v in range(problem.n_variables) if problem.owner[v] == local.agent]
        assert sorted((*local.interface, *local.hidden)) == owned
        assert set(local.interface) == crossing & set(owned)
        assert all(f.scope and set(f.scope) <= set(owned) for f in local.factors)
    assert all(len({int(problem.owner[v]) for v in f.scope}) > 1 for f in division.crossing)


def agents_of(factors, problem):
    """Return for each factor the agents that own its variables, ascending."""
    return [tuple(sorted({int(problem.owner[v]) for v in factor.scope})) for factor in factors]


@given(any_problem)
@settings(max_examples=150)
def test_agents_of_one_factor_lie_on_one_branch(problem):
    division, tree = built(problem)
    for scope in agents_of(division.crossing, problem):
        deepest = max(scope, key=lambda a: len(ancestors(tree, a)))
        assert set(scope) <= {deepest, *ancestors(tree, deepest)}


@given(any_problem)
@settings(max_examples=150)
def test_each_crossing_factor_is_placed_once_at_its_deepest_agent(problem):
    division, tree = built(problem)
    assert sorted(i for placed in tree.placed for i in placed) == list(range(len(division.crossing)))
    for agent, placed in enumerate(tree.placed):
        for i in placed:
            (scope,) = agents_of([division.crossing[i]], problem)
            assert agent in scope
            assert set(scope) <= {agent, *ancestors(tree, agent)}


@given(any_problem)
@settings(max_examples=150)
def test_a_separator_has_the_ancestors_variables_in_factors_of_the_subtree(problem):
    division, tree = built(problem)
    for agent, separator in enumerate(tree.separators):
        subtree = {a for a in range(problem.n_agents) if a == agent or agent in ancestors(tree, a)}
        reached = {v for a in subtree for i in tree.placed[a] for v in division.crossing[i].scope}
        assert separator == tuple(sorted(v for v in reached if int(problem.owner[v]) not in subtree))
        assert {int(problem.owner[v]) for v in separator} <= set(ancestors(tree, agent))


@given(any_problem)
@settings(max_examples=150)
def test_edges_are_agents_less_components(problem):
    division, tree = built(problem)
    graph = nx.Graph()
    graph.add_nodes_from(range(problem.n_agents))
    for scope in agents_of(division.crossing, problem):
        nx.add_path(graph, scope)
    assert tree.edges == problem.n_agents - nx.number_connected_components(graph)
    assert sorted(tree.bottom_up) == list(range(problem.n_agents))
    place = {a: i for i, a in enumerate(tree.bottom_up)}
    for agent, parent in enumerate(tree.parent):
        if parent >= 0:
            assert place[agent] < place[parent]
            assert agent in tree.children[parent]
    assert sum(map(len, tree.children)) == tree.edges


@pytest.mark.parametrize("seed", range(5))
def test_the_same_problem_gives_the_same_tree(seed):
    problem = random_problem(seed, 30, 12, 3, 40)
    assert built(problem)[1] == built(problem)[1]


def test_the_search_for_a_tree_ends_at_the_deadline_even_within_the_first_tree():
    problem = random_problem(7, 40, 20, 3, 60)
    division = divide(problem)
    with pytest.raises(OutOfTime):
        build_pseudotree(problem, division, ExpiresAfterChecks(4))
    assert build_pseudotree(problem, division, ExpiresAfterChecks(44)).parent, "the first tree is complete by then"
