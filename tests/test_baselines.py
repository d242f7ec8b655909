"""Local searches that answers are compared with are what they say: right sums, 1- and 2-optimal, never worse."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import soundness
from support.local_optima import better_by_one, better_by_two, worth
from support.problem_strategies import mixed_problems, random_problem

from benchmarks.baselines import search_kernels as kernels
from benchmarks.baselines.search import SEARCHES, search
from dmcmc import Factor, Problem
from dmcmc.algorithms.layout import lay_out

few = settings(max_examples=30)


def begun(problem, seed):
    """A random state of a problem, with its scores."""
    layout = lay_out(problem)
    z = np.zeros(problem.n_variables, dtype=np.int64)
    scores = np.zeros((z.size, layout.most), dtype=np.int64)
    rng = np.array([seed], dtype=np.uint64)
    return layout, z, scores, rng, kernels.begin(layout, z, scores, rng)


def naive_sum(layout, problem, z):
    """What a state is worth in the layout's numbers: read from the tables, one entry a factor."""
    violations, utility = worth(problem, z)
    constants = [f for f in problem.factors if not f.scope]
    lost = sum(f.entry(()) is None for f in constants)
    return violations + lost, utility - sum(f.entry(()) or 0 for f in constants)


@few
@given(mixed_problems(), st.integers(0, 99))
def test_a_better_sum_is_fewer_violations_or_else_more_utility(problem, seed):
    layout, z, _, rng, total = begun(problem, seed)
    other = z.copy()
    scores = np.zeros((z.size, layout.most), dtype=np.int64)
    more = kernels.begin(layout, other, scores, rng)
    before, after = naive_sum(layout, problem, z), naive_sum(layout, problem, other)
    if before[0] != after[0] or abs(before[1] - after[1]) > 1e-6 * (1 + abs(before[1])):
        assert (more > total) == (after > before)


@few
@given(mixed_problems(), st.integers(0, 99))
def test_scores_are_kept_up_to_date(problem, seed):
    layout, z, scores, _, total = begun(problem, seed)
    for v in range(z.size):
        total += kernels.change(layout, z, scores, v, int(problem.domains[v]) - 1)
    anew = np.zeros_like(scores)
    kernels.fill_scores(layout, z, anew)
    assert np.array_equal(anew, scores)
    assert kernels.worth(layout, z) == total


@few
@given(mixed_problems(), st.integers(0, 99))
def test_ascent_never_gets_worse_and_ends_1_optimal(problem, seed):
    layout, z, scores, _, total = begun(problem, seed)
    gain = kernels.ascend(layout, z, scores)
    assert gain >= 0 and kernels.worth(layout, z) == total + gain
    assert better_by_one(problem, z) == []


@few
@given(mixed_problems(), st.integers(0, 99))
def test_mgm2_never_gets_worse_and_ends_2_optimal(problem, seed):
    layout, z, scores, rng, total = begun(problem, seed)
    gain = kernels.mgm2(layout, z, scores, rng, 0.5)
    assert gain >= 0 and kernels.worth(layout, z) == total + gain
    assert better_by_two(problem, z) == []


@few
@given(mixed_problems(), st.integers(0, 99), st.sampled_from([0, 1, 2]))
def test_dsa_keeps_the_best_that_it_saw(problem, seed, sideways):
    layout, z, scores, rng, total = begun(problem, seed)
    best = np.zeros_like(z)
    top = kernels.dsa(layout, z, scores, rng, total, best, 20, 0.7, sideways)
    assert top >= total and kernels.worth(layout, best) == top


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("sense", ["max", "min"])
def test_many_starts_find_the_optimum_of_a_small_problem(name, sense):
    problem = random_problem(5, variables=6, hard=0.0, sense=sense)
    found = search(problem, name, 0.05, threads=2)
    sign = 1 if sense == "max" else -1
    assert sign * problem.evaluate(found.values).objective == soundness.optimum(problem)
    assert found.trace[-1].objective == problem.evaluate(found.values).objective and found.starts >= 2


def test_two_who_must_move_together_do_so_in_mgm2_only():
    table = [[2, 0], [0, 3]]
    problem = Problem(("a", "b"), [2, 2], ("one", "two"), [0, 1], (Factor.of((0, 1), table),))
    layout, z, scores, rng, _ = begun(problem, 0)
    z[:] = 0
    kernels.fill_scores(layout, z, scores)
    assert kernels.ascend(layout, z, scores) == 0
    assert kernels.mgm2(layout, z, scores, rng, 0.5) == 1 and z.tolist() == [1, 1]
