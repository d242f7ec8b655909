"""An elimination obeys the laws of its semiring: order, phases, threads and pieces of work do not change its tables."""

import time
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference import tuning
from dmcmc.inference.elimination.eliminate import (
    absorb,
    eliminate,
    flat_tables,
    new_arena,
    pieces_of,
    place_tables,
    run_rows,
)
from dmcmc.inference.elimination.join_kernels import bucket_strides, split_bucket
from dmcmc.inference.elimination.plan import check_memory, plan_elimination
from dmcmc.inference.elimination.semirings import LOG_SUM_EXP, MAX_PLUS, MIN_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError

FLOATS = Arithmetic(np.dtype(np.float64), -np.inf, 1e6)
SEMIRINGS = {"max-plus": MAX_PLUS, "min-plus": MIN_PLUS, "log-sum-exp": LOG_SUM_EXP}
N = 5


class Case(NamedTuple):
    """An elimination: encoded tables, domain sizes, eliminated and kept variables, arithmetic and semiring."""

    tables: list
    domains: np.ndarray
    order: list
    keep: list
    arithmetic: Arithmetic
    semiring: Semiring

    @property
    def plan(self):
        return plan_elimination([t.scope for t in self.tables], self.domains, self.order, self.keep)

    def run(self, **options):
        return eliminate(self.tables, self.plan, self.arithmetic, semiring=self.semiring, **options)

    def result(self):
        """Return the sum of the remaining tables over the kept variables as floats."""
        return dense(self.run().remaining(), self.keep, self.domains, self.arithmetic)


