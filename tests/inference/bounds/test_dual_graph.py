"""The graph of a dual ascent holds an agent's factors: the sum of the potentials of an assignment is its utility."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problem_strategies import random_table
from support.semidefinite.dense_agents import dense_agent

from dmcmc import Factor
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import LANES, add_triangles, lay_out, table_width, tables_of, triplets_fit
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW
from dmcmc.inference.model.subproblem import Subproblem

LOWEST = -(1 << 50)


def agent(seed, hard=0.0):
    """Return an agent of four hidden and two boundary variables, with factors of one to three variables."""
    rng, domains = np.random.default_rng(seed), np.array([3, 2, 4, 2, 3, 2])
    scopes = [*combinations(range(6), 2), (0, 1, 2), (2, 4, 5), (3,), (5,), (1, 0)]
    chosen = [scope for scope in scopes if rng.random() < 0.7]
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), 50, hard)) for s in chosen]
    return Subproblem(0, (4, 5), (0, 1, 2, 3), tuple(factors), domains)


def assignments(local, count=40):
    """Yield random assignments of an agent's variables, by variable."""
    rng, variables = np.random.default_rng(0), (*local.hidden, *local.interface)
    for _ in range(count):
        yield {v: int(rng.integers(local.domains[v])) for v in variables}


def utility(local, values):
    """Return the utility of an assignment; None if it is forbidden."""
    entries = [factor.entry(tuple(values[v] for v in factor.scope)) for factor in local.factors]
    return None if None in entries else sum(entries)


def sum_of_tables(tables, values):
    """Return the sum of the entries that an assignment selects; None if one is forbidden."""
    entries = [int(table.values[tuple(values[v] for v in table.scope)]) for table in tables]
    return None if min(entries, default=0) <= LOWEST // 2 else sum(entries)


def check_sums(local, layout, potentials):
    """Check that the potentials add up to the utilities of assignments, with triangles in both forms."""
    names = (*local.hidden, *local.interface)
    for as_triplets in (False, True):
        tables = tables_of(layout.whole, potentials, names, as_triplets, LOWEST)
        for values in assignments(local):
            expected = utility(local, values)
            found = sum_of_tables(tables, values)
            assert found == (None if expected is None else expected << layout.scale.shift)


@settings(max_examples=15)
@given(st.integers(0, 9999), st.sampled_from([0.0, 0.2]), st.booleans())
def test_the_initial_potentials_add_up_to_the_factors(seed, hard, triangles):
    local = agent(seed, hard)
    layout = lay_out(local, triangles)
    check_sums(local, layout, layout.potentials)


@settings(max_examples=10)
@given(st.integers(0, 9999), st.booleans(), st.integers(1, 4))
def test_sweeps_change_no_sum(seed, triangles, sweeps):
    state = DualState(agent(seed), triangles)
    state.improve(sweeps=sweeps, rows=())
    check_sums(state.local, state.layout, state.potentials)


@settings(max_examples=10)
@given(st.integers(0, 9999))
def test_added_triangles_change_no_sum_and_keep_the_hidden_graph_first(seed):
    local = agent(seed)
    layout = lay_out(local, triangles=False)
    triples = [triple for triple in combinations(range(6), 3) if np.random.default_rng(seed).random() < 0.5]
    new, potentials = add_triangles(layout, layout.potentials, triples)
    check_sums(local, new, potentials)
    assert {tuple(corners) for corners in new.whole.corners.tolist()} == set(triples)
    for graph in (new.whole, new.hidden):
        for (a, b, c), numbers in zip(graph.corners.tolist(), graph.triangles.tolist(), strict=True):
            assert [tuple(graph.pairs[e]) for e in numbers] == [(a, b), (a, c), (b, c)]


@pytest.mark.parametrize("triangles", [False, True])
def test_what_remains_of_each_array_once_the_interface_is_fixed_is_a_prefix(triangles):
    layout = lay_out(dense_agent(3, hidden=5, interface=2, density=1.0), triangles)
    whole, hidden = layout.whole, layout.hidden
    assert (whole.domains[: layout.n_hidden] == hidden.domains).all() and layout.n_hidden == 5
    assert (whole.pairs[: len(hidden.pairs)] == hidden.pairs).all()
    assert (whole.corners[: len(hidden.corners)] == hidden.corners).all()
    assert (whole.pairs[len(hidden.pairs) :, 1] >= layout.n_hidden).all()


def test_incident_pairs_are_those_of_the_variable():
    graph = lay_out(dense_agent(4, hidden=5), triangles=True).whole
    for v, (first, last) in enumerate(zip(graph.incident_start[:-1], graph.incident_start[1:], strict=True)):
        expected = [e for e, pair in enumerate(graph.pairs.tolist()) if v in pair]
        assert sorted(graph.incident[first:last].tolist()) == expected


def test_padding_is_forbidden_and_a_multiple_of_the_lanes():
    local = agent(1)
    layout = lay_out(local, triangles=True)
    width = table_width(local)
    assert width % LANES == 0 and layout.potentials.unary.shape[1] == width
    for v, size in enumerate(layout.whole.domains.tolist()):
        assert (layout.potentials.unary[v, size:] == FORBIDDEN).all()
    for (a, b), table in zip(layout.whole.pairs.tolist(), layout.potentials.pair, strict=True):
        assert (table[layout.whole.domains[a] :] < FORBIDDEN_BELOW).all()
        assert (table[:, layout.whole.domains[b] :] < FORBIDDEN_BELOW).all()


def test_few_small_triangles_become_tables_of_three_variables():
    graph = lay_out(dense_agent(3, hidden=5, density=1.0), triangles=True).whole
    assert len(graph.triangles) and triplets_fit(graph)
    assert not triplets_fit(graph._replace(triangles=np.zeros((100_000, 3), dtype=np.int64)))
    assert not triplets_fit(graph._replace(widths=np.array([1 << 12])))
