"""Merging equal variables keeps the optimum and all kinds of factors, and restores assignments."""

from itertools import product

import numpy as np
import pytest

from dmcmc import Factor, Problem
from dmcmc.calendars.file.person_rules import bounded_sum
from dmcmc.inference.constraints.count import CountConstraint
from dmcmc.inference.model.automaton import AutomatonFactor, unroll
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


@pytest.mark.parametrize("seed", range(10))
def test_a_linear_constraint_over_equal_variables_adds_their_weights(seed):
    rng = np.random.default_rng(seed)
    weights, bounds = [rng.permutation([-2, 0, 2]) for _ in range(4)], [(None, 1), (0, None), (-1, 2)][seed % 3]
    linear = bounded_sum([0, 2, 1, 3], weights, *bounds, "sum")
    factors = [Factor.of((0, 1), SAME), *(Factor.of((v,), rng.integers(-9, 9, 3)) for v in range(4)), linear]
    problem = Problem(tuple("abcd"), [3] * 4, ("p",), [0] * 4, tuple(factors))
    merged = merge_equal_variables(problem).problem
    assert merged.variables == ("a", "c", "d") and isinstance(merged.factors[-1], AutomatonFactor)
    assert merged.factors[-1].sum_bounds.low == bounds[0] and best(merged) == best(problem)


def test_a_long_linear_constraint_over_equal_variables_is_not_written_out():
    n, size = 30, 40
    linear = bounded_sum(range(n), [(np.arange(size) > 0).astype(np.int64)] * n, 2, None, "different")
    same = np.where(np.eye(size, dtype=bool), 0, -np.inf)
    problem = Problem([f"x{i}" for i in range(n)], [size] * n, ("p",), [0] * n, (Factor.of((0, n - 1), same), linear))
    merged = merge_equal_variables(problem).problem
    assert merged.n_variables == n - 1
    assert merged.evaluate([1] + [0] * (n - 2)).violation == 0 and merged.evaluate([0, 1] + [0] * (n - 3)).violation


def test_variables_of_one_large_automaton_stay_apart_and_others_are_merged():
    n, size = 12, 40
    automaton = unroll(range(n), [size] * n, 0, lambda _, state, value: ((state + value) % 3, value))
    same = np.where(np.eye(size, dtype=bool), 0, -np.inf)
    factors = [Factor.of((0, n - 1), same), Factor.of((3, n), same), automaton]
    problem = Problem([f"x{i}" for i in range(n + 1)], [size] * (n + 1), ("p",), [0] * (n + 1), tuple(factors))
    merged = merge_equal_variables(problem)
    assert merged.problem.variables == problem.variables[:n] and merged.removed.merged == 1
    values = np.arange(n) % 5
    assert merged.problem.evaluate(values) == problem.evaluate(merged.restore(values))