@st.composite
def cases(draw, semirings=tuple(SEMIRINGS), most=4):
    """Draw encoded tables over 5 variables, an order in which some are eliminated, the others, and a semiring."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    domains, semiring = rng.integers(1, most + 1, N), SEMIRINGS[draw(st.sampled_from(semirings))]
    floats = semiring is LOG_SUM_EXP or draw(st.booleans())
    hard, factors = draw(st.sampled_from([0.0, 0.2, 0.8])), []
    for _ in range(draw(st.integers(0, 7))):
        scope = rng.permutation(N)[: rng.integers(0, 4)].tolist()
        factors.append(Factor.of(scope, random_table(rng, tuple(domains[scope]), 20, hard, floats)))
    arithmetic = FLOATS if floats else choose_arithmetic(factors)
    shuffled, cut = rng.permutation(N).tolist(), draw(st.integers(0, N))
    tables = [arithmetic.encode(f) for f in factors]
    return Case(tables, domains, shuffled[:cut], sorted(shuffled[cut:]), arithmetic, semiring)


def dense(tables, keep, domains, arithmetic):
    """Return the sum of tables over the kept variables as floats."""
    plain = naive.plain_tables([(t.scope, t.values) for t in tables], arithmetic)
    return naive.join(plain, list(keep), domains).astype(float)


def assert_same(left, right, semiring):
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-9 if semiring is LOG_SUM_EXP else 1e-10)


@settings(max_examples=80)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_elimination_does_not_change_the_result(case, random):
    other = case._replace(order=random.sample(case.order, len(case.order)))
    assert_same(case.result(), other.result(), case.semiring)
    total = other._replace(order=other.order + other.keep, keep=[]).run()
    best = case._replace(order=case.order + case.keep, keep=[]).result().item()
    assert total.total() == pytest.approx(best, abs=1e-9) or case.arithmetic.is_lowest(total.total())


@settings(max_examples=80)
@given(cases(), st.integers(0, N))
def test_an_elimination_in_two_phases_is_that_in_one(case, cut):
    first, second = case.order[:cut], case.order[cut:]
    between = case._replace(order=first, keep=sorted([*second, *case.keep])).run().remaining()
    assert_same(case._replace(tables=list(between), order=second).result(), case.result(), case.semiring)


@settings(max_examples=80)
@given(cases(), st.integers(-50, 50))
def test_a_constant_that_is_added_to_a_table_is_added_to_the_result(case, constant):
    assume(case.tables)
    constant_table = EncodedTable((), np.full((), constant, dtype=case.arithmetic.dtype))
    shifted = case._replace(tables=[*case.tables, constant_table])
    assert_same(shifted.result(), case.result() + constant, case.semiring)


@settings(max_examples=80)
@given(cases(), st.integers(0, 2**32), st.integers(1, 30))
def test_a_larger_entry_never_makes_the_result_smaller(case, seed, rise):
    rng, raised = np.random.default_rng(seed), []
    for scope, values in case.tables:
        chosen = (rng.random(values.shape) < 0.3) & (values > case.arithmetic.forbidden_below)
        raised.append(EncodedTable(scope, np.where(chosen, values + rise, values).astype(values.dtype)))
    assert (case._replace(tables=raised).result() >= case.result() - 1e-9).all()


@settings(max_examples=60)
@given(cases(most=6), st.integers(2, 4), st.integers(1, 40))
def test_neither_threads_nor_the_size_of_tasks_change_a_bit_of_any_table(case, threads, cells):
    alone = case.run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MIN_PARALLEL_CELLS", 1)
        patch.setattr(tuning, "MIN_TASK_CELLS", cells)
        patch.setattr(tuning, "CELLS_PER_CHECK", cells)
        together = case.run(threads=threads)
        checked = case.run(stop=Deadline(time.perf_counter() + 1e6))
    entries = alone.plan.entries
    assert alone.arena[:entries].tobytes() == together.arena[:entries].tobytes() == checked.arena[:entries].tobytes()


@settings(max_examples=60)
@given(cases(), st.data())
def test_a_message_can_be_made_in_ranges_of_entries(case, data):
    assume(case.order)
    done = case.run()
    b = data.draw(st.integers(0, len(case.order) - 1))
    message = done.table(done.plan.output(b)).values.reshape(-1)
    expected = message.copy()
    cuts = sorted({0, message.size, *data.draw(st.lists(st.integers(0, message.size), max_size=3))})
    for begin, end in pairwise(cuts):
        message[:] = 12345
        run_rows(done, b, case.semiring, 1, (begin, end))
        # floats are added in another order if a range does not consist of whole rows
        tolerance = 0 if case.arithmetic.exact else 1e-9
        np.testing.assert_allclose(message[begin:end], expected[begin:end], rtol=0, atol=tolerance)
        assert (np.delete(message, range(begin, end)) == 12345).all()  # no other entry is written


@settings(max_examples=80)
@given(cases(semirings=("max-plus",)), st.integers(0, 2**32))
def test_values_are_chosen_in_many_rows_as_in_single_ones_and_attain_the_result(case, seed):
    done, rng, best = case.run(), np.random.default_rng(seed), case.result()
    rows = np.stack([rng.integers(0, d, 4) for d in case.domains], axis=1)
    single = rows.copy()
    done.choose_all(rows)
    for row, alone in zip(rows, single, strict=True):
        done.choose(alone)
        np.testing.assert_array_equal(row, alone)
        entries = [EncodedTable((), values[tuple(row[list(scope)])]) for scope, values in case.tables]
        utility = dense(entries, (), case.domains, case.arithmetic)
        assert utility == pytest.approx(best[tuple(row[case.keep])], abs=1e-9)


@st.composite
def extreme_costs(draw):
    """Draw factors over three variables whose sums come as close to the limits of int64 as the arithmetic allows."""
    domains, count = np.array([3, 2, 2]), draw(st.integers(1, 4))
    edge = (2**60 - 1) // count
    entries = draw(st.lists(st.sampled_from([np.iinfo(np.int64).min, edge, -edge, 0, 1]), min_size=1, max_size=3))
    factors = []
    for _ in range(count):
        scope = draw(st.sampled_from([(0,), (0, 1), (2, 0), (1, 2)]))
        shape = domains[list(scope)].tolist()
        size = int(np.prod(shape))
        values = draw(st.lists(st.sampled_from(entries), min_size=size, max_size=size))
        factors.append(Factor.of(scope, np.array(values, dtype=np.int64).reshape(shape)))
    return factors, domains


@settings(max_examples=80)
@given(extreme_costs(), st.permutations(range(3)), st.integers(0, 3))
def test_smallest_sums_never_wrap_at_the_limits_of_int64(case, order, cut):
    factors, domains = case
    arithmetic, keep = choose_arithmetic(factors), sorted(order[cut:])
    tables = [arithmetic.encode(f) for f in factors]
    done = Case(tables, domains, order[:cut], keep, arithmetic, MIN_PLUS).run()
    plain = [(f.scope, -naive.utilities(f.table)) for f in factors]  # +∞ forbids
    joined = naive.join(plain, [*keep, *order[:cut]], domains)
    joined[joined == naive.INFINITY] = -naive.INFINITY
    expected = naive.maximum(joined, range(len(keep), 3))
    found = naive.join(naive.plain_tables(done.remaining(), arithmetic), keep, domains)
    found[found != -naive.INFINITY] *= -1
    assert naive.same_numbers(found, expected)


@settings(max_examples=80)
@given(cases(semirings=("max-plus",)))
def test_absorbed_tables_have_the_same_sum_and_no_scope_inside_another(case):
    tables, domains, arithmetic = case.tables, case.domains, case.arithmetic
    before = [t.values.copy() for t in tables]
    fewer = absorb(tables, arithmetic)
    everything = list(range(N))
    assert_same(*(dense(t, everything, domains, arithmetic) for t in (tables, fewer)), MAX_PLUS)
    scopes = [set(t.scope) for t in fewer]
    assert not any(a <= b for i, a in enumerate(scopes) for j, b in enumerate(scopes) if i != j)
    assert all(np.array_equal(t.values, old) for t, old in zip(tables, before, strict=True))  # inputs are not changed


@settings(max_examples=80)
@given(cases(), st.integers(-8, 8))
def test_the_memory_that_a_plan_announces_is_what_its_tables_take(case, slack):
    plan, arithmetic = case.plan, case.arithmetic
    arena = new_arena(plan, arithmetic)
    assert arena.size == max(1, plan.entries)
    needed = plan.entries * arithmetic.dtype.itemsize
    begin, ends = 0, sorted(plan.locations[t][2:] for t in range(plan.tables))
    for first, end in ends:  # tables lie one after the other
        assert first == begin
        begin = end
    assert begin == plan.entries
    if slack >= 0:
        check_memory(plan, arithmetic, needed + slack, "the test", "nothing")
    elif plan.tables:
        with pytest.raises(ResourceError, match=rf"the test needs {needed:,} bytes .* nothing"):
            check_memory(plan, arithmetic, needed + slack, "the test", "nothing")


@settings(max_examples=60)
@given(cases(), st.integers(1, 12))
def test_tables_that_are_copied_in_pieces_are_the_same(case, entries):
    plan, arithmetic = case.plan, case.arithmetic
    flat = flat_tables(case.tables, arithmetic, case.semiring)
    arenas = [np.zeros(max(1, plan.entries), dtype=arithmetic.dtype) for _ in range(2)]
    place_tables(plan, arenas[0], flat, arithmetic.lowest_scalar)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "CELLS_PER_CHECK", entries)
        place_tables(plan, arenas[1], flat, arithmetic.lowest_scalar, Deadline(time.perf_counter() + 1e6))
        if flat.data.size >= entries:
            with pytest.raises(OutOfTime):
                place_tables(plan, arenas[1], flat, arithmetic.lowest_scalar, Deadline(0.0))
    assert arenas[0].tobytes() == arenas[1].tobytes()


@given(st.lists(st.integers(1, 5), max_size=4), st.integers(1, 30))
def test_pieces_cover_an_array_once_and_are_as_large_as_allowed(shape, entries):
    count, pieces = np.zeros(shape, dtype=np.int64), list(pieces_of(shape, entries))
    for index in pieces:
        assert count[index].size <= max(1, entries)
        count[index] += 1
    assert (count == 1).all()
    fixed = {len(index) for index in pieces}
    assert len(fixed) == 1 and (fixed == {0} or np.prod(shape[min(fixed) - 1 :]) > entries)


@settings(max_examples=60)
@given(cases(most=5), st.data())
def test_every_joined_cell_is_read_at_the_address_of_its_assignment(case, data):
    assume(case.order)
    plan, domains = case.plan, case.domains
    b = data.draw(st.integers(0, plan.buckets - 1))
    separator, variable = plan.scope(plan.output(b)), case.order[b]
    axes = data.draw(st.integers(0, len(separator)))
    program = plan.program._replace(row_axes=np.full(plan.buckets, axes))
    sizes, all_strides = bucket_strides(program, b)
    assert sizes.tolist() == domains[list(separator)].tolist() and all_strides.shape == (
        len(plan.inputs(b)),
        1 + sizes.size,
    )
    high, width, x_size, level, is_row, at, strides, offsets, is_dense = split_bucket(program, b)
    assert (high.tolist(), x_size) == (sizes[: sizes.size - axes].tolist(), domains[variable])
    assert width == np.prod(sizes[sizes.size - axes :], dtype=int) and (np.diff(level) >= 0).all()
    addresses = set()
    for values in np.ndindex(*domains[list(separator)], x_size):
        row_entry = reduce(lambda n, i: n * int(sizes[i]) + values[i], range(high.size, sizes.size), 0)
        index = np.array([values[-1], *values[: high.size]])
        cell = dict(zip((*separator, variable), values, strict=True))
        found = sorted((at + strides @ index + offsets[:, row_entry]).tolist())
        expected = [
            int(program.at[t]) + reduce(lambda n, v: n * int(domains[v]) + cell[v], plan.scope(t), 0)
            for t in plan.inputs(b)
        ]
        assert found == sorted(expected)
        addresses.update(found)
    assert len(addresses) == sum(int(plan.sizes[t]) for t in plan.inputs(b))
    for i in range(at.size):
        assert is_row[i] or not offsets[i].any()
        assert level[i] == max(np.flatnonzero(strides[i, 1:]) + 1, default=0)
        assert not is_dense[i] or np.array_equal(offsets[i], np.arange(width))


def test_a_sum_of_exponentials_needs_floats():
    with pytest.raises(ValueError, match="log-sum-exp needs float64 tables, not int32"):
        flat_tables(flatten([(0,)], [np.zeros(2, dtype=np.int32)]), choose_arithmetic([]), LOG_SUM_EXP)


@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=SEMIRINGS)
def test_a_table_without_allowed_entries_gives_minus_infinity_and_no_table_gives_the_neutral_sum(semiring):
    tables = [EncodedTable((0, 1), np.full((2, 3), -np.inf)), EncodedTable((1,), np.array([1.0, 2.0, -np.inf]))]
    case = Case(tables, np.array([2, 3]), [0, 1], [], FLOATS, semiring)
    assert case.run().total() == -np.inf
    no_tables = case._replace(tables=[]).run().total()
    assert no_tables == pytest.approx(np.log(6) if semiring is LOG_SUM_EXP else 0)
