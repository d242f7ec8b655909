"""Bucket elimination gives the tables and the maximising values of a search over all assignments."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference import tuning
from dmcmc.inference.elimination import eliminate as elimination
from dmcmc.inference.elimination.eliminate import absorb, eliminate
from dmcmc.inference.elimination.join_kernels import split_bucket
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.elimination.plan_kernels import HUGE
from dmcmc.inference.elimination.semirings import LOG_SUM_EXP, MIN_PLUS
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic
from dmcmc.inference.model.factor import choose_arithmetic

NUMBERS = {"int32": (100, False), "int64": (2**40, False), "float64": (1e3, True)}


def run(factors, domains, order, keep, threads=1, row_axes=None):
    """Eliminate ``order`` from the factors; return the elimination and the tolerance of its arithmetic.

    ``row_axes`` sets how many variables form a row of the kernel; by default the plan decides.
    """
    arithmetic = choose_arithmetic(factors)
    plan = plan_elimination([f.scope for f in factors], domains, order, keep)
    if row_axes is not None:
        plan = replace(plan, program=plan.program._replace(row_axes=np.full(len(order), row_axes)))
    done = eliminate([arithmetic.encode(f) for f in factors], plan, arithmetic, threads)
    return done, 0.0 if arithmetic.exact else 1e-9 * float(arithmetic.total)


def remains(done, keep, domains):
    """Return the sum of the remaining tables, dense over the kept variables, as plain numbers."""
    return naive.join(naive.plain_tables(done.remaining(), done.arithmetic), list(keep), domains)


def plain(factors):
    return [(f.scope, naive.utilities(f.table)) for f in factors]


@st.composite
def cases(draw, numbers=tuple(NUMBERS), most=None):
    """Draw factors over up to 6 variables of up to 6 values, and an order in which to eliminate some of them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = int(rng.integers(0, 7))
    domains = rng.integers(1, (most or 7 - n // 2) + 1, n)
    magnitude, floats = NUMBERS[draw(st.sampled_from(numbers))]
    factors = []
    for _ in range(draw(st.integers(0, 9))):
        scope = rng.permutation(n)[: rng.integers(0, min(n, 4) + 1)].tolist()
        table = random_table(rng, tuple(domains[scope]), magnitude, draw(st.sampled_from([0.0, 0.2, 0.9])), floats)
        factors.append(Factor.of(scope, table))
    shuffled = rng.permutation(n).tolist()
    cut = draw(st.integers(0, n))
    return factors, domains, shuffled[:cut], sorted(shuffled[cut:])


@given(cases())
@settings(max_examples=150)
def test_what_remains_is_the_maximum_over_the_eliminated_variables(case):
    factors, domains, order, keep = case
    done, tolerance = run(factors, domains, order, keep)
    expected = naive.marginal(plain(factors), order, keep, domains)
    assert naive.same_numbers(remains(done, keep, domains), expected, tolerance)


@given(cases())
@settings(max_examples=60)
def test_no_remaining_scope_lies_inside_another(case):
    done, _ = run(*case)
    scopes = [set(scope) for scope, _ in done.remaining()]
    assert not any(a <= b for i, a in enumerate(scopes) for j, b in enumerate(scopes) if i != j)


@given(cases(numbers=("int32", "int64"), most=3))
@settings(max_examples=80)
def test_maximise_attains_the_table_and_ties_go_to_the_lowest_index(case):
    factors, domains, order, keep = case
    factors = [Factor.of(f.scope, np.sign(naive.utilities(f.table).astype(float))) for f in factors]  # many ties
    done, _ = run(factors, domains, order, keep)
    best = naive.marginal(plain(factors), order, keep, domains)
    everything = naive.join(plain(factors), [*keep, *reversed(order)], domains)
    for row in np.ndindex(*best.shape):
        if best[row] == -naive.INFINITY:
            continue
        values = dict(zip(keep, row, strict=True))
        done.maximise(values)
        found = tuple(values[v] for v in reversed(order))
        ties = (rest for rest in np.ndindex(*everything.shape[len(keep) :]) if everything[row + rest] == best[row])
        assert found == next(ties)  # in the order in which the values are chosen


@given(cases())
@settings(max_examples=60)
def test_the_plan_foresees_every_table(case):
    factors, domains, order, keep = case
    scopes = [f.scope for f in factors]
    plan = plan_elimination(scopes, domains, order, keep)
    steps = naive.simulate_order(scopes, domains, order)
    buckets = range(plan.buckets)
    assert plan.program.variable.tolist() == order
    assert [(set(plan.scope(plan.output(b))), plan.program.cells[b]) for b in buckets] == steps
    assert plan.cells == sum(cells for _, cells in steps)
    assert plan.width == max((len(separator) for separator, _ in steps), default=0)
    sizes = [int(np.prod(plan.shape(t), dtype=int)) for t in range(plan.tables)]
    assert plan.sizes.tolist() == sizes
    assert plan.program.at.tolist() == [sum(sizes[:t]) for t in range(len(sizes))]
    assert plan.entries == sum(sizes)
    taken = [t for b in buckets for t in plan.inputs(b)] + list(plan.remaining)
    assert sorted(taken) == list(range(plan.tables))  # every table is used once


@given(case=cases())
@settings(max_examples=50)
def test_a_plan_does_not_depend_on_variables_that_take_no_part(case):
    factors, domains, order, keep = case
    few = plan_elimination([f.scope for f in factors], domains, order, keep)
    most = 40 * (1 + domains.size)  # every 40th variable takes part
    larger = np.ones(most, dtype=np.int64)
    larger[40 * np.arange(domains.size)] = domains

    def moved(variables):
        return [40 * v for v in variables]

    many = plan_elimination([moved(f.scope) for f in factors], larger, moved(order), moved(keep))
    assert [moved(few.scope(t)) for t in range(few.tables)] == [list(many.scope(t)) for t in range(many.tables)]
    assert moved(few.program.variable.tolist()) == many.program.variable.tolist() and few.remaining == many.remaining
    assert all(np.array_equal(getattr(few, name), getattr(many, name)) for name in ("sizes", "cells", "entries"))
    for name in ("at", "input_start", "inputs", "cells", "row_axes"):
        assert np.array_equal(getattr(few.program, name), getattr(many.program, name)), name


def test_sizes_that_no_machine_can_hold_saturate():
    n = 40
    plan = plan_elimination([tuple(range(n))], np.full(n, 1000), [0], range(1, n))
    assert plan.program.cells[0] == HUGE
    assert plan.entries >= HUGE


# How the kernel reads a table: one number per row, a dense row, or a row with gaps or repeats; and for every table the
# level at which it is added.
WIDE = {1: 7, 2: 200}
PATHS = {
    "nothing but rows": ([(0, 1)], {1: 300}, 1, "dense 0"),
    "no rows at all": ([(0, 1), (2, 0)], WIDE, 0, "number 1, number 2"),
    "no rows at the last level": ([(0, 1), (2, 0)], WIDE, 1, "dense 0, number 1"),
    "one dense row": ([(0, 1), (0, 2), (1, 0, 2)], WIDE, 1, "dense 0, number 1, dense 1"),
    "two dense rows": ([(0, 2), (2, 1, 0), (0, 1, 2)], WIDE, 1, "dense 0, dense 1, dense 1"),
    "three dense rows": ([(0, 2), (2, 1, 0), (1, 0, 2), (0, 1, 2)], WIDE, 1, "dense 0, dense 1, dense 1, dense 1"),
    "five rows": ([(0,), (0, 1), *[(0, 1, 2)] * 5], WIDE, 1, "number 0, number 1" + ", dense 1" * 5),
    "nine numbers": ([(0, 1)] * 9 + [(0, 2)], WIDE, 1, "dense 0" + ", number 1" * 9),
    "everything is a row": ([(0, 1), (2, 0), (0, 2, 1)], WIDE, 2, "gaps 0, gaps 0, dense 0"),
    "repeated rows": ([(0, 1), (0, 3), (4, 2, 0)], {1: 50, 4: 3, 2: 20, 3: 10}, 2, "gaps 0, number 1, gaps 2"),
    "levels": (
        [(0, 1), (0, 2), (3, 1, 0), (0, 4, 2)],
        {1: 3, 2: 4, 3: 5, 4: 150},
        1,
        "number 1, number 2, dense 2, number 3",
    ),
    "rows of a middle level": ([(0, 1, 3), (0, 2)], {1: 3, 2: 4, 3: 150}, 1, "dense 1, number 2"),
}


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("hard", [0.3, 0.9])
def test_every_path_of_the_kernel_gives_the_same_numbers(path, numbers, hard):
    scopes, sizes, row_axes, expected_path = PATHS[path]
    keep = list(sizes)
    domains = np.array([5, *(sizes.get(v, 1) for v in range(1, 5))])
    rng = np.random.default_rng(len(path))
    magnitude, floats = NUMBERS[numbers]
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), magnitude, hard, floats)) for s in scopes]
    done, tolerance = run(factors, domains, [0], keep, row_axes=row_axes)
    _, _, _, level, is_row, *_, dense = split_bucket(done.plan.program, 0)
    kinds = ["number" if not row else "dense" if d else "gaps" for row, d in zip(is_row, dense, strict=True)]
    assert ", ".join(f"{kind} {j}" for kind, j in zip(kinds, level, strict=True)) == expected_path
    assert done.arithmetic.dtype.name == numbers
    expected = naive.marginal(plain(factors), [0], keep, domains)
    assert naive.same_numbers(remains(done, keep, domains), expected, tolerance)


