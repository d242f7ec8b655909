"""Each step of presolve keeps what it promises: supported values, an optimum, the utilities of what remains."""

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_problem, with_other_representations

from dmcmc import Factor, Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.presolve.dominance import enforce_arc_consistency, remove_dominated
from dmcmc.inference.presolve.presolve import merge_equivalent_variables, presolve, restrict_domains
from dmcmc.inference.presolve.small_buckets import eliminate_small
from dmcmc.inference.presolve.working_problem import Infeasible, PresolveLimit, WorkingProblem

TABLE_BYTES = 1 << 20
STEPS = {
    "arc consistency": enforce_arc_consistency,
    "dominance": remove_dominated,
    "elimination": eliminate_small,
    "merging": merge_equivalent_variables,
}


@st.composite
def problems(draw, agents=1):
    """Draw problems of up to 5 variables: any share of forbidden entries, perhaps two variables that are equivalent."""
    hard, magnitude = draw(st.sampled_from([0.0, 0.3, 0.6])), draw(st.sampled_from([1, 20]))
    seed, floats = draw(st.integers(0, 10**6)), draw(st.booleans())
    problem = random_problem(seed, 5, agents, 3, 6, 3, magnitude, hard, floats)
    pairs = [(u, v) for v, d in enumerate(problem.domains) for u in range(v) if problem.domains[u] == d]
    if pairs and draw(st.booleans()):
        scope = draw(st.sampled_from(pairs))
        size = int(problem.domains[scope[0]])
        table = np.full((size, size), -np.inf)
        table[range(size), draw(st.permutations(range(size)))] = 0.0
        problem = replace(problem, factors=(*problem.factors, Factor.of(scope, table)))
    return problem


def working_on(problem):
    """Return the working problem of a problem; None if creating it proves infeasibility."""
    try:
        return WorkingProblem.of(problem, PresolveLimit())
    except Infeasible:
        return None


def assignments(problem):
    """Return the utility of each assignment."""
    return {values: naive.utility(problem, values) for values in product(*map(range, problem.domains.tolist()))}


def best_of_working(working):
    """Return the best utility of the remaining values and tables, and the restored assignment that attains it."""
    variables, best = working.open(), (-naive.INFINITY, None)
    for chosen in product(*(range(len(working.remaining[v])) for v in variables)):
        index, total = dict(zip(variables, chosen, strict=True)), 0
        for scope, table in working.tables.items():
            entry = table[tuple(index[v] for v in scope)]
            total += -naive.INFINITY if forbidden(entry) else entry.item()
        if best[1] is None or total > best[0]:
            best = total, working.restore(index)
    return best


@pytest.mark.parametrize("name", STEPS)
@settings(max_examples=60)
@given(problem=problems(agents=3))
def test_every_step_keeps_the_optimum_and_restores_an_assignment_that_attains_it(name, problem):
    utilities = assignments(problem)
    optimum = max(utilities.values())
    working = working_on(problem)
    if working is None:
        assert optimum == -naive.INFINITY
        return
    cells, open_before = sum(table.size for table in working.tables.values()), len(working.open())
    try:
        removed = STEPS[name](working)
    except Infeasible:
        assert optimum == -naive.INFINITY
        return
    found, values = best_of_working(working)
    assert found == pytest.approx(optimum, abs=1e-9)
    assert utilities[tuple(values.tolist())] == pytest.approx(optimum, abs=1e-9)
    assert sum(table.size for table in working.tables.values()) <= cells and len(working.open()) <= open_before
    if name in ("arc consistency", "dominance"):
        assert removed == sum(problem.domains.tolist()) - sum(map(len, working.remaining))


@settings(max_examples=80)
@given(problems())
def test_arc_consistency_removes_no_value_of_an_allowed_assignment_and_leaves_only_supported_ones(problem):
    allowed = [values for values, utility in assignments(problem).items() if utility > -naive.INFINITY]
    working = working_on(problem)
    if working is None:
        assert not allowed
        return
    try:
        enforce_arc_consistency(working)
    except Infeasible:
        assert not allowed
        return
    for v, remaining in enumerate(working.remaining):
        assert {values[v] for values in allowed} <= set(remaining.tolist())
    for scope, table in working.tables.items():
        for axis in range(len(scope)):
            other_axes = tuple(i for i in range(len(scope)) if i != axis)
            assert (~forbidden(table)).any(axis=other_axes).all()
    before = [remaining.tolist() for remaining in working.remaining]
    assert enforce_arc_consistency(working) == 0
    assert [remaining.tolist() for remaining in working.remaining] == before


