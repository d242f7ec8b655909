"""Moment matching: cost shifts add up to zero, bounds become tighter, and numbers never wrap."""

from fractions import Fraction

import numpy as np
import pytest
from support import naive
from support.problem_strategies import random_problem, random_table

from dmcmc import Factor
from dmcmc.inference import tuning
from dmcmc.inference.elimination.plan import EliminationQuery
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, eliminate_within
from dmcmc.inference.minibuckets import moment_matching as moment_matching
from dmcmc.inference.minibuckets.moment_matching import eliminate_matched, magnitude_limit_of, with_headroom
from dmcmc.inference.minibuckets.moment_matching_kernels import equalise_max_marginals, max_marginal
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.factor import choose_arithmetic

NUMBERS = {"int32": (100, False), "int64": (2**40, False), "float64": (1e3, True)}


def encoded(factors):
    arithmetic = choose_arithmetic(factors)
    return [arithmetic.encode(f) for f in factors], arithmetic


def random_factors(seed, magnitude, floats, hard, n=6):
    rng = np.random.default_rng(seed)
    domains = rng.integers(1, 5, n)
    scopes = [rng.permutation(n)[: rng.integers(1, 4)].tolist() for _ in range(rng.integers(4, 14))]
    return [Factor.of(s, random_table(rng, tuple(domains[s]), magnitude, hard, floats)) for s in scopes], domains


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("hard", [0.0, 0.4])
@pytest.mark.parametrize("z", [2, 5])
def test_a_max_marginal_is_the_maximum_over_the_separator(numbers, hard, z):
    for seed in range(15):
        factors, domains = random_factors(seed, *NUMBERS[numbers], hard)
        tables, arithmetic = encoded(factors)
        plan = plan_mini_buckets([f.scope for f in factors], domains, range(6), z=z, shifts=True)
        done = eliminate_matched(tables, plan, arithmetic).elimination
        lowest = arithmetic.dtype.type(arithmetic.lowest)
        for b in range(plan.buckets):
            v = int(plan.program.variable[b])
            found = naive.decoded(max_marginal(plan.program, done.arena, b, lowest), arithmetic)
            inputs = naive.plain_tables([done.table(t) for t in plan.inputs(b)], arithmetic)
            separator = list(plan.scope(plan.output(b)))
            expected = naive.marginal(inputs, separator, [v], domains)
            tolerance = 0.0 if arithmetic.exact else 1e-9 * float(arithmetic.total)
            assert naive.same_numbers(found, expected, tolerance)