@given(cases(numbers=("int32", "float64")))
@settings(max_examples=60)
def test_min_plus_takes_the_smallest_allowed_sum(case):
    factors, domains, order, keep = case
    arithmetic = choose_arithmetic(factors)
    plan = plan_elimination([f.scope for f in factors], domains, order, keep)
    encoded = [arithmetic.encode(f) for f in factors]
    done = eliminate(encoded, plan, arithmetic, semiring=MIN_PLUS)
    everything = naive.join(naive.plain_tables(encoded, arithmetic), [*keep, *order], domains).astype(float)
    costs = np.where(np.isneginf(everything), np.inf, everything)
    least = costs.reshape(*costs.shape[: len(keep)], -1).min(axis=-1)
    found = remains(done, keep, domains).astype(float)
    assert np.allclose(np.where(np.isneginf(found), np.inf, found), least, rtol=1e-9, atol=1e-9)


@given(cases(numbers=("float64",)))
@settings(max_examples=60)
def test_log_sum_exp_sums_the_exponentials_of_all_assignments(case):
    factors, domains, order, keep = case
    arithmetic = Arithmetic(np.dtype(np.float64), -np.inf, 1e6)
    plan = plan_elimination([f.scope for f in factors], domains, order, keep)
    encoded = [
        arithmetic.encode(Factor(f.scope, np.where(np.isfinite(f.table), f.table / 1e2, f.table))) for f in factors
    ]
    done = eliminate(encoded, plan, arithmetic, semiring=LOG_SUM_EXP)
    everything = naive.join(naive.plain_tables(encoded, arithmetic), [*keep, *order], domains).astype(float)
    expected = np.logaddexp.reduce(everything.reshape(*everything.shape[: len(keep)], -1), axis=-1)
    assert np.allclose(remains(done, keep, domains).astype(float), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("numbers", NUMBERS)
def test_a_large_table_is_the_same_on_any_number_of_threads(numbers):
    domains = np.array([11, 40, 13, 130])
    rng = np.random.default_rng(3)
    magnitude, floats = NUMBERS[numbers]
    scopes = [(0, 1, 2), (2, 0, 3), (3, 1), (0, 1)]
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), magnitude, 0.3, floats)) for s in scopes]
    alone, tolerance = run(factors, domains, [0], [1, 2, 3])
    assert alone.plan.cells > tuning.MIN_PARALLEL_CELLS  # otherwise there is nothing to divide
    for threads in (2, 3):
        together, _ = run(factors, domains, [0], [1, 2, 3], threads)
        entries = alone.plan.entries
        assert together.arena[:entries].tobytes() == alone.arena[:entries].tobytes()
    expected = naive.marginal(plain(factors), [0], [1, 2, 3], domains)
    assert naive.same_numbers(remains(alone, [1, 2, 3], domains), expected, tolerance)


