"""For random problems and settings, objective <= optimum <= bound; the reference is checked against brute force."""

import pytest
from support import naive, soundness
from support.problem_strategies import random_problem


@pytest.mark.slow
def test_the_optimum_lies_between_objective_and_bound_for_any_settings():
    outcomes, errors = set(), []
    for seed in range(70):
        outcome, found = soundness.check(seed, most_seconds=0.05)
        outcomes.add(outcome)
        errors += [f"seed {seed}: {text}" for text in found]
    assert not errors
    assert outcomes > {"optimal", "feasible, bounded", "infeasible", "timeout, bounded"}


def test_the_reference_optimum_equals_brute_force():
    for seed in range(30):
        problem = random_problem(seed, variables=5, sense="min" if seed % 2 else "max")
        assert soundness.optimum(problem) == naive.optimum(problem)