@pytest.mark.parametrize("threads", [1, 3])
def test_large_mini_buckets_are_the_same_on_any_number_of_threads(threads, monkeypatch):
    factors, domains = random_factors(5, 100, False, 0.1)
    tables, arithmetic = encoded(factors)
    plan = plan_mini_buckets([f.scope for f in factors], domains, range(6), z=2, shifts=True)
    expected = eliminate_matched(tables, plan, arithmetic)
    monkeypatch.setattr(tuning, "MIN_PARALLEL_CELLS", 4)
    assert any(first < last for first, last in moment_matching._large_variables(plan))
    found = eliminate_matched(tables, plan, arithmetic, threads)
    assert found.elimination.arena.tobytes() == expected.elimination.arena.tobytes()
    assert (found.peak_magnitude, found.shifts) == (expected.peak_magnitude, expected.shifts)


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("count", [2, 3, 7])
def test_shifts_add_up_to_exactly_zero_and_equalise_the_marginals(numbers, count):
    magnitude, floats = NUMBERS[numbers]
    dtype = np.dtype(numbers)
    lowest = dtype.type(-np.inf) if floats else dtype.type(np.iinfo(dtype).min // 4)
    rng = np.random.default_rng(count)
    marginals = random_table(rng, (count, 200), magnitude, 0.0, floats).astype(dtype)
    marginals[rng.random(marginals.shape) < 0.1] = lowest
    shifts = np.zeros_like(marginals)
    largest = equalise_max_marginals(marginals, shifts, float(count * magnitude), lowest)
    for x in range(200):
        if (marginals[:, x] == lowest).any():
            assert (shifts[:, x] == lowest).all()
            continue
        exact = [Fraction(s.item()) for s in shifts[:, x]]
        assert sum(exact) == 0
        assert np.add.accumulate(shifts[:, x])[-1] == 0  # partial sums are exact too
        assert all(abs(s) <= bound.item() for s, bound in zip(exact, largest, strict=True))
    possible = (marginals != lowest).all(axis=0)
    after = marginals[:, possible].astype(object) + shifts[:, possible].astype(object)
    best = marginals[:, possible].astype(object).sum(axis=0).max()
    slack = 1e-9 * magnitude if floats else count
    assert best - slack <= after.max(axis=1).sum() <= best + slack  # the max-marginals now agree on the best value


@pytest.mark.parametrize("partition", ["scope", "content"])
@pytest.mark.parametrize("floats", [False, True])
def test_moment_matching_tightens_the_bound_on_average(partition, floats):
    gaps = {True: 0.0, False: 0.0}
    for seed in range(60):
        problem = random_problem(seed, 8, 1, 3, 16, 2, 50, 0.0, floats)
        tables, arithmetic = encoded(problem.factors)
        order = range(problem.n_variables)
        z = least_z([t.scope for t in tables], order)
        for matching in gaps:
            relaxation = Relaxation("mini-bucket", z, partition, matching)
            done = eliminate_within(EliminationQuery(tables, problem.domains, order, (), arithmetic), relaxation)
            gaps[matching] += done.elimination.total() - naive.optimum(problem)
    assert 0 <= gaps[True] < 0.7 * gaps[False]


def test_a_value_that_one_mini_bucket_forbids_is_forbidden_in_all():
    """The other mini-bucket would choose the value, which has utility 100 there but no feasible completion."""
    never = -naive.INFINITY
    factors = [Factor.of((0, 1), [[never, never], [1, 2]]), Factor.of((0, 2), [[100, 100], [3, 4]])]
    tables, arithmetic = encoded(factors)
    domains = np.full(3, 2)
    plan = plan_mini_buckets([(0, 1), (0, 2)], domains, range(3), z=1, shifts=True)
    assert eliminate_matched(tables, plan, arithmetic).elimination.total() == 6
    plain = eliminate_within(
        EliminationQuery(tables, domains, range(3), (), arithmetic), Relaxation("mini-bucket", 1, "scope", False)
    )
    assert plain.elimination.total() == 102


@pytest.mark.parametrize("edge", [2**28 - 1, 2**60 - 1, 2**61, 2**53 + 1])
@pytest.mark.parametrize("partition", ["scope", "content"])
def test_entries_at_the_edge_of_the_numbers_never_wrap(edge, partition):
    """The problem's entries use up the range of the numbers; only admissible shifts are made, the bound is valid."""
    for seed in range(40):
        problem = random_problem(seed, 6, 1, 3, 12, 2, 1, 0.0)
        rng = np.random.default_rng(seed)
        share = edge // max(1, len(problem.factors))
        factors = []
        for f in problem.factors:
            values = np.where(rng.random(f.table.shape) < 0.5, share, -share) - rng.integers(0, 3, f.table.shape)
            values = np.clip(values, -share, share)
            values = np.where(rng.random(f.table.shape) < 0.2, np.iinfo(np.int64).min, values)
            factors.append(Factor.of(f.scope, np.asarray(values, dtype=np.int64)))
        tables, arithmetic = encoded(factors)
        order = range(problem.n_variables)
        z = least_z([f.scope for f in factors], order)
        plain = [(f.scope, naive.utilities(f.table)) for f in factors]
        exact = naive.marginal(plain, order, [], problem.domains).item()
        relaxation = Relaxation("mini-bucket", z, partition, True)
        done = eliminate_within(EliminationQuery(tables, problem.domains, order, (), arithmetic), relaxation)
        total = done.elimination.total()
        bound = -naive.INFINITY if arithmetic.is_lowest(total) else arithmetic.outward(total, len(tables))
        bound += done.margin if done.margin else 0  # an integer stays an integer
        assert bound >= exact
        assert bound <= magnitude_limit_of(choose_arithmetic(factors)) or bound == -naive.INFINITY
        finite = naive.decoded(done.elimination.arena[: done.elimination.plan.entries], arithmetic).tolist()
        assert all(abs(e) <= magnitude_limit_of(arithmetic) for e in finite if e > -naive.INFINITY)


def test_shifts_beyond_the_magnitude_limit_are_omitted():
    domains = np.array([2, 2, 2])
    values = [[[90, -90], [-90, 90]], [[-90, 90], [90, -80]]]
    tables = [EncodedTable((0, v + 1), np.array(t, dtype=np.int64)) for v, t in enumerate(values)]
    arithmetic = Arithmetic(np.dtype(np.int64), int(np.iinfo(np.int64).min) // 4, 180)
    plan = plan_mini_buckets([(0, 1), (0, 2)], domains, range(3), z=1, shifts=True)
    generous = eliminate_matched(tables, plan, arithmetic, magnitude_limit=1000)
    narrow = eliminate_matched(tables, plan, arithmetic, magnitude_limit=180)
    assert (generous.shifts, generous.skipped) == (2, 0) or generous.peak_magnitude == 180
    assert narrow.peak_magnitude <= 180 and generous.peak_magnitude <= 1000
    tables[1] = EncodedTable((0, 2), np.array([[-90, -90], [90, 80]], dtype=np.int64))
    narrow = eliminate_matched(tables, plan, arithmetic, magnitude_limit=180)
    assert (narrow.shifts, narrow.skipped) in ((0, 2), (2, 0)) and narrow.peak_magnitude <= 180
    tables[0] = EncodedTable((0, 1), np.array([[90, 90], [-90, -90]], dtype=np.int64))
    narrow = eliminate_matched(tables, plan, arithmetic, magnitude_limit=180)
    generous = eliminate_matched(tables, plan, arithmetic, magnitude_limit=1000)
    assert (narrow.shifts, narrow.skipped, narrow.elimination.total()) == (0, 2, 180)
    assert (generous.shifts, generous.skipped, generous.elimination.total()) == (2, 0, 0)


def test_nearly_used_up_int32_is_replaced_by_int64():
    limit = magnitude_limit_of(Arithmetic(np.dtype(np.int32), -(2**29), 1))
    narrow = Arithmetic(np.dtype(np.int32), -(2**29), limit // 8)
    assert with_headroom(narrow) is narrow
    wide = with_headroom(Arithmetic(np.dtype(np.int32), -(2**29), limit // 4))
    assert (wide.dtype, wide.lowest, wide.total) == (np.int64, -(2**61), limit // 4)
    loose = Arithmetic(np.dtype(np.float64), -np.inf, 1e300)
    assert with_headroom(loose) is loose


def test_float_bounds_are_above_the_exact_sum_of_the_shifted_tables():
    """Terms of very different sizes cause rounding errors, which the margin must cover."""
    rounded = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        domains = np.full(6, 3)
        scopes = [(u, v) for u in range(6) for v in range(u)]
        tables = [EncodedTable(s, rng.uniform(-1, 1, (3, 3)) * 10.0 ** rng.integers(-12, 6)) for s in scopes]
        arithmetic = Arithmetic(np.dtype(np.float64), -np.inf, sum(float(np.abs(t.values).max()) for t in tables))
        relaxation = Relaxation("mini-bucket", 1 + seed % 3, "scope", True)
        done = eliminate_within(EliminationQuery(tables, domains, range(6), (), arithmetic), relaxation)
        bound = Fraction(arithmetic.outward(done.elimination.total(), len(tables))) + Fraction(done.margin)
        plain = [(s, np.vectorize(Fraction, otypes=[object])(t)) for s, t in tables]
        exact = naive.maximum(naive.join(plain, list(range(6)), domains), range(6)).item()
        assert bound >= exact
        rounded += Fraction(done.elimination.total()) != exact
    assert rounded > 20


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_all_kernels_are_compiled_beforehand(dtype, monkeypatch):
    moment_matching.compile_matching(np.dtype(dtype))
    kernels = moment_matching.max_marginals
    used = [kernels.run_matched, kernels.set_shifts, kernels.measure_messages, kernels.join]
    before = [set(kernel.signatures) for kernel in used]
    problem = random_problem(2, 8, 1, 3, 16, 2, 50, 0.0)
    arithmetic = Arithmetic(np.dtype(dtype), -np.inf if dtype == np.float64 else np.iinfo(dtype).min // 16, 10_000)
    tables = [EncodedTable(f.scope, f.table.astype(dtype)) for f in problem.factors]
    scopes, order = [t.scope for t in tables], range(problem.n_variables)
    plan = plan_mini_buckets(scopes, problem.domains, order, (), least_z(scopes, order), True)
    for large in (1 << 19, 1):
        monkeypatch.setattr(tuning, "MIN_PARALLEL_CELLS", large)
        eliminate_matched(tables, plan, arithmetic, threads=2)
    assert [set(kernel.signatures) for kernel in used] == before
