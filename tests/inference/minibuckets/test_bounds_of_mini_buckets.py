"""Mini-bucket bounds fall with z on average, obey laws of the exact optimum, and report the size of their tables."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_problem

from dmcmc import Factor
from dmcmc.inference.elimination.plan import EliminationQuery
from dmcmc.inference.minibuckets.content_partition import eliminate_by_content
from dmcmc.inference.minibuckets.moment_matching import eliminate_matched
from dmcmc.inference.minibuckets.plan import (
    largest_fitting,
    least_z,
    plan_mini_buckets,
    plan_within,
    shares_variable,
    upper_bound_on_z,
)
from dmcmc.inference.minibuckets.plan_kernels import union_up_to
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.factor import choose_arithmetic

N = 6


@st.composite
def queries(draw, floats=None):
    """Draw queries that eliminate all variables, with tables of any density."""
    floats = draw(st.booleans()) if floats is None else floats
    problem = random_problem(draw(st.integers(0, 10**6)), N, 1, 3, 10, 3, 50, draw(st.sampled_from([0.0, 0.3])), floats)
    arithmetic = choose_arithmetic(problem.factors)
    order = draw(st.permutations(range(problem.n_variables)))
    return EliminationQuery([arithmetic.encode(f) for f in problem.factors], problem.domains, order, (), arithmetic)


def matched(query, z, partition, threads=1):
    """Return the elimination with moment matching for a partition by scope or by content."""
    if partition == "content":
        return eliminate_by_content(query, z, True, threads)
    plan = plan_mini_buckets(query.scopes, query.domains, query.order, (), z, shifts=True)
    return eliminate_matched(query.tables, plan, query.arithmetic, threads)


def bound(query, z, partition):
    """Return the upper bound on the optimum as a Python number."""
    done = matched(query, z, partition)
    total = done.elimination.total()
    return -naive.INFINITY if query.arithmetic.is_lowest(total) else total + done.margin


@pytest.mark.parametrize("partition", ["scope", "content"])
def test_the_gap_falls_on_average_with_every_step_of_z_and_ends_at_zero(partition):
    gaps, domains = np.zeros(N), np.full(N, 3)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        factors = [Factor.of(scope, rng.integers(-50, 51, (3, 3))) for scope in combinations(range(N), 2)]
        arithmetic = choose_arithmetic(factors)
        query = EliminationQuery([arithmetic.encode(f) for f in factors], domains, range(N), (), arithmetic)
        plain = naive.plain_tables(query.tables, arithmetic)
        optimum = naive.marginal(plain, range(N), [], domains).item()
        gaps += [bound(query, z, partition) - optimum for z in range(1, N + 1)]
    assert (np.diff(gaps[: N - 1]) < 0).all() and (gaps >= 0).all()
    assert gaps[N - 2] == gaps[N - 1] == 0  # z is the induced width


@settings(max_examples=60)
@given(queries(floats=False), st.integers(0, 2), st.integers(-30, 30), st.sampled_from(["scope", "content"]))
def test_a_constant_shifts_the_bound_and_forbidding_an_entry_keeps_it_a_bound(query, extra, constant, partition):
    z = least_z(query.scopes, query.order) + extra
    before = bound(query, z, partition)
    with_constant = replace(
        query, tables=[*query.tables, EncodedTable((), np.full((), constant, dtype=query.arithmetic.dtype))]
    )
    assert bound(with_constant, z, partition) == before + constant
    if query.tables:
        scope, values = query.tables[0]
        forbidding = np.array(values)
        forbidding.flat[0] = query.arithmetic.lowest
        fewer = replace(query, tables=[EncodedTable(scope, forbidding), *query.tables[1:]])
        exact = naive.marginal(naive.plain_tables(fewer.tables, query.arithmetic), query.order, [], query.domains)
        assert bound(fewer, z, partition) >= exact.item()


@settings(max_examples=60)
@given(queries(), st.integers(0, 2), st.sampled_from(["scope", "content"]))
def test_no_entry_exceeds_the_magnitude_of_its_table_and_no_table_the_peak(query, extra, partition):
    done = matched(query, least_z(query.scopes, query.order) + extra, partition)
    plan, magnitudes = done.elimination.plan, np.asarray(done.magnitudes, dtype=float)
    peak, rounding = float(done.peak_magnitude), 1 + 1e-9
    for t in range(plan.tables):
        entries = naive.decoded(done.elimination.table(t).values, query.arithmetic).ravel()
        largest = max((abs(e) for e in entries if e > -naive.INFINITY), default=0)
        is_shift = len(query.tables) <= t < plan.tables - plan.buckets
        assert largest <= (peak if is_shift else magnitudes[t]) * rounding
    assert peak * rounding >= magnitudes[: len(query.tables)].sum() and peak * rounding >= magnitudes.max(initial=0)


@settings(max_examples=60)
@given(queries(), st.integers(0, 2))
def test_cost_shifts_change_no_sum_of_the_mini_buckets_of_a_variable(query, extra):
    z = least_z(query.scopes, query.order) + extra
    plan = plan_mini_buckets(query.scopes, query.domains, query.order, (), z, shifts=True)
    plain = plan_mini_buckets(query.scopes, query.domains, query.order, (), z)
    done = eliminate_matched(query.tables, plan, query.arithmetic)
    split = shares_variable(plan.program.variable)
    assert plan.tables - plain.tables == split.sum() == plan.tables - plan.buckets - len(query.tables)
    assert split.tolist() == [plan.program.variable.tolist().count(v) > 1 for v in plan.program.variable.tolist()]
    total = {}
    for t in range(len(query.tables), plan.tables - plan.buckets):  # the cost-shift tables
        ((v,), values) = done.elimination.table(t)
        total[v] = total.get(v, 0) + naive.decoded(values, query.arithmetic)
    for sums in total.values():
        assert set(sums.tolist()) <= {0, -naive.INFINITY}


@settings(max_examples=60)
@given(queries(), st.integers(0, 3000))
def test_the_upper_bound_on_z_and_the_chosen_plan_fit_the_number_of_entries(query, entries):
    scopes, domains, order = query.scopes, query.domains, list(query.order)
    limit = upper_bound_on_z(domains, order, entries)
    for z in range(limit + 1, len(order) + 1):  # every table over z variables is too large
        sizes = np.sort(domains[order])[:z]
        assert np.prod(sizes, dtype=float) > entries
    least = least_z(scopes, order)
    z, plan = plan_within(scopes, domains, order, (), entries)
    assert plan.entries <= entries or z == least
    for larger in range(z + 1, limit + 1):
        other = plan_mini_buckets(scopes, domains, order, (), larger)
        assert other.width == plan.width or other.entries > entries
    made = []
    found = largest_fitting(
        limit, least, entries, lambda z: made.append(z) or plan_mini_buckets(scopes, domains, order, (), z)
    )
    assert found[0] == z and made == sorted(set(made), reverse=True)


@given(
    st.lists(st.integers(0, 11), unique=True),
    st.lists(st.integers(0, 11), unique=True),
    st.integers(0, 12),
    st.permutations(range(12)),
)
def test_unions_of_scopes_are_sorted_and_stop_at_the_limit(left, right, z, order):
    rank, out = np.argsort(order), np.full(12, -1)
    left, right = (np.array(sorted(s, key=lambda v: rank[v]), dtype=np.int64) for s in (left, right))
    expected = sorted({*left.tolist(), *right.tolist()}, key=lambda v: rank[v])
    count = union_up_to(np.append(left, [99, 99]), left.size, right, rank, z, out)
    assert count == (len(expected) if len(expected) <= z else -1)
    assert count < 0 or out[:count].tolist() == expected


def test_a_factor_that_only_touches_kept_variables_is_part_of_the_result():
    factors = [Factor.of((0, 1), np.arange(4).reshape(2, 2)), Factor.of((1,), [5, 0])]
    arithmetic = choose_arithmetic(factors)
    query = EliminationQuery([arithmetic.encode(f) for f in factors], np.array([2, 2]), [0], [1], arithmetic)
    (table,) = eliminate_by_content(query, 1).elimination.remaining()
    assert table.values.tolist() == [7, 3]
