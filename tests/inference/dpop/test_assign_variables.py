"""Test the assignment of variables to agents: one owner per variable, connected parts, few shared variables."""

from dataclasses import replace
from itertools import product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problem_strategies import random_problem

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.inference.dpop.assign_variables import METHODS, split
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.report.graph import primal_graph

EQUAL = [[0, 1], [1, 0]]


def on_graph(graph, shuffled=False):
    """Return a problem of binary variables with one factor per edge; ``shuffled`` makes the variables' order random."""
    number = np.random.default_rng(0).permutation(len(graph)) if shuffled else np.arange(len(graph))
    edges = [(int(number[u]), int(number[v])) for u, v in nx.convert_node_labels_to_integers(graph).edges]
    names = tuple(f"x{v}" for v in range(len(graph)))
    factors = tuple(Factor.of(edge, EQUAL) for edge in edges)
    return Problem(names, [2] * len(graph), ("all",), [0] * len(graph), factors)


def sizes(problem):
    return sorted(np.bincount(problem.owner, minlength=problem.n_agents).tolist())


def connected(problem):
    graph = primal_graph(problem)
    parts = [np.flatnonzero(problem.owner == a).tolist() for a in range(problem.n_agents)]
    return all(nx.is_connected(graph.subgraph(part)) for part in parts)


def interfaces(problem):
    return sum(len(local.interface) for local in divide(problem).locals)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), share=st.floats(0, 1))
def test_every_agent_gets_a_variable_and_nothing_else_changes(method, seed, share):
    problem = random_problem(seed, variables=12, domain=3, factors=14)
    if not problem.n_variables:
        return
    count = 1 + int(share * (problem.n_variables - 1))
    divided = split(problem, count, method)
    assert divided.agents == tuple(f"a{i}" for i in range(count))
    assert sizes(divided)[0] >= 1
    assert divided.factors == problem.factors and divided.variables == problem.variables
    assert split(problem, count, method).owner.tolist() == divided.owner.tolist()


@pytest.mark.parametrize("method", ["tree", "grow"])
@pytest.mark.parametrize(
    "graph",
    [nx.path_graph(40), nx.grid_2d_graph(8, 8), nx.random_regular_graph(3, 60, seed=1), nx.balanced_tree(2, 5)],
    ids=["path", "grid", "regular", "tree"],
)
@pytest.mark.parametrize("count", [2, 5, 8])
def test_parts_of_a_connected_graph_are_connected_and_share_less_than_blocks(method, graph, count):
    problem = on_graph(graph, shuffled=True)
    divided = split(problem, count, method)
    assert connected(divided)
    assert sizes(divided)[-1] <= 2.2 * len(graph) / count
    assert interfaces(divided) < interfaces(split(problem, count, "blocks"))


def test_a_path_is_cut_into_equal_pieces():
    divided = split(on_graph(nx.path_graph(40)), 4, "tree")
    assert sizes(divided)[0] >= 7 and interfaces(divided) == 6


@pytest.mark.parametrize("method", METHODS)
def test_unconnected_variables_are_divided_evenly(method):
    divided = split(on_graph(nx.empty_graph(12)), 4, method)
    assert sizes(divided)[0] >= 2


@pytest.mark.parametrize(
    ("agents", "method", "message"),
    [
        (0, "tree", "agents: expected 1 to 5"),
        (6, "tree", "agents: expected 1 to 5 .the number of variables., got 6"),
        (2, "metis", "split: expected one of tree, grow, blocks, got 'metis'"),
    ],
)
def test_impossible_numbers_of_agents_and_unknown_methods_are_rejected(agents, method, message):
    with pytest.raises(ConfigError, match=message):
        split(on_graph(nx.path_graph(5)), agents, method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [3, 4])
def test_the_optimum_does_not_depend_on_the_agents(method, seed):
    problem = random_problem(seed, variables=7, domain=3, factors=9, hard=0)
    best = max(problem.evaluate(list(v)).objective for v in product(*map(range, problem.domains.tolist())))
    for count in {1, 2, problem.n_variables}:
        result = dmcmc.solve(split(problem, count, method))
        assert (result.status, result.objective) == ("optimal", best)


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), flat=st.booleans(), constants=st.booleans())
def test_each_agent_has_its_own_factors_in_the_order_of_the_problem(seed, flat, constants):
    drawn = random_problem(seed, variables=8, agents=4, factors=14)
    problem = replace(drawn, factors=tuple(f for f in drawn.factors if constants or f.scope))
    if flat:
        assert problem.flat.tables == len(problem.factors)
    division, agents = divide(problem), [{int(problem.owner[v]) for v in f.scope} for f in problem.factors]

    def factors_of(wanted):
        return [id(factor) for factor, found in zip(problem.factors, agents, strict=True) if wanted(found)]

    for agent, local in enumerate(division.locals):
        assert list(map(id, local.factors)) == factors_of(lambda found, agent=agent: found == {agent})
        assert local.tables is None or local.tables.scopes() == [factor.scope for factor in local.factors]
    assert list(map(id, division.crossing)) == factors_of(lambda found: len(found) > 1)
    assert list(map(id, division.constants)) == factors_of(lambda found: not found)
    shared = {v for factor in division.crossing for v in factor.scope}
    assert {v for local in division.locals for v in local.interface} == shared
