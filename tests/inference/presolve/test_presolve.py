"""Test that presolve keeps the optimum: brute force before and after, on every representation of factors."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.presolve.presolve import presolve
from dmcmc.inference.presolve.working_problem import PresolveLimit
from dmcmc.inference.runtime.deadline import Deadline

HARD = -np.inf
TABLE_BYTES = 1 << 20


def utility_of(problem, values):
    """Return the internal utility (maximised); −∞ if something is forbidden."""
    found = problem.evaluate(np.array(values, dtype=np.int64))
    return HARD if found.violation else (1 if problem.sense == "max" else -1) * found.objective


def best(problem):
    return max((utility_of(problem, values) for values in product(*map(range, problem.domains.tolist()))), default=0)


@st.composite
def problems(draw):
    n = draw(st.integers(1, 5))
    domains = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    whole, sense = draw(st.booleans()), draw(st.sampled_from(["max", "min"]))
    numbers = st.integers(-4, 4) if whole else st.sampled_from([-1.5, -0.1, 0.0, 0.1, 0.25, 1e9])
    forbids = -np.inf if sense == "max" else np.inf
    entries = st.one_of(numbers, numbers, st.just(forbids))
    factors = []
    for _ in range(draw(st.integers(0, 6))):
        scope = draw(st.lists(st.integers(0, n - 1), max_size=3, unique=True))
        shape = [domains[v] for v in scope]
        kind = draw(st.sampled_from(["dense", "sparse", "automaton"]))
        if kind == "dense" or not scope:
            size = int(np.prod(shape, dtype=int))
            table = draw(st.lists(entries, min_size=size, max_size=size))
            factors.append(Factor.of(scope, np.reshape(table, shape), sense))
        elif kind == "sparse":
            rows = draw(st.lists(st.tuples(*(st.integers(0, d - 1) for d in shape)), max_size=4, unique=True))
            costs = [draw(entries) for _ in rows]
            factors.append(tabulate(scope, shape, rows, np.array(costs, dtype=float), draw(entries), sense))
        else:
            most = draw(st.integers(0, 2))

            def step(position, count, value, most=most):
                return count + (value > 0), 0 if count + (value > 0) <= most else None

            factors.append(unroll(scope, shape, 0, step, sense))
    agents = draw(st.integers(1, 2))
    owner = draw(st.lists(st.integers(0, agents - 1), min_size=n, max_size=n))
    names = tuple(f"x{i}" for i in range(n))
    return Problem(names, domains, tuple(f"a{i}" for i in range(agents)), owner, tuple(factors), sense=sense)


@st.composite
def with_equivalent_variables(draw):
    """Draw a problem in which some variables are equivalent: their values correspond one to one."""
    original = draw(problems())
    joined = list(original.factors)
    for _ in range(draw(st.integers(0, 3))):
        pairs = [p for p in permutations(range(original.n_variables), 2) if len({*original.domains[list(p)]}) == 1]
        if pairs:
            scope = draw(st.sampled_from(pairs))
            size = int(original.domains[scope[0]])
            table = np.full((size, size), HARD)
            table[range(size), draw(st.permutations(range(size)))] = draw(st.integers(-3, 3))
            joined.append(Factor.of(scope, table if original.sense == "max" else -table, original.sense))
    return replace(original, factors=tuple(joined))


@given(with_equivalent_variables(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_the_optimum_is_kept(original, merge):
    reduction = presolve(original, TABLE_BYTES, merge=merge)
    optimum = best(original)
    if reduction.infeasible:
        assert optimum == HARD
        return
    presolved = reduction.problem
    assert (presolved.agents, presolved.sense, presolved.name) == (original.agents, original.sense, original.name)
    assert presolved.n_variables <= original.n_variables
    assert best(presolved) == pytest.approx(optimum, rel=1e-12, abs=1e-12)
    for values in product(*map(range, presolved.domains.tolist())):
        restored = reduction.restore(np.array(values, dtype=np.int64))
        if (found := utility_of(presolved, values)) > HARD:
            assert utility_of(original, restored) == pytest.approx(found, rel=1e-12, abs=1e-12)


def chain(n, d, table, domains=None):
    factors = [Factor.of((i, i + 1), table) for i in range(n - 1)]
    return Problem(tuple(map(str, range(n))), domains or [d] * n, ("a",), [0] * n, tuple(factors))


def test_equivalent_variables_of_other_agents_are_merged_on_request():
    rng = np.random.default_rng(5)
    same = np.where(np.eye(9, dtype=bool), 0, HARD)
    clash = np.where(np.eye(9, dtype=bool), HARD, 0)
    names = ("a: x", "b: x", "a: y", "b: y", "b: z", "c: z", "c: x", "c: y")
    scopes = [(0, 1), (2, 3), (4, 5), (1, 6), (6, 0), (3, 7)], [(0, 2), (1, 3), (1, 4), (3, 4), (5, 6), (5, 7)]
    factors = [Factor.of(s, t) for group, t in zip(scopes, (same, clash), strict=True) for s in group]
    factors += [Factor.of((v,), rng.integers(0, 99, 9)) for v in range(8)]
    asked = Problem(names, [9] * 8, ("a", "b", "c"), [0, 1, 0, 1, 1, 2, 2, 2], tuple(factors))
    merged = presolve(asked, TABLE_BYTES, merge=True)
    assert merged.removed.merged == 5
    assert not presolve(asked, TABLE_BYTES).removed.merged
    assert merged.problem.variables == ("a: x", "a: y", "b: z")
    restored = merged.restore(np.array([0, 0, 0]))
    assert len({restored[v] for v in (0, 1, 6)}) == 1


def test_presolve_solves_a_tree():
    rng = np.random.default_rng(3)
    factors = [Factor.of((rng.integers(i), i), rng.integers(-9, 9, (3, 3))) for i in range(1, 8)]
    problem = Problem(tuple("abcdefgh"), [3] * 8, ("me",), [0] * 8, tuple(factors))
    reduction = presolve(problem, TABLE_BYTES)
    assert (reduction.problem.n_variables, len(reduction.problem.factors)) == (0, 1)
    values = reduction.restore(np.zeros(0, dtype=np.int64))
    assert utility_of(problem, values) == best(problem) == reduction.problem.evaluate([]).objective
    assert reduction.removed.eliminated + reduction.removed.fixed == 8


def test_variables_shared_with_other_agents_are_not_eliminated():
    rng = np.random.default_rng(3)
    factors = (Factor.of((0, 1), rng.integers(-9, 9, (3, 3))), Factor.of((1, 2), rng.integers(-9, 9, (3, 3))))
    problem = Problem(tuple("abc"), [3] * 3, ("me", "you"), [0, 0, 1], factors)
    small = presolve(problem, TABLE_BYTES).problem
    assert set(small.variables) <= {"b", "c"}
    assert best(small) == best(problem)


def test_propagation_alone_fixes_a_latin_square():
    """All rows and columns are all-different, as hard automata over nine variables; four clues determine the square."""
    n, clues = 3, {(0, 0): 0, (0, 1): 1, (1, 0): 1}
    factors = [Factor.of((r * n + c,), [0 if x == v else HARD for x in range(n)]) for (r, c), v in clues.items()]
    lines = [[r * n + c for c in range(n)] for r in range(n)] + [[r * n + c for r in range(n)] for c in range(n)]
    for line in lines:
        for value in range(n):

            def once(position, seen, x, value=value):
                count = seen + (x == value)
                return count, None if count > 1 or (position == n - 1 and not count) else 0

            factors.append(unroll(line, [n] * n, 0, once))
    problem = Problem(tuple(map(str, range(9))), [n] * 9, ("a",), [0] * 9, tuple(factors))
    reduction = presolve(problem, TABLE_BYTES)
    assert reduction.problem.n_variables == 0
    assert reduction.restore(np.zeros(0, dtype=np.int64)).tolist() == [0, 1, 2, 1, 2, 0, 2, 0, 1]
    assert reduction.removed.inconsistent


def test_a_contradiction_proves_infeasibility():
    different = np.where(np.eye(2, dtype=bool), HARD, 0)
    triangle = tuple(Factor.of(pair, different) for pair in ((0, 1), (1, 2)))
    equal = Factor.of((0, 2), np.where(np.eye(2, dtype=bool), HARD, 0))
    first = Factor.of((0,), [0, HARD])
    problem = Problem(tuple("abc"), [2] * 3, ("me",), [0] * 3, (*triangle, equal, first))
    assert presolve(problem, TABLE_BYTES).infeasible
    assert presolve(Problem((), [], ("me",), [], (Factor.of((), HARD),)), TABLE_BYTES).infeasible


def test_equal_values_are_not_both_removed():
    problem = chain(2, 3, np.zeros((3, 3), dtype=int))
    reduction = presolve(problem, TABLE_BYTES)
    assert reduction.problem.n_variables == 0
    assert utility_of(problem, reduction.restore(np.zeros(0, dtype=np.int64))) == 0


def test_a_problem_that_could_overflow_or_has_no_time_is_unchanged():
    huge = chain(3, 2, np.full((2, 2), 2**61))
    assert presolve(huge, TABLE_BYTES).problem is huge
    rng = np.random.default_rng(1)
    problem = chain(4, 3, rng.integers(-9, 9, (3, 3)))
    late = presolve(problem, TABLE_BYTES, PresolveLimit(stop=Deadline(until=-np.inf)))
    assert best(late.problem) == best(problem)
    assert late.removed.eliminated == 0
