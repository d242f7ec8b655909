"""Local-search baselines: consistent scores, 1- and 2-optimal results, and objectives that never decrease."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import soundness
from support.local_optima import better_by_one, better_by_two, value_of
from support.problem_strategies import mixed_problems, random_problem

from benchmarks.baselines import search_kernels as kernels
from benchmarks.baselines.search import SEARCHES, search
from dmcmc import Factor, Problem
from dmcmc.algorithms.layout import build_layout

few_examples = settings(max_examples=30)


def random_start(problem, seed):
    """Return the layout of a problem, a random assignment with its scores, the generator's state and the objective."""
    layout = build_layout(problem)
    z = np.zeros(problem.n_variables, dtype=np.int64)
    scores = np.zeros((z.size, layout.max_domain), dtype=np.int64)
    rng = np.array([seed], dtype=np.uint64)
    return layout, z, scores, rng, kernels.begin(layout, z, scores, rng)


def naive_objective(layout, problem, z):
    """Return violations and utility of an assignment in the layout's numbers, read from the tables entry by entry."""
    violations, utility = value_of(problem, z)
    constants = [f for f in problem.factors if not f.scope]
    constant_violations = sum(f.entry(()) is None for f in constants)
    return violations + constant_violations, utility - sum(f.entry(()) or 0 for f in constants)


@few_examples
@given(mixed_problems(), st.integers(0, 99))
def test_a_better_score_has_fewer_violations_or_else_more_utility(problem, seed):
    layout, z, _, rng, total = random_start(problem, seed)
    other = z.copy()
    scores = np.zeros((z.size, layout.max_domain), dtype=np.int64)
    other_total = kernels.begin(layout, other, scores, rng)
    before, after = naive_objective(layout, problem, z), naive_objective(layout, problem, other)
    if before[0] != after[0] or abs(before[1] - after[1]) > 1e-6 * (1 + abs(before[1])):
        assert (other_total > total) == (after > before)


@few_examples
@given(mixed_problems(), st.integers(0, 99))
def test_scores_are_updated_incrementally(problem, seed):
    layout, z, scores, _, total = random_start(problem, seed)
    for v in range(z.size):
        total += kernels.set_value(layout, z, scores, v, int(problem.domains[v]) - 1)
    recomputed = np.zeros_like(scores)
    kernels.fill_scores(layout, z, recomputed)
    assert np.array_equal(recomputed, scores)
    assert kernels.total_score(layout, z) == total


@few_examples
@given(mixed_problems(), st.integers(0, 99))
def test_ascent_never_gets_worse_and_ends_1_optimal(problem, seed):
    layout, z, scores, _, total = random_start(problem, seed)
    gain = kernels.ascend(layout, z, scores)
    assert gain >= 0 and kernels.total_score(layout, z) == total + gain
    assert better_by_one(problem, z) == []


@few_examples
@given(mixed_problems(), st.integers(0, 99))
def test_mgm2_never_gets_worse_and_ends_2_optimal(problem, seed):
    layout, z, scores, rng, total = random_start(problem, seed)
    gain = kernels.mgm2(layout, z, scores, rng, 0.5)
    assert gain >= 0 and kernels.total_score(layout, z) == total + gain
    assert better_by_two(problem, z) == []


@few_examples
@given(mixed_problems(), st.integers(0, 99), st.sampled_from([0, 1, 2]))
def test_dsa_returns_the_best_assignment_it_visits(problem, seed, sideways):
    layout, z, scores, rng, total = random_start(problem, seed)
    best = np.zeros_like(z)
    best_total = kernels.dsa(layout, z, scores, rng, total, best, 20, 0.7, sideways)
    assert best_total >= total and kernels.total_score(layout, best) == best_total


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("sense", ["max", "min"])
def test_many_starts_find_the_optimum_of_a_small_problem(name, sense):
    problem = random_problem(5, variables=6, hard=0.0, sense=sense)
    found = search(problem, name, 0.05, threads=2)
    sign = 1 if sense == "max" else -1
    assert sign * problem.evaluate(found.values).objective == soundness.optimum(problem)
    assert found.trace[-1].objective == problem.evaluate(found.values).objective and found.starts >= 2


def test_only_mgm2_makes_moves_that_need_two_variables():
    table = [[2, 0], [0, 3]]
    problem = Problem(("a", "b"), [2, 2], ("one", "two"), [0, 1], (Factor.of((0, 1), table),))
    layout, z, scores, rng, _ = random_start(problem, 0)
    z[:] = 0
    kernels.fill_scores(layout, z, scores)
    assert kernels.ascend(layout, z, scores) == 0
    assert kernels.mgm2(layout, z, scores, rng, 0.5) == 1 and z.tolist() == [1, 1]
