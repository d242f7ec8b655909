"""Partition functions are sums over all assignments, bounds never lie below them, and counts are exact integers."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_problem, with_other_representations

from dmcmc import Factor, Problem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.marginals.counting import count_solutions, log_partition
from dmcmc.inference.minibuckets.plan import least_z
from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.tuning import LONG_BUDGET

MEMORY = 1 << 24


@st.composite
def problems(draw):
    """Draw problems of up to 5 variables in both senses: integers or floats, any share of forbidden entries."""
    return random_problem(
        draw(st.integers(0, 10**6)),
        variables=5,
        domain=3,
        factors=7,
        magnitude=draw(st.sampled_from([2, 30])),
        hard=draw(st.sampled_from([0.0, 0.3, 0.8])),
        floats=draw(st.booleans()),
        sense=draw(st.sampled_from(["max", "min"])),
    )


def utilities(problem):
    return [naive.utility(problem, values) for values in product(*map(range, problem.domains.tolist()))]


def log_sum(problem):
    """Return ln Σ exp of the utilities of all assignments."""
    found, top = utilities(problem), max(utilities(problem))
    return -math.inf if top == -math.inf else float(top) + math.log(math.fsum(math.exp(u - top) for u in found))


@settings(max_examples=80)
@given(problems())
def test_a_partition_function_is_the_sum_over_all_assignments(problem):
    found = log_partition(problem, MEMORY)
    assert found.ln == pytest.approx(log_sum(problem), abs=1e-9) and found.z is None


@settings(max_examples=80)
@given(problems())
def test_mini_buckets_never_lie_below_the_sum_and_are_exact_if_no_bucket_is_split(problem):
    exact, scopes = log_sum(problem), [f.scope for f in problem.factors]
    order = best_order(scopes, problem.domains, range(problem.n_variables), budget=LONG_BUDGET).variables
    least = least_z(scopes, order)
    for z in {least, least + 1, max(least, log_partition(problem, MEMORY).width)}:
        found = log_partition(problem, MEMORY, mini_buckets=True, z=z)
        assert found.ln >= exact - 1e-9 and found.width <= z
        if found.z is None:  # the last z is always exact
            assert found.ln == pytest.approx(exact, abs=1e-9)
        elif exact > -math.inf:
            assert found.ln >= exact  # a bound covers its rounding errors
    assert log_partition(problem, MEMORY, mini_buckets=True, z=problem.n_variables + least).z is None


@settings(max_examples=40)
@given(problems())
def test_the_memory_chooses_z_and_is_an_upper_bound_on_what_is_taken(problem):
    exact, found = log_sum(problem), []
    for memory in (MEMORY, 2000, 400, 0):
        try:
            found.append(log_partition(problem, memory, mini_buckets=True).ln)
        except ResourceError as error:
            assert memory < MEMORY and "budget.memory" in str(error)
    assert all(ln >= exact - 1e-9 for ln in found)
    assert found[0] == pytest.approx(exact, abs=1e-9)


@settings(max_examples=80)
@given(problems(), st.integers(0, 2**32))
def test_a_count_is_the_number_of_allowed_assignments_in_every_representation(problem, seed):
    other = with_other_representations(problem, np.random.default_rng(seed))
    dense = replace(other, factors=tuple(Factor(f.scope, f.table) for f in other.factors))
    expected = sum(u > -math.inf for u in utilities(dense))
    assert count_solutions(other, MEMORY).count == count_solutions(dense, MEMORY).count == expected


@settings(max_examples=40)
@given(problems())
def test_the_count_is_the_partition_function_of_a_problem_without_utilities(problem):
    factors = [Factor(f.scope, np.where(forbidden(f.table), -np.inf, 0.0)) for f in problem.factors]
    count = count_solutions(problem, MEMORY).count
    ln = log_partition(replace(problem, factors=tuple(factors)), MEMORY).ln
    assert ln == pytest.approx(math.log(count) if count else -math.inf)


def colouring(n, colours, edges):
    """Return the problem of colouring the ends of each edge differently."""
    different = np.where(np.eye(colours, dtype=np.bool_), -np.inf, 0.0)
    builder = Problem.build()
    names = [builder.variable(f"v{i}", colours) for i in range(n)]
    for i, j in edges:
        builder.factor((names[i], names[j]), different)
    return builder.problem()


@pytest.mark.parametrize(("n", "colours"), [(3, 2), (7, 3), (60, 3), (150, 5), (40, 16)])
def test_colourings_are_counted_exactly_however_many_there_are(n, colours):
    path = [(i, i + 1) for i in range(n - 1)]
    assert count_solutions(colouring(n, colours, path), MEMORY).count == colours * (colours - 1) ** (n - 1)
    found = count_solutions(colouring(n, colours, [*path, (n - 1, 0)]), MEMORY)
    assert found.count == (colours - 1) ** n + (-1) ** n * (colours - 1)
    assert found.passes >= math.log2(max(1, found.count)) // 64


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(0, 20))
@settings(max_examples=40)
def test_independent_copies_multiply_and_unconstrained_variables_multiply_by_their_domains(seed, copies, unconstrained):
    problem = random_problem(seed, variables=3, domain=4, factors=4, hard=0.3)
    n, single = problem.n_variables, count_solutions(problem, MEMORY).count
    factors = tuple(Factor(tuple(v + c * n for v in f.scope), f.table) for c in range(copies) for f in problem.factors)
    domains = np.concatenate([np.tile(problem.domains, copies), np.full(unconstrained, 7)]).astype(np.int64)
    names = tuple(f"v{i}" for i in range(domains.size))
    large = replace(
        problem,
        variables=names,
        domains=domains,
        factors=factors,
        owner=np.zeros(domains.size, dtype=np.int64),
        labels=(),
    )
    assert count_solutions(large, MEMORY).count == single**copies * 7**unconstrained


@pytest.mark.parametrize(("n", "most", "memory"), [(12, 3, 20_000), (40, 5, MEMORY), (90, 30, MEMORY)])
def test_automata_whose_tables_do_not_fit_the_memory_are_summed_and_counted_exactly(n, most, memory):
    """At most some of n binary variables are 1, each of which contributes 1 to the utility."""
    automaton = unroll(range(n), [2] * n, 0, lambda place, ones, x: (ones + x, None if ones + x > most else float(x)))
    names, owner = tuple(f"v{i}" for i in range(n)), np.zeros(n, dtype=np.int64)
    problem = Problem(names, np.full(n, 2), ("a",), owner, (automaton,))
    assert count_solutions(problem, memory).count == sum(math.comb(n, ones) for ones in range(most + 1))
    expected = math.log(sum(math.comb(n, ones) * math.exp(ones) for ones in range(most + 1)))
    assert log_partition(problem, memory).ln == pytest.approx(expected, rel=1e-12)
    assert log_partition(problem, memory, mini_buckets=True).ln >= expected - 1e-9


def test_tables_that_exceed_the_memory_and_expired_deadlines_are_refused():
    problem = colouring(8, 4, [(i, j) for j in range(8) for i in range(j)])
    assert count_solutions(problem, MEMORY).count == 0
    for answer in (count_solutions, log_partition):
        with pytest.raises(ResourceError, match=r"budget\.memory"):
            answer(problem, 10**4)
        with pytest.raises(OutOfTime):
            answer(problem, MEMORY, Backend(stop=Deadline(0.0)))
