"""Joint marginals equal those of brute force, and samples follow the posterior distribution."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from support import naive
from support.problem_strategies import random_problem, with_other_representations

from dmcmc import Factor, Problem
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.runtime.errors import ConfigError, ProblemError

TABLES = pytest.mark.parametrize("tables", ["dense", "incomplete"])


def utilities_by_values(problem, evidence):
    """Return the utility of every allowed assignment that agrees with the evidence."""
    found = {}
    for values in product(*map(range, problem.domains.tolist())):
        utility = naive.utility(problem, values)
        if utility > -math.inf and all(values[problem.variables.index(name)] == x for name, x in evidence.items()):
            found[values] = utility
    return found


def drawn_cases(count, floats):
    """Yield random problems, other representations of their factors, evidence, and all allowed assignments."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        problem = random_problem(
            seed, variables=6, domain=3, factors=7, magnitude=2, hard=(0.0, 0.3)[seed % 2], floats=floats
        )
        if problem.n_variables < 2:
            continue
        problem = with_other_representations(problem, rng)
        observed = int(rng.integers(0, problem.n_variables))
        evidence = {problem.variables[observed]: int(rng.integers(0, problem.domains[observed]))} if seed % 3 else {}
        yield rng, problem, evidence, utilities_by_values(problem, evidence)


@TABLES
@pytest.mark.parametrize("maximise", [False, True])
def test_joint_marginals_equal_those_of_brute_force_whether_or_not_the_variables_share_a_clique(tables, maximise):
    for rng, problem, evidence, allowed in drawn_cases(40, floats=not maximise):
        tree = JunctionTree(problem, maximise, tables=tables)
        tree.set_evidence(evidence)
        chosen = rng.permutation(problem.n_variables)[: rng.integers(1, 4)].tolist()
        names = tuple(problem.variables[v] for v in chosen)
        if not allowed and not maximise:
            with pytest.raises(ProblemError, match="agrees with the evidence"):
                tree.marginal(names)
            continue
        before = tree.marginals()
        found = tree.marginal(names)
        assert list(found) == list(product(*(range(problem.domains[v]) for v in chosen)))
        total = sum(map(math.exp, allowed.values()))
        for labels, number in found.items():
            agreeing = [u for x, u in allowed.items() if tuple(x[v] for v in chosen) == labels]
            if maximise:
                assert number == max(agreeing, default=None)
            else:
                assert number == pytest.approx(sum(map(math.exp, agreeing)) / total, abs=1e-9)
        assert tree.marginals() == before  # the evidence is unchanged


@TABLES
def test_samples_follow_the_posterior_distribution(tables):
    count, statistic, freedom = 2000, 0.0, 0
    for seed, (_, problem, evidence, allowed) in enumerate(drawn_cases(30, floats=True)):
        tree = JunctionTree(problem, tables=tables)
        tree.set_evidence(evidence)
        if not allowed:
            with pytest.raises(ProblemError, match="no samples"):
                tree.sample(1)
            continue
        drawn = Counter(tuple(problem.values_of(x).tolist()) for x in tree.sample(count, seed))
        assert set(drawn) <= set(allowed)
        total = sum(map(math.exp, allowed.values()))
        expected = {x: count * math.exp(u) / total for x, u in allowed.items()}
        frequent = [x for x, number in expected.items() if number >= 5]
        rare = sum(number for number in expected.values() if number < 5)
        cells = [(drawn[x], expected[x]) for x in frequent]
        if rare > 5:
            cells.append((count - sum(drawn[x] for x in frequent), rare))
        statistic += sum((observed - number) ** 2 / number for observed, number in cells)
        freedom += len(cells) - 1
    # the χ² distribution with many degrees of freedom is normal; 4 standard deviations either way
    assert freedom > 100
    assert abs(statistic - freedom) < 4 * math.sqrt(2 * freedom)


def test_samples_depend_on_the_seed_only_and_follow_marginals_of_a_large_tree():
    rng, n = np.random.default_rng(3), 300
    factors = [Factor.of((v, int(rng.integers(max(0, v - 3), v))), rng.normal(size=(3, 3))) for v in range(1, n)]
    problem = Problem(tuple(f"x{v}" for v in range(n)), [3] * n, ("a",), [0] * n, tuple(factors))
    tree = JunctionTree(problem)
    tree.marginal(("x7", "x250"))  # leaves messages of other evidence behind
    samples = tree.sample(400, 1)
    assert samples == JunctionTree(problem).sample(400, 1) != tree.sample(400, 2)
    for name, row in tree.marginals().items():
        for value, probability in row.items():
            frequency = sum(x[name] == value for x in samples) / len(samples)
            assert abs(frequency - probability) < 5 * math.sqrt(probability * (1 - probability) / len(samples)) + 1e-12


def test_wrong_queries_are_one_line_errors():
    problem = random_problem(4, variables=6)
    tree, name = JunctionTree(problem), problem.variables[0]
    for wrong in ((), (name, name)):
        with pytest.raises(ProblemError, match="distinct variables"):
            tree.marginal(wrong)
    with pytest.raises(ProblemError, match="does not exist"):
        tree.marginal((name, "nobody"))
    with pytest.raises(ConfigError, match="tree of maxima"):
        JunctionTree(problem, maximise=True).sample(3)
    for wrong in (-1, 2.5):
        with pytest.raises(ConfigError, match="whole number"):
            tree.sample(wrong)
    assert tree.sample(0) == []