@st.composite
def extremes(draw):
    """Draw up to 12 factors: many forbidden entries, and finite ones at the limits of number types."""
    domains = np.array([3, 2, 2])
    count = draw(st.integers(1, 12))
    edge = draw(st.sampled_from([2**28, 2**31, 2**53, 2**59, 2**60 - 1])) // draw(st.sampled_from([1, count]))
    entry = st.one_of(
        st.just(np.iinfo(np.int64).min), st.integers(edge - 2, edge), st.integers(-edge, 2 - edge), st.integers(-2, 2)
    )
    factors = []
    for _ in range(count):
        scope = draw(st.sampled_from([(), (0,), (1,), (0, 1), (2, 0), (1, 2), (0, 1, 2)]))
        size = int(np.prod(domains[list(scope)], dtype=int))
        values = draw(st.lists(entry, min_size=size, max_size=size))
        factors.append(Factor.of(scope, np.array(values, dtype=np.int64).reshape(domains[list(scope)])))
    return factors, domains, draw(st.permutations(range(3))), draw(st.integers(0, 3))


@given(extremes())
@settings(max_examples=300)
def test_sums_never_wrap_and_minus_infinity_stays(case):
    factors, domains, order, cut = case
    order, keep = list(order[:cut]), sorted(order[cut:])
    done, tolerance = run(factors, domains, order, keep)
    expected = naive.marginal(plain(factors), order, keep, domains)
    assert naive.same_numbers(remains(done, keep, domains), expected, tolerance)


