"""The factor graph against a plain walk over the factors."""

from itertools import product

import numpy as np
import pytest

from dmcmc.inference.model.automaton import automaton_of
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.factor_graph import build_graph, split_integers
from dmcmc.inference.model.flat_tables import flatten, table_ranges, varying_entries
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.model.tables import forbidden_value

DOMAINS = np.array([2, 3, 1, 4, 2])
SCOPES = [(1, 0), (3,), (0, 3, 2), (1, 0), (4, 2, 1)]


def random_factors(seed, high=50, dtype=np.int64):
    rng = np.random.default_rng(seed)
    return tuple(Factor.of(s, rng.integers(-high, high, DOMAINS[list(s)]).astype(dtype)) for s in SCOPES)


def problem_of(factors):
    names = tuple(f"x{v}" for v in range(DOMAINS.size))
    return Problem(names, DOMAINS, ("agent",), np.zeros(DOMAINS.size, dtype=np.int64), factors)


def check_incidence(graph, scopes):
    assert graph.scopes() == scopes
    for v in range(graph.domains.size):
        begin, end = graph.start[v], graph.start[v + 1]
        expected = [(f, axis) for f, scope in enumerate(scopes) for axis, u in enumerate(scope) if u == v]
        axes = graph.position[begin:end] - graph.scope_start[graph.factor[begin:end]]
        assert list(zip(graph.factor[begin:end].tolist(), axes.tolist(), strict=True)) == expected


def entry(graph, f, z):
    begin, end = graph.scope_start[f], graph.scope_start[f + 1]
    return graph.data[graph.table_start[f] + z[graph.scope[begin:end]] @ graph.stride[begin:end]]


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_entries_and_incidence_of_a_problem_are_those_of_its_factors(dtype):
    factors = random_factors(1, dtype=dtype)
    graph = build_graph(problem_of(factors))
    assert graph.free == graph.domains.size and graph.dense == graph.factors == len(factors)
    check_incidence(graph, SCOPES)
    for z in product(*map(range, DOMAINS)):
        for f, factor in enumerate(factors):
            assert entry(graph, f, np.array(z)) == factor.entry([z[v] for v in factor.scope])


def test_constants_are_left_out_and_automata_come_last():
    tuples = np.array([[0, 1], [1, 0], [1, 2]], dtype=np.int32)
    sparse = SparseFactor((0, 1), (2, 3), tuples, np.array([3, 4, 5, 0], dtype=np.int32))
    dense = random_factors(2)
    graph = build_graph(problem_of((Factor.of((), 7), sparse, *dense)))
    check_incidence(graph, [*SCOPES, (0, 1)])
    assert (graph.dense, graph.factors, graph.first_step) == (len(dense), len(dense) + 1, graph.table_start[-1])
    assert graph.following.size == sum(layer.following.size for layer in automaton_of(sparse).layers)


def test_a_subproblem_has_its_hidden_variables_first_and_free():
    factors = random_factors(3)
    local = Subproblem(0, (0, 3), (1, 2, 4), factors, DOMAINS)
    graph, order = local.graph, [1, 2, 4, 0, 3]
    assert graph.free == 3 and graph.domains.tolist() == DOMAINS[order].tolist()
    check_incidence(graph, [tuple(order.index(v) for v in scope) for scope in SCOPES])
    z = np.array([2, 0, 1, 1, 3])
    for f, factor in enumerate(factors):
        assert entry(graph, f, z) == factor.entry([z[order.index(v)] for v in factor.scope])


@pytest.mark.parametrize("high", [1 << 40, 1 << 61])
def test_the_two_parts_of_large_integers_add_up_to_them(high):
    graph = Subproblem(0, (), tuple(range(5)), random_factors(4, high), DOMAINS).graph
    split = split_integers(graph)
    low = split.low if split.low.size else np.zeros(graph.data.size)
    assert graph.data.dtype == np.int64 and split.data.dtype == np.float64
    assert [int(a) + int(b) for a, b in zip(split.data, low, strict=True)] == graph.data.tolist()


def test_vectors_of_positions_do_not_overlap():
    graph = build_graph(problem_of(random_factors(5)))
    ends = graph.vector_start + graph.domains[graph.scope]
    assert graph.vector_start[0] == 0 and graph.vector_start[1:].tolist() == ends[:-1].tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_varying_entries_are_those_of_tables_whose_allowed_entries_differ(dtype):
    rng = np.random.default_rng(5)
    for _ in range(20):
        tables = [rng.integers(0, 2, shape).astype(dtype) for shape in [(2, 3), (3,), (2, 1), (1,)]]
        for table in tables:
            table[rng.random(table.shape) < 0.4] = forbidden_value(np.dtype(dtype))
        allowed = [[entry for entry in table.ravel() if entry != forbidden_value(table.dtype)] for table in tables]
        expected = sum(len(entries) for entries in allowed if len(set(entries)) > 1)
        flat = flatten([()] * 4, tables)
        assert varying_entries(flat, table_ranges(flat)) == expected
    flat = flatten([], [])
    assert varying_entries(flat, table_ranges(flat)) == 0
