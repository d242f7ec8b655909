"""Moment matching: equalise the max-marginals of a variable's mini-buckets before they are eliminated.

Max-marginal matching (Ihler, Flerova, Dechter and Otten, "Join-graph based cost-shifting schemes", UAI 2012, MBE-MM).
m_k(x) is the maximum of mini-bucket k over its separator, and S(x) is the sum of all m_k. The cost shift of k is

    s_k(x) = w_k S(x) − m_k(x),    Σ w_k = 1.

The shifts add up to zero, so the sum of all mini-buckets does not change, and Σ_k max_x w_k S(x) = max_x S(x). No other
shift over x alone has a smaller Σ_k max. The paper uses w_k = 1/m. This distributes costs over mini-buckets that do not
depend on x, and later buckets cannot combine them again; the bounds can become worse than without matching. Here w_k is
therefore proportional to the square root of the range of m_k.

Shifts are part of the sums, so the numbers must hold more than the problem's own entries. The *magnitude* of a table is
its largest finite |entry|. The *total magnitude* is the sum of the magnitudes over all tables that are not joined yet,
and it is an upper bound on every possible sum. It is updated from bucket to bucket. If the shifts of a variable would
raise it beyond half of the sentinel of −∞, they are omitted: the bound is then looser, but still valid.
:func:`with_headroom` selects the wider integers if that is likely.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.elimination.eliminate import Elimination, flat_tables, new_arena, place_tables, run_on_cpu
from dmcmc.inference.elimination.join_kernels import MAX_MARGINAL, join, split_bucket
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.minibuckets import moment_matching_kernels as max_marginals
from dmcmc.inference.minibuckets.plan import plan_mini_buckets
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic, EncodedTable
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import HEADROOM


@dataclass(frozen=True)
class MatchedElimination:
    """A finished elimination with moment matching.

    Attributes
    ----------
    elimination : Elimination
        The elimination.
    magnitudes : (tables,) int64 or float64
        Upper bound on the finite |entries| of every table; 0 for cost-shift tables, which only the peak includes.
    peak_magnitude : int or float
        Largest total magnitude at any time.
    shifts, skipped : int
        Number of cost-shift tables that were made, and that were omitted because the numbers could not hold them.
    margin : float
        Upper bound on the rounding error; 0 for integers. The sum of the remaining tables plus the margin is an upper
        bound on the exact sum.
    """

    elimination: Elimination
    magnitudes: Array
    peak_magnitude: int | float
    shifts: int
    skipped: int
    margin: float


def with_headroom(arithmetic: Arithmetic) -> Arithmetic:
    """Return an arithmetic that can hold shifts: int64 instead of an int32 whose range is nearly used up."""
    if arithmetic.dtype == np.int32 and arithmetic.total * HEADROOM > magnitude_limit_of(arithmetic):
        dtype = np.dtype(np.int64)
        return Arithmetic(dtype, int(np.iinfo(dtype).min) // ADDENDS, arithmetic.total)
    return arithmetic


def magnitude_limit_of(arithmetic: Arithmetic) -> int | float:
    """Return the largest admissible total magnitude: a sum that contains −∞ must stay below the threshold of −∞."""
    return -(int(arithmetic.lowest) // 2) - 1 if arithmetic.exact else float("inf")


def eliminate_matched(
    tables: Sequence[EncodedTable] | FlatTables,
    plan: EliminationPlan,
    arithmetic: Arithmetic,
    threads: int = 1,
    magnitude_limit: int | float | None = None,
    stop: Deadline = NO_DEADLINE,
) -> MatchedElimination:
    """Run a mini-bucket plan with moment matching.

    Parameters
    ----------
    tables
        Encoded tables: the inputs of the plan without its cost-shift tables.
    plan
        A plan made with ``shifts``.
    arithmetic
        The arithmetic of the tables.
    threads
        Number of threads for the large mini-buckets. The result does not depend on it.
    magnitude_limit
        Largest admissible total magnitude; that of the arithmetic if None.
    stop
        The deadline.

    Returns
    -------
    MatchedElimination

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    flat = flat_tables(tables, arithmetic)
    lowest = arithmetic.dtype.type(arithmetic.lowest)
    done = Elimination(plan, new_arena(plan, arithmetic), arithmetic)
    tracker = start_tracking(done, flat, magnitude_limit, stop)
    next_bucket = 0
    for first, last in _with_deadline_checks(plan, _large_variables(plan)):
        stop.check()
        max_marginals.run_matched(
            plan.program, done.arena, tracker.magnitudes, tracker.state, next_bucket, first, tracker.limit, lowest
        )
        if first < last:
            _run_large(done, tracker, first, last, threads, stop)
        next_bucket = last
    return tracker.result(done)


