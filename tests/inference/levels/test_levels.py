"""Objectives in levels: the weighted sum compares assignments lexicographically, and each level has a sound bound."""

from itertools import product

import numpy as np
import pytest

import dmcmc
from dmcmc import Problem
from dmcmc.inference.building.levels import level_values
from dmcmc.inference.runtime.errors import ProblemError


def drawn(seed, sense="max"):
    """Return a builder with three levels, and the tables of each level."""
    rng = np.random.default_rng(seed)
    build = Problem.build(sense=sense, levels=["first", "second", "third"])
    names = [build.variable(f"x{i}", 3) for i in range(4)]
    tables = {}
    for name in build.levels:
        build.level(name)
        tables[name] = [((i, i + 1), rng.integers(-3, 4, (3, 3))) for i in range(3)]
        for (i, j), table in tables[name]:
            build.factor((names[i], names[j]), table)
    build.level("second").at_most(1, names, [2], cost=2)
    return build, tables


def by_level(tables, values, sense):
    """Return the objective of each level by the definition."""
    found = [sum(int(table[values[i], values[j]]) for (i, j), table in level) for level in tables.values()]
    found[1] += (-2 if sense == "max" else 2) * max(0, values.count(2) - 1)
    return found


@pytest.mark.parametrize("sense", ["max", "min"])
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_the_lexicographic_one_and_bounds_are_tight(seed, sense):
    build, tables = drawn(seed, sense)
    problem = build.problem()
    choose = max if sense == "max" else min
    best = choose(by_level(tables, values, sense) for values in product(range(3), repeat=4))
    for values in product(range(3), repeat=4):
        levels = level_values(problem, np.array(values), None)
        assert [level.objective for level in levels] == by_level(tables, values, sense)
        assert all(level.bound is None for level in levels)
    result = dmcmc.solve(problem, method="exact")
    assert [(level.objective, level.bound) for level in result.levels] == [(value, value) for value in best]
    assert [level.name for level in result.levels] == ["first", "second", "third"]


@pytest.mark.parametrize("slack", [0, 1, 30, 10**6])
def test_a_loose_bound_of_the_sum_gives_sound_bounds_of_the_levels(slack):
    build, tables = drawn(5)
    problem = build.problem()
    best = dmcmc.solve(problem, method="exact")
    top = best.levels[0].objective
    for values in product(range(3), repeat=4):
        found = level_values(problem, np.array(values), best.objective + slack)
        assert found[0].bound >= top
        if found[1].bound is not None:  # the first level is proven
            assert found[0].objective == found[0].bound == top
            assert found[1].bound >= best.levels[1].objective
    assert tables


def test_broken_hard_constraints_belong_to_their_level():
    build = Problem.build(levels=["rules", "wishes"])
    first, second = build.variable("a", 2), build.variable("b", 2)
    build.level("rules").all_different([first, second]).level("wishes").factor(first, [0, 3])
    found = level_values(build.problem(), np.array([1, 1]), None)
    assert [(level.objective, level.violation) for level in found] == [(None, 1), (3, 0)]


def test_levels_need_integers_and_known_names():
    build = Problem.build(levels=["a", "b"])
    name = build.variable("x", 2)
    with pytest.raises(ProblemError, match="level 'c' does not exist"):
        build.level("c")
    with pytest.raises(ProblemError, match="no integer"):
        build.level("b").factor(name, [0.5, 1]).problem()


@pytest.mark.parametrize("sense", ["max", "min"])
@pytest.mark.parametrize("seed", range(4))
def test_levels_that_do_not_fit_are_solved_one_after_the_other(seed, sense):
    rng, scales = np.random.default_rng(seed), (2**45, 2**12, 2**30)
    build = Problem.build(sense=sense, levels=["first", "second", "third"])
    names = [build.variable(f"x{i}", 3) for i in range(4)]
    sign = 1 if sense == "max" else -1
    tables = {}
    for name, scale in zip(build.levels, scales, strict=True):
        build.level(name)
        # The first level can be satisfied in several ways; with 2^30 in the third one the sums need 90 bits.
        losses = [scale * rng.integers(0, 2, (3, 3)) * rng.integers(0, 2, (3, 3)) for _ in range(3)]
        if name == "first":
            for table in losses:
                table[0, :2] = table[1, 0] = 0
        tables[name] = [((i, i + 1), -sign * table) for i, table in enumerate(losses)]
        for (i, j), table in tables[name]:
            build.factor((names[i], names[j]), table)
    build.level("second").at_most(1, names, [2], cost=2).level("third").at_most(2, names, [0])
    problem = build.problem()
    choose = max if sense == "max" else min
    allowed = [values for values in product(range(3), repeat=4) if values.count(0) <= 2]
    best = choose(by_level(tables, values, sense) for values in allowed)
    result = dmcmc.solve(problem, method="exact")
    assert [(level.objective, level.bound) for level in result.levels] == [(value, value) for value in best]
    assert result.status == "optimal" and result.violation == 0
    assert by_level(tables, tuple(problem.values_of(result.assignment)), sense) == best


def test_a_level_without_a_feasible_assignment_and_levels_that_fit_in_no_way():
    build = Problem.build(levels=["a", "b"])
    names = [build.variable(f"x{i}", 2) for i in range(3)]
    build.factor(names[0], [0, 2**40]).level("b").factor(names[0], [2**40, 0]).all_different(names)
    assert dmcmc.solve(build, method="exact").status == "infeasible"
    build = Problem.build(levels=["a", "b"])
    for name in ("x", "y"):
        build.variable(name, 2)
    build.factor(("x", "y"), [[0, 2**40], [2**41, 2**40]]).factor("x", [2**42, 0])
    build.level("b").factor("x", [2**40, 0])
    with pytest.raises(ProblemError, match="more than 60 bits"):
        dmcmc.solve(build, method="exact")
