"""Divisions that fit: what agents make of a problem is known beforehand, and little is added to its cells."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problem_strategies import random_problem

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.cli.main import main
from dmcmc.formats.registry import save
from dmcmc.inference.dpop import assign_variables as splitting
from dmcmc.inference.dpop.division_cost import _maximal, division_cost
from dmcmc.inference.dpop.tree_cuts import bucket_tree, narrowest
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import DivisionWarning


def on_graph(graph, owner=None, domain=2):
    """A problem with a factor an edge."""
    n = len(graph)
    owner = [0] * n if owner is None else owner
    factors = tuple(Factor.of(edge, np.eye(domain)) for edge in graph.edges)
    names = tuple(f"a{a}" for a in range(max(owner) + 1))
    return Problem(tuple(f"x{v}" for v in range(n)), [domain] * n, names, owner, factors)


def core_with_tails(core, tails, length):
    """A clique, and paths that hang on it."""
    graph = nx.complete_graph(core)
    for tail in range(tails):
        nx.add_path(graph, [tail, *range(core + tail * length, core + (tail + 1) * length)])
    return graph


def tree_of(problem):
    order = best_order([f.scope for f in problem.factors], problem.domains, range(problem.n_variables))
    graph = [set() for _ in problem.variables]
    for factor in problem.factors:
        for v in factor.scope:
            graph[v].update(set(factor.scope) - {v})
    return bucket_tree(graph, order.variables, problem.domains)


def test_a_path_of_two_agents_by_hand():
    # x0 and x3 go first, 9 cells each; then x1 with the crossing factor, 9, and x2 with two tables over it, 3
    cost = division_cost(on_graph(nx.path_graph(4), [0, 0, 1, 1], domain=3))
    assert (cost.cells, cost.message) == (30, 3)


def test_an_agent_alone_is_the_whole_elimination():
    problem = on_graph(nx.convert_node_labels_to_integers(nx.grid_2d_graph(5, 5)))
    order = best_order([f.scope for f in problem.factors], problem.domains, range(25))
    assert division_cost(problem).cells == pytest.approx(order.cells, rel=0.5)
    assert division_cost(problem).message == 1


def test_a_message_has_a_cell_for_each_assignment_of_what_is_shared():
    graph = nx.complete_bipartite_graph(6, 6)  # each variable of one side is joined with all of the other
    assert division_cost(on_graph(graph, [0] * 6 + [1] * 6)).message == 2**6


def test_what_shares_least_is_cut_off():
    problem = on_graph(core_with_tails(core=9, tails=4, length=6))
    owner = narrowest(tree_of(problem), 4, least=3)
    assert (np.bincount(owner) >= 3).all() and len({*owner[:9]}) == 1  # the clique is whole
    crossing = [f for f in problem.factors if owner[f.scope[0]] != owner[f.scope[1]]]
    assert len(crossing) == 3  # every cut is through one edge


def test_parts_that_are_too_small_are_not_cut_off():
    assert narrowest(tree_of(on_graph(nx.complete_graph(8))), 5, least=2) is None


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), share=st.floats(0, 1))
def test_every_part_has_the_variables_that_it_must(seed, share):
    problem = random_problem(seed, variables=14, domain=3, factors=16)
    if problem.n_variables < 2:
        return
    agents = 2 + int(share * (problem.n_variables - 2))
    for least in (1, 2):
        owner = narrowest(tree_of(problem), agents, least)
        if owner is not None:
            assert min(np.bincount(owner, minlength=agents)) >= least and max(owner) < agents


def test_a_division_that_makes_a_problem_much_larger_is_not_taken(monkeypatch):
    monkeypatch.setattr(splitting, "_EASY", 0.0)
    problem = on_graph(core_with_tails(core=12, tails=4, length=3))
    whole = best_order([f.scope for f in problem.factors], problem.domains, range(problem.n_variables)).cells
    cost = division_cost(dmcmc.inference.dpop.assign_variables.split(problem, 5))
    assert cost.cells <= 4 * whole


def test_easy_problems_are_divided_evenly():
    divided = splitting.split(on_graph(nx.path_graph(40)), 4)
    assert np.bincount(divided.owner).min() >= 7


@pytest.fixture
def hard(monkeypatch):
    """Whatever is divided is too large, but for what nobody eliminates."""
    for name, value in (("_EASY", 0.0), ("_MORE", 0.0), ("_MUCH_MORE", 0.0)):
        monkeypatch.setattr(splitting, name, value)


def test_where_none_fits_figures_say_so(hard):
    with pytest.warns(
        DivisionWarning, match=r"^4 agents: exact elimination, agent by agent, joins .* cells, the largest"
    ):
        splitting.split(on_graph(nx.path_graph(40)), 4)


def test_a_command_line_says_it_in_one_line(hard, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    save(on_graph(nx.path_graph(12)), "p.npz")
    assert main(["graph", "p.npz", "--agents", "3"]) == 0
    shown = capfd.readouterr()
    assert shown.err.startswith("dmcmc: warning: 3 agents: exact elimination") and shown.err.count("\n") == 1
    assert "agent by agent" in shown.out


def test_problems_too_large_to_be_eliminated_are_divided_evenly(hard, monkeypatch):
    monkeypatch.setattr(splitting, "_HOPELESS", 1.0)
    assert np.bincount(splitting.split(on_graph(nx.path_graph(40)), 4).owner).min() >= 7


def test_explain_and_plan_say_what_a_division_costs():
    text = str(dmcmc.plan(splitting.split(on_graph(nx.path_graph(12)), 3)))
    assert "division: " in text and "in one piece" in text


@given(st.lists(st.lists(st.integers(0, 6), max_size=4, unique=True).map(tuple), max_size=12))
def test_of_scopes_those_are_left_that_lie_in_no_other_one(scopes):
    found = _maximal(scopes)
    apart = set(map(frozenset, scopes))
    assert sorted(map(sorted, found)) == sorted(sorted(s) for s in apart if not any(s < other for other in apart))