@dataclass(frozen=True)
class MagnitudeTracker:
    """The total magnitude of the tables during a matched elimination.

    Attributes
    ----------
    magnitudes : (tables,) int64 or float64
        Largest finite |entry| of every table made so far.
    state : (4,) int64 or float64
        Total magnitude, its peak, shift tables made, shift tables omitted (``TOTAL``, ``PEAK``, ``SHIFTS``,
        ``SKIPPED``).
    limit : number
        Largest admissible total magnitude.
    n_inputs : int
        Number of input tables, without cost-shift tables.
    """

    magnitudes: Array
    state: Array
    limit: np.number[Any]
    n_inputs: int

    def result(self, done: Elimination) -> MatchedElimination:
        """Return the finished elimination with its magnitudes and its margin."""
        peak_magnitude = self.state[max_marginals.PEAK].item()
        shifts, skipped = int(self.state[max_marginals.SHIFTS]), int(self.state[max_marginals.SKIPPED])
        # rounding: each addition is off by at most 2^-53 of the total magnitude; the factor 4 adds slack
        margin = 0.0 if done.arithmetic.exact else 4 * max(1, self.n_inputs + shifts) * 2.0**-53 * float(peak_magnitude)
        return MatchedElimination(done, self.magnitudes, peak_magnitude, shifts, skipped, margin)


def start_tracking(
    done: Elimination, flat: FlatTables, magnitude_limit: int | float | None, stop: Deadline = NO_DEADLINE
) -> MagnitudeTracker:
    """Copy the inputs to the arena, set the cost-shift tables to zero, and compute the magnitudes."""
    arithmetic, plan, arena = done.arithmetic, done.plan, done.arena
    lowest = arithmetic.dtype.type(arithmetic.lowest)
    number = np.int64 if arithmetic.exact else np.float64
    limit = number(min(magnitude_limit_of(arithmetic), np.inf if magnitude_limit is None else magnitude_limit))
    place_tables(plan, arena, flat, lowest, stop)
    n_inputs = plan.tables - plan.buckets
    if n_inputs > flat.tables:
        arena[plan.program.at[flat.tables] : plan.program.at[n_inputs - 1] + plan.sizes[n_inputs - 1]] = 0
    magnitudes, state = np.zeros(plan.tables, dtype=number), np.zeros(4, dtype=number)
    max_marginals.measure_inputs(plan.program, arena, magnitudes, state, lowest)
    return MagnitudeTracker(magnitudes, state, limit, flat.tables)


def _large_variables(plan: EliminationPlan) -> list[tuple[int, int]]:
    """Return the bucket ranges of the variables with a large mini-bucket, and an empty range at the end."""
    variable = plan.program.variable
    ranges: list[tuple[int, int]] = []
    for b in np.flatnonzero(plan.program.cells > tuning.MIN_PARALLEL_CELLS).tolist():
        if ranges and b < ranges[-1][1]:
            continue
        first, last = b, b + 1
        while first > 0 and variable[first - 1] == variable[b]:
            first -= 1
        while last < plan.buckets and variable[last] == variable[b]:
            last += 1
        ranges.append((first, last))
    return [*ranges, (plan.buckets, plan.buckets)]


