"""Marginals obey the laws of probability, and max-marginals are exact, whatever was asked before."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_problem, with_other_representations

from dmcmc import Factor, Problem
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.runtime.errors import ConfigError, ProblemError, ResourceError

FORMATS = st.sampled_from(["dense", "incomplete"])


@st.composite
def problems(draw, floats=True, magnitude=3):
    """Draw problems of up to 6 variables with any share of forbidden entries."""
    hard = draw(st.sampled_from([0.0, 0.2, 0.6]))
    seed = draw(st.integers(0, 10**6))
    return random_problem(seed, variables=6, domain=3, factors=8, magnitude=magnitude, hard=hard, floats=floats)


@st.composite
def evidence(draw, problem):
    """Draw observed values of up to three variables of a problem."""
    observed = (
        draw(st.lists(st.sampled_from(range(problem.n_variables)), max_size=3, unique=True))
        if problem.n_variables
        else []
    )
    return {problem.variables[v]: draw(st.integers(0, int(problem.domains[v]) - 1)) for v in observed}


@settings(max_examples=60)
@given(st.data(), FORMATS)
def test_probabilities_obey_the_chain_rule_and_the_law_of_total_probability(data, tables):
    problem = data.draw(problems())
    assume(problem.n_variables)
    given_values, variable = data.draw(evidence(problem)), data.draw(st.sampled_from(problem.variables))
    tree = JunctionTree(problem, tables=tables)
    tree.set_evidence(given_values)
    total = tree.total()
    assume(total > -math.inf)
    posterior, joint = tree.marginal(variable), {}
    for value in posterior:
        if given_values.get(variable, value) == value:
            tree.set_evidence(given_values | {variable: value})
            joint[value] = tree.total()
    assert math.fsum(posterior.values()) == pytest.approx(1)
    assert np.logaddexp.reduce(list(joint.values())) == pytest.approx(total, abs=1e-9)
    for value, probability in posterior.items():
        assert probability == pytest.approx(math.exp(joint.get(value, -math.inf) - total), abs=1e-9)


@settings(max_examples=60)
@given(st.data(), FORMATS, st.booleans())
def test_contradictory_evidence_is_reported_and_leaves_no_trace(data, tables, maximise):
    problem = data.draw(problems(floats=False))
    tree = JunctionTree(problem, maximise, tables=tables)
    assume(abs(tree.total()) < math.inf)
    expected = tree.total(), tree.marginals()
    for _ in range(2):
        tree.set_evidence(data.draw(evidence(problem)))
        if abs(tree.total()) == math.inf and not maximise:
            with pytest.raises(ProblemError, match="agrees with the evidence"):
                tree.marginals()
        elif maximise:
            utilities = [u for row in tree.marginals().values() for u in row.values() if u is not None]
            assert max(utilities, default=-math.inf) == (tree.total() if problem.n_variables else -math.inf)
        tree.set_evidence({})
        assert (tree.total(), tree.marginals()) == expected
    tree.forget()
    assert (tree.total(), tree.marginals()) == expected


@settings(max_examples=60)
@given(st.data(), FORMATS)
def test_the_largest_max_marginal_of_each_variable_is_the_total_and_observing_a_value_gives_its_max_marginal(
    data, tables
):
    problem = data.draw(problems(floats=False))
    assume(problem.n_variables)
    tree = JunctionTree(problem, maximise=True, tables=tables)
    total, before = tree.total(), tree.marginals()
    for row in before.values():
        assert max((u for u in row.values() if u is not None), default=-math.inf) == total
    name = data.draw(st.sampled_from(problem.variables))
    for value, best in before[name].items():
        tree.set_evidence({name: value})
        assert tree.total() == (-math.inf if best is None else best)


@settings(max_examples=60)
@given(st.data(), st.booleans())
def test_single_queries_in_any_order_give_the_same_as_all_at_once(data, maximise):
    problem = data.draw(problems(floats=not maximise))
    observed = data.draw(evidence(problem))
    tree, other = JunctionTree(problem, maximise), JunctionTree(problem, maximise)
    other.set_evidence(observed)
    assume(maximise or other.total() > -math.inf)
    for name in data.draw(st.permutations(problem.variables)):
        tree.set_evidence({})
        assume(maximise or tree.total() > -math.inf)
        tree.marginal(name)  # leaves some messages of other evidence behind
        tree.set_evidence(observed)
        assert tree.marginal(name) == pytest.approx(other.marginal(name), abs=1e-9)


@settings(max_examples=60)
@given(st.data(), FORMATS)
def test_every_representation_of_the_factors_gives_the_same_max_marginals(data, tables):
    problem = data.draw(problems(floats=False))
    other = with_other_representations(problem, np.random.default_rng(data.draw(st.integers(0, 2**32))))
    dense = replace(other, factors=tuple(Factor(f.scope, f.table) for f in other.factors))
    expected, found = (JunctionTree(p, maximise=True, tables=tables) for p in (dense, other))
    assert (found.total(), found.marginals()) == (expected.total(), expected.marginals())


@st.composite
def extremes(draw):
    """Draw problems whose utilities add up to almost the limit of int64 arithmetic."""
    count, domains = draw(st.integers(1, 4)), np.array([3, 2, 2])
    edge, factors = (2**60 - 1) // count, []
    entries = draw(st.lists(st.sampled_from([np.iinfo(np.int64).min, edge, -edge, 1]), min_size=1, max_size=3))
    for _ in range(count):
        scope = draw(st.sampled_from([(0,), (0, 1), (2, 0), (1, 2)]))
        shape = domains[list(scope)].tolist()
        values = draw(st.lists(st.sampled_from(entries), min_size=math.prod(shape), max_size=math.prod(shape)))
        factors.append(Factor.of(scope, np.array(values, dtype=np.int64).reshape(shape)))
    return Problem(("x", "y", "z"), domains, ("a",), np.zeros(3, dtype=np.int64), tuple(factors))


@settings(max_examples=100)
@given(extremes(), FORMATS)
def test_max_marginals_are_exact_at_the_limits_of_int64(problem, tables):
    tree = JunctionTree(problem, maximise=True, tables=tables)
    plain = [(f.scope, naive.utilities(f.table)) for f in problem.factors]
    for v, name in enumerate(problem.variables):
        others = [u for u in range(3) if u != v]
        expected = naive.marginal(plain, others, [v], problem.domains).tolist()
        assert tree.marginal(name) == {x: None if u == -naive.INFINITY else u for x, u in enumerate(expected)}
    assert tree.total() == naive.optimum(problem, exact=True)


@settings(max_examples=60)
@given(problems())
def test_less_memory_never_changes_probabilities_and_a_refusal_names_the_limit(problem):
    expected = JunctionTree(problem).total()
    for memory in (1 << 20, 3000, 1000, 300, 100):
        try:
            tree = JunctionTree(problem, memory=memory)
        except ResourceError as error:
            assert "bytes" in str(error) or "memory" in str(error)
        else:
            assert tree.total() == pytest.approx(expected, abs=1e-9)


def test_values_are_observed_and_reported_by_their_labels():
    builder = Problem.build("min")
    builder.variable("weather", ["sun", "rain"])
    builder.factor((builder.variable("umbrella", ["left", "taken"]), "weather"), [[0, 5], [1, 1]])
    tree = JunctionTree(builder, maximise=True)
    assert tree.marginals() == {"weather": {"sun": 0, "rain": 1}, "umbrella": {"left": 0, "taken": 1}}
    tree.set_evidence({"weather": "rain"})
    assert tree.marginal("umbrella") == {"left": 5, "taken": 1} and tree.marginal("weather") == {"sun": None, "rain": 1}
    with pytest.raises(ProblemError, match="expected a mapping from names"):
        tree.set_evidence(["weather"])
    for wrong in ({"tables": "some"}, {"device": "abacus"}):
        with pytest.raises(ConfigError, match="expected one of"):
            JunctionTree(builder, **wrong)


def test_a_clique_with_more_entries_than_int64_counts_is_refused_in_one_line():
    different = np.where(np.eye(40), -np.inf, 0.0)
    pairs = [Factor.of(pair, different) for pair in combinations(range(12), 2)]
    problem = Problem([f"x{i}" for i in range(12)], [40] * 12, ("one",), [0] * 12, tuple(pairs))
    for maximise in (False, True):
        with pytest.raises(ResourceError, match=r"a clique of about 10\^19 entries"):
            JunctionTree(problem, maximise)
