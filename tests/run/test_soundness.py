"""Whatever is asked, objective, optimum and bound are in order; the reference that says so is brute force."""

import pytest
from support import naive, soundness
from support.problem_strategies import random_problem


@pytest.mark.slow
def test_objective_optimum_and_bound_are_in_order_whatever_is_asked():
    words, wrong = set(), []
    for seed in range(70):
        word, found = soundness.check(seed, most_seconds=0.05)
        words.add(word)
        wrong += [f"seed {seed}: {text}" for text in found]
    assert not wrong
    assert words > {"optimal", "feasible, bounded", "infeasible", "timeout, bounded"}


def test_the_reference_is_brute_force():
    for seed in range(30):
        problem = random_problem(seed, variables=5, sense="min" if seed % 2 else "max")
        assert soundness.optimum(problem) == naive.optimum(problem)
