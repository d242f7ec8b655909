"""Sparse factors and automata have the utilities of their dense table: expanded, evaluated and as chains."""

import pickle
from dataclasses import replace
from itertools import product, zip_longest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.naive import INFINITY, marginal, optimum, utilities

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.inference.model.automaton import AutomatonFactor, automaton_of, unroll
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Evaluation
from dmcmc.inference.model.sparse_factor import SparseFactor, format_count, tabulate
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ProblemError, ResourceError

SMALLEST = np.iinfo(np.int64).min


@st.composite
def listings(draw):
    """Draw the shape, tuples, values and default of a sparse factor."""
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    rows = draw(st.lists(st.tuples(*(st.integers(0, d - 1) for d in shape)), max_size=12))
    entry = draw(
        st.sampled_from(
            [
                st.one_of(st.integers(-9, 9), st.just(-INFINITY)),
                st.one_of(st.integers(-(2**52), 2**52), st.just(-INFINITY)),
                st.one_of(st.floats(-9, 9), st.just(-INFINITY)),
            ]
        )
    )
    values = draw(st.lists(entry, min_size=len(rows), max_size=len(rows)))
    return shape, rows, values, draw(entry)


def sparse(shape, rows, values, default):
    """Return a sparse factor of any size, and the equal dense factor."""
    padded = (*shape, 3000)  # too many entries for a table
    listed = tabulate(range(len(padded)), padded, [(*r, 0) for r in rows], values, default)
    assert isinstance(listed, SparseFactor)
    tuples = listed.tuples[:, :-1]
    plain = np.full(shape, default, dtype=float)
    for row, value in zip(rows, values, strict=True):
        plain[row] = value
    scope = tuple(range(len(shape)))
    return SparseFactor(scope, shape, tuples, listed.utilities), Factor.of(scope, plain)


def problem_of(*factors, agents=1):
    """Return a problem over the variables of some factors."""
    sizes = {v: d for f in factors for v, d in zip(f.scope, f.shape, strict=True)}
    n = max(sizes) + 1
    return Problem(
        tuple(f"x{v}" for v in range(n)),
        [sizes.get(v, 1) for v in range(n)],
        tuple(f"a{a}" for a in range(agents)),
        [v % agents for v in range(n)],
        factors,
    )


@given(listings())
def test_a_sparse_factor_its_automaton_and_its_table_are_the_same_function(listing):
    factor, plain = sparse(*listing)
    chain = automaton_of(factor)
    for values in product(*map(range, factor.shape)):
        assert factor.entry(values) == plain.entry(values) == chain.entry(values)
    assert np.array_equal(utilities(factor.table), utilities(plain.table))
    assert np.array_equal(utilities(chain.table), utilities(plain.table))
    assert factor.forbidden_entries() == plain.forbidden_entries() == chain.forbidden_entries()
    assert factor.shape == plain.shape == chain.shape
    words = chain.to_sparse()
    assert words.default_is_forbidden and all(
        words.entry(v) == plain.entry(v) for v in product(*map(range, factor.shape))
    )
    assert (
        words.forbidden_entries() == plain.forbidden_entries() and len(words.tuples) == words.allowed_tuples()[1].size
    )