@given(st.lists(st.integers(0, 2**62), max_size=6), st.booleans())
def test_the_arithmetic_can_hold_every_sum(magnitudes, hard):
    entry = np.iinfo(np.int64).min if hard else 0
    factors = [Factor.of((0,), np.array([entry, m], dtype=np.int64)) for m in magnitudes]
    arithmetic = choose_arithmetic(factors)
    if arithmetic.exact:
        least = int(np.iinfo(arithmetic.dtype).min)
        assert least <= ADDENDS * arithmetic.lowest  # a sum of that many sentinels does not wrap
        assert arithmetic.lowest + sum(magnitudes) < arithmetic.forbidden_below <= -sum(magnitudes)
    else:
        assert sum(magnitudes) >= 2**60 - 1


def test_absorb_keeps_the_sum_however_many_sentinels_meet():
    arithmetic = choose_arithmetic([Factor.of((0,), [1, -naive.INFINITY])])
    hard = np.full((2, 2), arithmetic.lowest, dtype=arithmetic.dtype)
    (table,) = absorb(
        [elimination.EncodedTable((0, 1), hard)] * 9 + [elimination.EncodedTable((1,), hard[0])] * 9, arithmetic
    )
    assert all(arithmetic.is_lowest(value) for value in table.values.ravel().tolist())


@given(
    st.lists(
        st.one_of(st.floats(-1e200, 1e200), st.floats(-1.0, 1.0), st.integers(-(2**62), 2**62)), min_size=1, max_size=12
    ),
    st.randoms(use_true_random=False),
)
@settings(max_examples=400)
def test_outward_bounds_the_exact_sum_whatever_the_order_of_addition(terms, random):
    factors = [Factor.of((), np.array(t)) for t in [0.5, *terms]]
    arithmetic = choose_arithmetic(factors)
    assert not arithmetic.exact
    numbers = [float(arithmetic.encode(f).values) for f in factors]
    while len(numbers) > 1:  # any tree of additions
        random.shuffle(numbers)
        numbers.append(numbers.pop() + numbers.pop())
    exact = sum((Fraction(f.table.item()) for f in factors), Fraction(0))
    bound = arithmetic.outward(numbers[0], len(factors))
    assert exact <= Fraction(bound)
    assert bound - numbers[0] <= 1e-13 * (float(arithmetic.total) + abs(numbers[0]))  # and the bound is tight


def test_outward_does_not_change_integers_and_infinity():
    exact = choose_arithmetic([Factor.of((), 5)])
    assert exact.outward(5, 100) == 5
    loose = Arithmetic(np.dtype(np.float64), -np.inf, 1.0)
    assert loose.outward(-np.inf, 100) == -np.inf


def test_an_eliminated_variable_without_tables_takes_its_first_value():
    done, _ = run([], np.array([3, 2]), [1, 0], [])
    values = {}
    done.maximise(values)
    assert values == {0: 0, 1: 0}
    assert all(entry == 0 for _, table in done.remaining() for entry in table.ravel())


def test_the_naive_marginal_agrees_with_a_loop_over_assignments():
    domains = np.array([2, 3, 2])
    rng = np.random.default_rng(0)
    tables = [((2, 0), rng.integers(0, 9, (2, 2))), ((1,), rng.integers(0, 9, 3)), ((0, 1), rng.integers(0, 9, (2, 3)))]
    joined = naive.marginal(tables, [1], [2, 0], domains)
    for c, a in product(range(2), range(2)):
        assert joined[c, a] == max(sum(t[tuple({0: a, 1: b, 2: c}[v] for v in s)] for s, t in tables) for b in range(3))
