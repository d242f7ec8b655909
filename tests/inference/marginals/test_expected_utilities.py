"""The problem of maximising expected utilities has the optimum that enumerating all outcomes gives."""

import dataclasses
import itertools

import numpy as np
import pytest
from support.constraints.random_constraints import KINDS
from support.constraints.random_constraints import random_problem as constrained_problem

import dmcmc
from dmcmc import DmcmcError, Factor, Problem, expected


def random_problem(rng, sense="max"):
    """Return a problem of three decisions and two random variables, some of whose entries are forbidden."""
    domains = rng.integers(2, 4, 5)
    scopes = [(0, 1), (1, 3), (4, 2, 0), (3, 4, 1), (2,), (3,)]
    factors = []
    for scope in scopes:
        table = rng.integers(-9, 10, domains[list(scope)]).astype(float)
        table[rng.random(table.shape) < 0.08] = np.inf if sense == "min" else -np.inf
        factors.append(Factor.of(scope, table, sense))
    return Problem(tuple("abcde"), domains, ("one", "two"), np.array([0, 1, 0, 1, 1]), tuple(factors), sense=sense)


def expectation_of(problem, values, weighted_outcomes):
    """Return the expected objective of values of the decisions; None if an outcome that may happen forbids them."""
    total = 0.0
    for probability, outcome in weighted_outcomes:
        objective, violation = problem.evaluate(dict(zip("abcde", (*values, *outcome), strict=True)))
        if probability > 0 and violation:
            return None
        total += probability * objective if probability > 0 else 0.0
    return total


@pytest.mark.parametrize("sense", ["max", "min"])
@pytest.mark.parametrize("kind", ["probabilities", "scenarios"])
def test_expected_utilities_equal_enumeration(sense, kind):
    rng = np.random.default_rng(4)
    for _ in range(30):
        problem = random_problem(rng, sense)
        if kind == "probabilities":
            outcomes = {name: rng.dirichlet(np.ones(problem.domains[3 + i])) for i, name in enumerate("de")}
            outcomes["d"][0] = 0.0
            outcomes["d"] /= outcomes["d"].sum()
            weighted = [(outcomes["d"][i] * outcomes["e"][j], (i, j)) for i, j in np.ndindex(*problem.domains[3:])]
        else:
            drawn = [tuple(int(rng.integers(d)) for d in problem.domains[3:]) for _ in range(5)]
            outcomes = [dict(zip("de", values, strict=True)) for values in drawn]
            weighted = [(1 / len(drawn), values) for values in drawn]
        reduced = expected(problem, outcomes)
        assert reduced.variables == ("a", "b", "c")
        found = {}
        for values in itertools.product(*map(range, problem.domains[:3])):
            objective, violation = reduced.evaluate(dict(zip("abc", values, strict=True)))
            exact = expectation_of(problem, values, weighted)
            assert (violation > 0) == (exact is None)
            if not violation:
                found[values] = objective
                assert objective == pytest.approx(exact)
        result = dmcmc.solve(reduced, device="cpu")
        if found:
            assert result.objective == pytest.approx(max(found.values()) if sense == "max" else min(found.values()))


def test_factors_without_random_variables_are_kept():
    problem = random_problem(np.random.default_rng(1))
    reduced = expected(problem, {"d": np.eye(problem.domains[3])[0], "e": np.eye(problem.domains[4])[1]})
    assert reduced.factors[0] == problem.factors[0]
    assert reduced.owner.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("outcomes", "message"),
    [
        ({"x": [1.0]}, "unknown variable 'x'"),
        ({"d": [1.0]}, "variable 'd' has 2 values, so it needs 2 probabilities"),
        ({"d": [0.5, 0.6]}, "'d' are not at least 0 with the sum 1"),
        ([], "at least one scenario"),
        ([{"d": 0}, {"e": 0}], "scenario 2 has no value for 'd'"),
        ([{"d": 7}], "scenario 1: 7 is not a value of 'd'"),
    ],
)
def test_wrong_outcomes_are_named(outcomes, message):
    domains = np.array([2, 2, 2, 2, 2])
    problem = Problem(tuple("abcde"), domains, ("one",), np.zeros(5, dtype=int), (Factor.of((0, 3), np.ones((2, 2))),))
    with pytest.raises(DmcmcError, match=message):
        expected(problem, outcomes)


def test_global_constraints_over_decisions_are_kept():
    for kind in KINDS:
        decisions = constrained_problem(np.random.default_rng(KINDS.index(kind)), [kind], 4, 3)
        builder = dmcmc.Builder(decisions.sense)
        builder.variable("weather", ["sun", "rain"])
        for name, size in zip(decisions.variables, decisions.domains.tolist(), strict=True):
            builder.variable(name, size)
        builder.factor((decisions.variables[0], "weather"), np.arange(2 * decisions.domains[0]).reshape(-1, 2))
        problem = builder.problem()
        moved = tuple(f.renamed([1 + v for v in f.scope], f.name) for f in decisions.factors)
        reduced = expected(dataclasses.replace(problem, factors=(*problem.factors, *moved)), {"weather": [0.5, 0.5]})
        assert reduced.factors[1:] == decisions.factors
        for values in itertools.product(*map(range, decisions.domains)):
            objective, violation = decisions.evaluate(values)
            assert reduced.evaluate(values) == (objective + 2 * values[0] + 0.5, violation)


def test_an_objective_with_levels_has_no_expectation():
    builder = dmcmc.Problem.build(levels=("first", "second"))
    for name in "ab":
        builder.variable(name, 2)
    with pytest.raises(DmcmcError, match="levels"):
        expected(builder.factor(("a", "b"), [[1, 2], [3, 4]]).problem(), {"b": [0.5, 0.5]})


def test_global_constraints_over_random_variables_are_refused():
    builder = dmcmc.Builder()
    for name in "ab":
        builder.variable(name, [0, 1])
    builder.all_different(["a", "b"])
    with pytest.raises(DmcmcError, match="a global constraint cannot contain a random variable"):
        expected(builder.problem(), {"b": [0.5, 0.5]})