@settings(max_examples=80)
@given(problems())
def test_the_best_value_of_every_dominated_one_is_at_least_as_good_in_every_context(problem):
    working, utilities = working_on(problem), assignments(problem)
    if working is None:
        return
    remove_dominated(working)
    remaining = [set(values.tolist()) for values in working.remaining]
    for values, utility in utilities.items():
        if any(x not in left for x, left in zip(values, remaining, strict=True)):
            best = max(
                u for other, u in utilities.items() if all(x in r for x, r in zip(other, remaining, strict=True))
            )
            assert best >= utility - 1e-9
    assert all(remaining)


@settings(max_examples=80)
@given(problems(), st.data())
def test_a_restricted_problem_has_the_utilities_of_the_remaining_values_in_every_representation(problem, data):
    problem = with_other_representations(problem, np.random.default_rng(data.draw(st.integers(0, 2**32))))
    remaining = [np.array(sorted(data.draw(st.sets(st.integers(0, int(d) - 1), min_size=1)))) for d in problem.domains]
    restricted = restrict_domains(problem, remaining)
    assert restricted.domains.tolist() == [len(values) for values in remaining]
    for before, after in zip(problem.factors, restricted.factors, strict=True):
        assert after.scope == before.scope and type(after) is type(before)
        expected = (
            naive.utilities(before.table)[np.ix_(*(remaining[v] for v in before.scope))]
            if before.scope
            else naive.utilities(before.table)
        )
        assert naive.same_numbers(naive.utilities(after.table), expected)
    for labels, values, name in zip(restricted.labels, remaining, problem.variables, strict=True):
        assert (labels or tuple(range(len(values)))) == tuple(values.tolist()), name


@settings(max_examples=40)
@given(problems(agents=3), st.integers(0, 12))
def test_any_limit_on_the_work_keeps_the_optimum_and_more_work_removes_no_less(problem, operations):
    optimum, removed = max(assignments(problem).values()), []
    for seconds in (0.0, operations * 4e-5, np.inf):
        limit = PresolveLimit(seconds)
        found = presolve(problem, TABLE_BYTES, limit)
        if found.infeasible:
            assert optimum == -naive.INFINITY
            return
        assert max(assignments(found.problem).values()) == pytest.approx(optimum, abs=1e-9)
        removed.append(problem.n_variables - found.problem.n_variables)
        again = presolve(problem, TABLE_BYTES, PresolveLimit(seconds))
        assert again.removed == replace(found.removed, seconds=again.removed.seconds)  # the same on every rank
    assert removed[0] <= removed[2] and removed[1] <= removed[2]


@settings(max_examples=60)
@given(problems(agents=3))
def test_presolving_again_composes_and_removes_nothing_else_that_the_first_pass_could_remove(problem):
    first = presolve(problem, TABLE_BYTES)
    if first.infeasible:
        return
    second = presolve(first.problem, TABLE_BYTES)
    both = first.then(second)
    optimum = max(assignments(problem).values())
    assert not second.infeasible or optimum == -naive.INFINITY
    utilities = assignments(both.problem)
    values = max(utilities, key=utilities.__getitem__)
    restored = both.restore(np.array(values, dtype=np.int64))
    assert naive.utility(problem, restored.tolist()) == pytest.approx(optimum, abs=1e-9)
    assert both.removed.fixed == first.removed.fixed + second.removed.fixed
    assert bool(both.removed) == (bool(first.removed) or bool(second.removed))


@given(st.integers(1, 4), st.data())
def test_integers_at_the_limit_of_overflow_are_presolved_exactly(count, data):
    edge, domains = (2**62 - 1) // count, np.array([3, 2, 2])
    entry = st.sampled_from([np.iinfo(np.int64).min, edge, -edge, 0, 1])
    factors = []
    for _ in range(count):
        scope = data.draw(st.sampled_from([(0,), (0, 1), (2, 0), (1, 2)]))
        shape = domains[list(scope)].tolist()
        values = data.draw(st.lists(entry, min_size=prod(shape), max_size=prod(shape)))
        factors.append(Factor(scope, np.array(values, dtype=np.int64).reshape(shape)))
    problem = Problem(("x", "y", "z"), domains, ("a",), np.zeros(3, dtype=np.int64), tuple(factors))
    found, optimum = presolve(problem, TABLE_BYTES), naive.optimum(problem, exact=True)
    if found.infeasible:
        assert optimum == -naive.INFINITY
    else:
        assert naive.optimum(found.problem, exact=True) == optimum


def test_utilities_that_floats_would_round_decide_between_values():
    """As floats, value 0 of x would dominate value 1, which is better by one."""
    large = 2**55
    factors = [Factor((0,), np.array([-large, 0])), Factor((0, 1), np.array([[large, large + 50], [1, -50]]))]
    problem = Problem(("x", "y"), [2, 2], ("a",), [0, 0], (*factors, Factor((1,), np.array([1000, 0]))))
    reduction = presolve(problem, TABLE_BYTES)
    assert reduction.restore(np.zeros(0, dtype=np.int64)).tolist() == [1, 0]
    assert reduction.problem.evaluate([]).objective == 1001