def as_chain(problem):
    """Return a problem in which every factor that is not dense has become a chain, whatever its size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmcmc.inference.tuning.MAX_ENUMERATED_ENTRIES", 0)
        patch.setattr("dmcmc.inference.tuning.SHARE_PER_ITEM", 0)
        patch.setattr("dmcmc.inference.model.densify.MAX_ARRAY_AXES", 0)
        return densify(problem, 2**40)


@given(listings(), st.integers(1, 3))
def test_eliminating_the_states_of_a_chain_restores_the_table(listing, agents):
    factor, plain = sparse(*listing)
    dense = as_chain(problem_of(factor, agents=agents))
    assert dense.n_original == len(factor.shape)
    assert all(type(f) is Factor for f in dense.problem.factors)
    tables = [(f.scope, utilities(f.table)) for f in dense.problem.factors]
    hidden = range(dense.n_original, dense.problem.n_variables)
    assert np.array_equal(
        marginal(tables, hidden, range(dense.n_original), dense.problem.domains), utilities(plain.table)
    )


@given(listings())
def test_a_chain_has_one_state_sequence_per_assignment(listing):
    factor, _ = sparse(*listing)
    dense = as_chain(problem_of(factor)).problem
    n_original = len(factor.shape)
    for values in product(*map(range, factor.shape)):
        runs = [
            dense.evaluate([*values, *states]) for states in product(*map(range, dense.domains[n_original:].tolist()))
        ]
        allowed = [run for run in runs if not run.violation]
        assert len(allowed) == (factor.entry(values) is not None)


def test_small_factors_are_expanded_and_dense_problems_are_unchanged():
    factor, plain = sparse((2, 3), [(0, 1)], [4], -1)
    problem = problem_of(factor)
    dense = densify(problem, 2**20).problem
    assert np.array_equal(dense.factors[0].table, plain.table)
    assert densify(dense, 2**20).problem is dense


def test_a_factor_over_55_variables_becomes_a_chain_of_small_tables():
    at_most_one = unroll(range(55), [2] * 55, 0, lambda i, seen, x: (seen + x, 0 if seen + x < 2 else None))
    assert at_most_one.states == (1, *[2] * 54)
    problem = problem_of(at_most_one)
    assert problem.evaluate([0] * 54 + [1]) == Evaluation(0, 0)
    assert problem.evaluate([1] + [0] * 53 + [1]) == Evaluation(0, 1)
    assert problem.forbidden_entries() == 2**55 - 56
    dense = densify(problem, 2**20)
    assert dense.problem.n_variables == 109
    assert max(f.table.size for f in dense.problem.factors) == 8
    with pytest.raises(ResourceError, match="a table of about 10\\^16 entries"):
        _ = at_most_one.table


def test_an_automaton_with_a_far_larger_table_becomes_a_chain_however_much_memory_there_is():
    count = unroll(range(23), [2] * 23, 0, lambda i, n, x: (n + x, 0 if n + x < 3 else None))
    dense = densify(problem_of(count), 2**40).problem
    assert dense.n_variables == 23 + 22
    assert sum(factor.table.size for factor in dense.factors) < 1000


@pytest.mark.parametrize(("tuples", "hidden"), [(20, 3), (300, 0)])
def test_a_sparse_factor_with_an_allowed_default_becomes_the_smaller_of_chain_and_table(tuples, hidden):
    rng = np.random.default_rng(0)
    factor = tabulate(range(4), [24] * 4, rng.integers(0, 24, (tuples, 4)), np.arange(tuples), 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmcmc.inference.tuning.MAX_ENUMERATED_ENTRIES", 0)
        assert densify(problem_of(factor), 2**24).problem.n_variables == 4 + hidden
    with pytest.raises(ResourceError, match="fits the memory neither"):
        densify(problem_of(tabulate(range(6), [24] * 6, rng.integers(0, 24, (900, 6)), np.arange(900), 5)), 2**20)


def test_names_of_hidden_variables_differ_from_those_of_variables():
    factor = unroll((0, 1), (2, 2), 0, lambda i, s, x: (s + x, s * x), name="f")
    problem = Problem(("f.state1", "y"), [2, 2], ("a", "b"), [0, 1], (factor,))
    dense = as_chain(problem).problem
    assert dense.variables == ("f.state1", "y", "f.state1'")
    assert dense.owner.tolist() == [0, 1, 0]


def test_a_factor_that_fits_neither_as_table_nor_as_chain_is_rejected():
    rng = np.random.default_rng(0)
    factor = tabulate(range(30), [4] * 30, rng.integers(0, 4, (500, 30)), np.ones(500, dtype=int), 0)
    with pytest.raises(ResourceError, match="fits the memory neither as a table of about 10\\^18 entries nor"):
        densify(problem_of(factor), 2**16)
    assert densify(problem_of(factor), 2**30).problem.n_variables == 30 + 29


def test_a_large_chain_is_replaced_by_one_variable_that_enumerates_the_tuples():
    rng, size = np.random.default_rng(0), 12
    rows = rng.integers(0, size, (600, 9))
    first, second = (
        tabulate(range(a, a + 6), [size] * 6, rows[:, a : a + 6], rng.random(600), -INFINITY) for a in (0, 3)
    )
    problem = Problem(tuple("abcdefghi"), [size] * 9, ("a", "b"), [0, 1] * 4 + [0], (first, second))
    dense = densify(problem, 2**24).problem
    assert dense.n_variables == 9 + 2
    assert max(f.table.size for f in dense.factors) == 600 * size
    automata = replace(problem, factors=(automaton_of(first), automaton_of(second)))
    assert (
        densify(automata, 2**24).problem.domains.tolist() == dense.domains.tolist()
    )  # they have few words, so the result is the same
    assert [f.allowed_tuples()[1].size for f in densify(automata, 2**24, keep_sparse=True).problem.factors] == [
        600,
        600,
    ]
    result = dmcmc.solve(problem, method="exact", device="cpu", memory="64MiB")
    assert result.status == "optimal"
    assert result.objective == pytest.approx(max(first.entry(row[:6]) + second.entry(row[3:]) for row in rows.tolist()))


def test_too_many_states_are_rejected():
    with pytest.raises(ResourceError, match="more than 1048576 steps"):
        unroll(range(40), [2] * 40, 0, lambda i, s, x: (2 * s + x, 0))


def test_the_last_of_equal_tuples_counts():
    for size in (2, 5000):
        factor = tabulate((0,), (size,), [[1], [0], [1]], [5, 6, 7], 0, name="f")
        assert [factor.entry([x]) for x in range(2)] == [6, 7]
        assert isinstance(factor, SparseFactor) == (size == 5000)


def test_a_constant_can_be_given_by_tuples():
    assert tabulate((), (), np.zeros((0, 0)), [], 5).entry(()) == 5
    assert tabulate((), (), np.zeros((2, 0)), [3, 4], 5).entry(()) == 4


def test_large_integers_stay_exact():
    factor = tabulate((0,), (5000,), [[1], [2]], np.array([2**61 + 1, SMALLEST]), 0, sense="min")
    assert factor.entry([1]) == -(2**61) - 1
    assert factor.entry([2]) is None


def test_values_outside_the_domain_are_rejected():
    with pytest.raises(ProblemError, match="factor f: tuple 1 has a value outside its domain"):
        tabulate((0,), (2,), [[1], [2]], [0, 0], 0, name="f")


def test_large_counts_are_formatted_as_powers_of_ten():
    assert (format_count(999), format_count(10**6), format_count(7 * 10**400)) == ("999", "about 10^6", "about 10^400")


def test_equal_states_are_merged():
    factor = unroll((0, 1, 2), (2, 2, 2), (), lambda i, s, x: ((*s, x), sum(s) * 0 + x))
    assert isinstance(factor, AutomatonFactor)
    assert factor.states == (1, 1, 1)


@given(listings(), listings(), st.integers(1, 3), st.sampled_from(["exact", "gibbs"]))
@settings(max_examples=25)
def test_solving_never_shows_hidden_variables(first, second, agents, method):
    factors = [sparse(*listing)[0] for listing in (first, second)]
    sizes = [max(pair) for pair in zip_longest(*(f.shape for f in factors), fillvalue=1)]
    factors = [
        tabulate(range(len(sizes)), sizes, np.pad(f.tuples, ((0, 0), (0, len(sizes) - len(f.shape)))), u[:-1], u[-1])
        for f in factors
        for u in [np.where(forbidden(f.utilities), -INFINITY, f.utilities.astype(float))]
    ]
    problem = problem_of(*factors, agents=agents if method == "exact" else 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmcmc.solving.planning.divided_problem.densify", lambda p, memory, relax: as_chain(p))
        result = dmcmc.solve(problem, method=method, runs=2, samples=10, device="cpu")
    best = optimum(problem)
    assert result.assignment is None or list(result.assignment) == list(problem.variables)
    assert sum(agent.variables for agent in result.agents) == problem.n_variables
    if method == "exact":
        assert (result.status == "infeasible") == (best == -INFINITY)
        assert best == -INFINITY or result.objective == pytest.approx(best)
    elif result.objective is not None:
        assert result.objective <= best + 1e-6
        assert result.objective == problem.evaluate(result.assignment).objective


def test_factors_can_be_pickled():
    listed = tabulate((0,), (5000,), [[1], [0]], [5, -INFINITY], 0, name="f")
    counted = unroll((0, 1), (2, 2), 0, lambda i, s, x: (s + x, s * x), name="g")
    for factor in (listed, counted):
        other = pickle.loads(pickle.dumps(factor))
        assert (type(other), other.scope, other.shape, other.name) == (
            type(factor), factor.scope, factor.shape, factor.name
        )  # fmt: skip
        first = [0] * len(factor.scope)
        assert other.entry(first) == factor.entry(first)
        assert repr(other) == repr(factor)
        assert factor.renamed([3, 4][: len(first)], "h").entry(first) == factor.entry(first)