def _with_deadline_checks(plan: EliminationPlan, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges, with empty ranges in between at which the deadline is checked."""
    variable = plan.program.variable
    checks_due = (
        np.cumsum(np.clip(plan.program.cells, tuning.CELLS_PER_BUCKET, tuning.MIN_PARALLEL_CELLS))
        // tuning.CELLS_PER_CHECK
    )
    is_small = np.ones(plan.buckets + 1, dtype=np.bool_)
    for first, last in ranges:
        is_small[first:last] = False
    check_buckets = 1 + np.flatnonzero((np.diff(checks_due) > 0) & (np.diff(variable) != 0))
    return sorted([*ranges, *((int(b), int(b)) for b in check_buckets if is_small[b])])


def _run_large(
    done: Elimination, tracker: MagnitudeTracker, first: int, last: int, threads: int, stop: Deadline
) -> None:
    """Match and eliminate the variable of buckets ``first`` to ``last`` − 1, each mini-bucket on all threads."""
    program, lowest = done.plan.program, done.arithmetic.dtype.type(done.arithmetic.lowest)
    if last - first > 1:
        marginals = np.stack([_large_max_marginal(done, b, threads, stop) for b in range(first, last)])
        max_marginals.set_shifts(program, done.arena, tracker.state, first, last, marginals, tracker.limit, lowest)
    run_on_cpu(done, first, last, MAX_PLUS, threads, stop)
    max_marginals.measure_messages(program, done.arena, tracker.magnitudes, tracker.state, first, last, lowest)


def _large_max_marginal(done: Elimination, b: int, threads: int, stop: Deadline) -> Array:
    """Return a large mini-bucket's max-marginal, (x_size,), joined in ranges of rows.

    The deadline is checked between two ranges of a thread.
    """
    plan = done.plan
    parts = split_bucket(plan.program, b)
    width, x_size = parts[1], parts[2]
    rows = int(plan.program.cells[b]) // (x_size * width)
    n_ranges = min(rows, 4 * threads) if threads > 1 else 1
    cuts = [rows * i // n_ranges for i in range(n_ranges + 1)]
    step = rows if stop is NO_DEADLINE else max(1, tuning.CELLS_PER_CHECK // (x_size * width))
    lowest = done.arithmetic.dtype.type(done.arithmetic.lowest)
    blocks = np.full((n_ranges, x_size, width), lowest, dtype=done.arithmetic.dtype)
    kernel = cast(Callable[..., None], join)

    def raise_to(block: Array, begin: int, end: int) -> None:
        """Raise a block to the maxima of a range of rows."""
        for first in range(begin, end, step):
            if stop is not NO_DEADLINE and stop.over:
                return
            kernel(done.arena, block, *parts, lowest, MAX_MARGINAL, first, min(first + step, end))

    run_parallel(
        [partial(raise_to, block, a, z) for block, (a, z) in zip(blocks, pairwise(cuts), strict=True)], threads
    )
    stop.check()
    best: Array = blocks.max(axis=(0, 2))
    return best


def compile_matching(dtype: np.dtype[Any]) -> None:
    """Compile the CPU code of moment matching for a number type, or read it from the disk cache."""
    lowest = int(np.iinfo(dtype).min) // ADDENDS if dtype.kind == "i" else -np.inf
    tables = [EncodedTable((0, 1), np.ones((2, 2), dtype=dtype)), EncodedTable((0, 2), np.ones((2, 2), dtype=dtype))]
    arithmetic, scopes = Arithmetic(dtype, lowest, 2), [table.scope for table in tables]
    plan = plan_mini_buckets(scopes, np.full(3, 2), (0, 1, 2), (), 1, True)
    small = eliminate_matched(tables, plan, arithmetic)
    large = Elimination(plan, np.empty_like(small.elimination.arena), arithmetic)
    _run_large(large, start_tracking(large, flat_tables(tables, arithmetic), None), 0, 2, 1, NO_DEADLINE)
