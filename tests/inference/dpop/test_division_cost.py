"""Test the predicted cost of divisions, and that variables are divided at little additional cost."""

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
from dmcmc.inference import tuning
from dmcmc.inference.dpop import assign_variables as splitting
from dmcmc.inference.dpop.assign_variables import bucket_tree, division_cost, narrowest_cuts
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.dpop.division_cost import DivisionCost, agent_costs, maximal_scopes
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import DivisionWarning, OutOfTime


def on_graph(graph, owner=None, domain=2):
    """Return a problem with one factor per edge."""
    n = len(graph)
    owner = [0] * n if owner is None else owner
    factors = tuple(Factor.of(edge, np.eye(domain)) for edge in graph.edges)
    names = tuple(f"a{a}" for a in range(max(owner) + 1))
    return Problem(tuple(f"x{v}" for v in range(n)), [domain] * n, names, owner, factors)


def core_with_tails(core, tails, length):
    """Return a clique with paths attached to it."""
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
    assert (cost.cells, cost.message_cells) == (30, 3)


def test_with_one_agent_the_cost_is_that_of_the_whole_elimination():
    problem = on_graph(nx.convert_node_labels_to_integers(nx.grid_2d_graph(5, 5)))
    order = best_order([f.scope for f in problem.factors], problem.domains, range(25))
    assert division_cost(problem).cells == pytest.approx(order.cells, rel=0.5)
    assert division_cost(problem).message_cells == 1


def test_a_message_has_a_cell_per_assignment_of_the_shared_variables():
    graph = nx.complete_bipartite_graph(6, 6)  # each variable of one side is joined with all of the other
    assert division_cost(on_graph(graph, [0] * 6 + [1] * 6)).message_cells == 2**6


def test_the_subtrees_that_share_least_are_cut_off():
    problem = on_graph(core_with_tails(core=9, tails=4, length=6))
    owner = narrowest_cuts(tree_of(problem), 4, min_variables=3)
    assert (np.bincount(owner) >= 3).all() and len({*owner[:9]}) == 1  # the clique is whole
    crossing = [f for f in problem.factors if owner[f.scope[0]] != owner[f.scope[1]]]
    assert len(crossing) == 3  # every cut is through one edge


def test_subtrees_below_the_minimum_size_are_not_cut_off():
    assert narrowest_cuts(tree_of(on_graph(nx.complete_graph(8))), 5, min_variables=2) is None


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), share=st.floats(0, 1))
def test_every_part_has_the_minimum_number_of_variables(seed, share):
    problem = random_problem(seed, variables=14, domain=3, factors=16)
    if problem.n_variables < 2:
        return
    agents = 2 + int(share * (problem.n_variables - 2))
    for least in (1, 2):
        owner = narrowest_cuts(tree_of(problem), agents, least)
        if owner is not None:
            assert min(np.bincount(owner, minlength=agents)) >= least and max(owner) < agents


def test_a_division_of_much_higher_cost_is_rejected(monkeypatch):
    monkeypatch.setattr(tuning, "ACCEPTED_CELLS", 0.0)
    problem = on_graph(core_with_tails(core=12, tails=4, length=3))
    undivided_cells = best_order([f.scope for f in problem.factors], problem.domains, range(problem.n_variables)).cells
    cost = division_cost(splitting.split(problem, 5))
    assert cost.cells <= 4 * undivided_cells


def test_easy_problems_are_divided_evenly():
    divided = splitting.split(on_graph(nx.path_graph(40)), 4)
    assert np.bincount(divided.owner).min() >= 7


@pytest.fixture
def expensive_divisions(monkeypatch):
    """Make every division of a problem that can be eliminated too expensive."""
    for name in ("ACCEPTED_CELLS", "ACCEPTED_RATIO"):
        monkeypatch.setattr(tuning, name, 0.0)


def test_a_warning_gives_the_cost_if_every_division_is_expensive(expensive_divisions):
    with pytest.warns(DivisionWarning, match=r"^4 agents: exact elimination per agent joins .* cells, and the largest"):
        splitting.split(on_graph(nx.path_graph(40)), 4)


def test_a_warning_gives_the_cost_of_the_division_that_is_returned(expensive_divisions, monkeypatch):
    """Beyond the largest exact elimination, the first, balanced division is returned, although others are cheaper."""
    costs = iter([9e12, 7e12, 8e12])
    monkeypatch.setattr(splitting, "division_cost", lambda divided: DivisionCost(next(costs, 9.5e12), 3.0, 1.0))
    with pytest.warns(DivisionWarning, match=r"joins 9e\+12 table cells"):
        divided = splitting.split(on_graph(nx.path_graph(40)), 4)
    assert np.bincount(divided.owner).min() >= 7


def test_the_command_line_shows_the_warning_in_one_line(expensive_divisions, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    save(on_graph(nx.path_graph(12)), "p.npz")
    assert main(["graph", "p.npz", "--agents", "3"]) == 0
    shown = capfd.readouterr()
    assert shown.err.startswith("dmcmc: warning: 3 agents: exact elimination") and shown.err.count("\n") == 1
    assert "agent by agent" in shown.out


def test_problems_too_large_to_be_eliminated_are_divided_evenly(expensive_divisions, monkeypatch):
    monkeypatch.setattr(splitting, "MAX_EXACT_CELLS", 1.0)
    assert np.bincount(splitting.split(on_graph(nx.path_graph(40)), 4).owner).min() >= 7


def test_the_plan_reports_the_cost_of_the_division():
    text = str(dmcmc.plan(splitting.split(on_graph(nx.path_graph(12)), 3)))
    assert "division into agents: " in text and "whole problem at once" in text


@given(st.lists(st.lists(st.integers(0, 6), max_size=4, unique=True).map(tuple), max_size=12))
def test_themaximal_scopes_are_those_that_no_other_scope_contains(scopes):
    found = maximal_scopes(scopes)
    apart = set(map(frozenset, scopes))
    assert sorted(map(sorted, found)) == sorted(sorted(s) for s in apart if not any(s < other for other in apart))


def test_the_cost_of_a_division_is_not_computed_after_the_deadline():
    problem = random_problem(5, variables=14, agents=7, domain=3, factors=20)
    division = divide(problem)
    with pytest.raises(OutOfTime):
        agent_costs(problem, division, build_pseudotree(problem, division), stop=Deadline(0.0))
