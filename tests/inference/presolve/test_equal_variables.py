"""Merging equal variables keeps the optimum and all kinds of factors, and restores assignments."""

from itertools import product

import numpy as np
import pytest

from dmcmc import Factor, Problem
from dmcmc.inference.constraints.count import CountConstraint
from dmcmc.inference.presolve.equal_variables import merge_equal_variables

SAME = np.where(np.eye(3, dtype=bool), 0, -np.inf)


def best(problem):
    evaluations = [problem.evaluate(np.array(v)) for v in product(*(range(int(d)) for d in problem.domains))]
    return max(e.objective for e in evaluations if not e.violation)


@pytest.mark.parametrize("seed", range(10))
def test_the_optimum_is_that_of_the_problem_with_copies(seed):
    rng = np.random.default_rng(seed)
    factors = [Factor.of((1, 0), SAME), Factor.of((1, 3), SAME), Factor.of((0, 3), rng.integers(0, 9, (3, 3)))]
    factors += [Factor.of((v, 2), rng.integers(-5, 5, (3, 3))) for v in (0, 1, 3)]
    counted = tuple(rng.integers(0, 2, 3) for _ in range(2))
    factors.append(CountConstraint((3, 2), (3, 3), {"counted": counted, "low": 0, "high": 1}, 4))
    problem = Problem(("a", "b", "c", "d"), [3] * 4, ("p", "q"), [0, 1, 0, 1], tuple(factors))
    merged = merge_equal_variables(problem)
    assert merged.problem.variables == ("a", "c") and merged.removed.merged == 2
    assert best(merged.problem) == best(problem)
    for values in product(range(3), repeat=2):
        restored = merged.restore(np.array(values))
        assert problem.evaluate(restored) == merged.problem.evaluate(np.array(values))


def test_equal_hard_tables_over_one_scope_become_one():
    apart = np.where(np.eye(3, dtype=bool), -np.inf, 0)
    factors = (Factor.of((0, 1), SAME), Factor.of((0, 2), apart), Factor.of((1, 2), apart))
    merged = merge_equal_variables(Problem(("a", "b", "c"), [3] * 3, ("p",), [0] * 3, factors))
    assert [factor.scope for factor in merged.problem.factors] == [(0, 1)]
    assert merge_equal_variables(merged.problem) is None
