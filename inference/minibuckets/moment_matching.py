"""Moment matching: mini-buckets of a variable agree on what each of its values is worth before they are eliminated.

Max-marginal matching (Ihler, Flerova, Dechter and Otten, "Join-graph based cost-shifting schemes", UAI 2012, MBE-MM):
m_k(x) being the maximum of mini-bucket k over its separator and S(x) the sum of all, k is shifted by

    s_k(x) = w_k S(x) − m_k(x),    Σ w_k = 1.

The shifts add up to zero, so the sum of all mini-buckets stays what it was, and Σ_k max_x w_k S(x) = max_x S(x): no
other shift over x alone has a smaller Σ_k max. The paper's w_k = 1/m spreads costs over mini-buckets that know nothing
of x, from where later buckets do not bring them together again: measured, it makes SPOT5's bounds worse than no
matching. Here w_k is in proportion to the square root of the range of m_k.

Shifts are part of sums, so more than the problem's own entries has to fit the numbers. What is *live* at any time, Σ
over tables not yet joined of the largest finite |entry|, bounds every sum there can be; it is followed from bucket to
bucket, and where a variable's shifts would take it beyond half of −∞'s sentinel, they are left out: the bound is
looser, never wrong. :func:`with_headroom` takes the wider integers where that is likely.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np

from dmcmc.inference.elimination.copy_tables import place_tables
from dmcmc.inference.elimination.eliminate import Elimination, flat_tables, new_arena, run_on_cpu
from dmcmc.inference.elimination.join_kernels import MARGINAL, join, split_bucket
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.minibuckets import moment_matching_kernels as max_marginals
from dmcmc.inference.minibuckets.plan import plan_mini_buckets
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic, Table
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.runtime.types import Array

HEADROOM = 8  # how much more than the problem's own entries the numbers should hold
_LARGE = 1 << 19  # joined cells of a bucket that is worth several threads
_LOOK = 1 << 24  # joined cells between two looks at the time
_MANY = 1 << 12  # cells that a mini-bucket counts for at least: some microseconds


@dataclass(frozen=True)
class Matched:
    """A finished elimination with moment matching.

    Attributes
    ----------
    elimination : Elimination
    bounds : (tables,) int64 or float64
        Largest finite |entry| of every table.
    live : int or float
        The most that was live at any time.
    shifts, skipped : int
        Shift tables that were made, and those that the numbers had no room for.
    margin : float
        What must be added to the sum of the remaining tables, so that it is not below the exact sum; 0 for integers.
    """

    elimination: Elimination
    bounds: Array
    live: int | float
    shifts: int
    skipped: int
    margin: float


def with_headroom(arithmetic: Arithmetic) -> Arithmetic:
    """Return an arithmetic with room for shifts: int64 in place of an int32 that is nearly full."""
    if arithmetic.dtype == np.int32 and arithmetic.total * HEADROOM > room_of(arithmetic):
        dtype = np.dtype(np.int64)
        return Arithmetic(dtype, int(np.iinfo(dtype).min) // ADDENDS, arithmetic.total)
    return arithmetic


def room_of(arithmetic: Arithmetic) -> int | float:
    """Return the most that may be live: a sum with a sentinel in it must stay below the threshold."""
    return -(int(arithmetic.lowest) // 2) - 1 if arithmetic.exact else float("inf")


def eliminate_matched(
    tables: Sequence[Table] | FlatTables,
    plan: Plan,
    arithmetic: Arithmetic,
    threads: int = 1,
    room: int | float | None = None,
    stop: Stop = NO_STOP,
) -> Matched:
    """Carry out a mini-bucket plan with moment matching.

    Parameters
    ----------
    tables
        Encoded tables: the inputs of the plan without those of its shifts.
    plan
        Made with ``shifts``.
    threads
        How many threads the large mini-buckets are spread over. The result does not depend on it.
    room
        The most that may be live; :func:`room_of` the arithmetic if None.
    stop
        When to give up.

    Raises
    ------
    OutOfTime
    """
    flat = flat_tables(tables, arithmetic)
    lowest = arithmetic.dtype.type(arithmetic.lowest)
    done = Elimination(plan, new_arena(plan, arithmetic), arithmetic)
    ledger = open_ledger(done, flat, room, stop)
    ready = 0
    for first, last in _looks(plan, _large_variables(plan)):
        stop.check()
        max_marginals.run_matched(
            plan.program, done.arena, ledger.bounds, ledger.state, ready, first, ledger.limit, lowest
        )
        if first < last:
            _run_large(done, ledger, first, last, threads, stop)
        ready = last
    return ledger.close(done)


@dataclass(frozen=True)
class Ledger:
    """What is live while a matched elimination is under way.

    Attributes
    ----------
    bounds : (tables,) int64 or float64
        Largest finite |entry| of every table so far.
    state : (4,) int64 or float64
        :data:`max_marginals.LIVE`, the most that was, shifts made, shifts left out.
    limit : number
        The most that may be live.
    given : int
        Tables of the problem, shifts not counted.
    """

    bounds: Array
    state: Array
    limit: np.number[Any]
    given: int

    def close(self, done: Elimination) -> Matched:
        """Return the finished elimination with what the ledger says of it."""
        live = self.state[max_marginals.MOST_LIVE].item()
        shifts, skipped = int(self.state[max_marginals.SHIFTS]), int(self.state[max_marginals.SKIPPED])
        margin = 0.0 if done.arithmetic.exact else 4 * max(1, self.given + shifts) * 2.0**-53 * float(live)
        return Matched(done, self.bounds, live, shifts, skipped, margin)


def open_ledger(done: Elimination, flat: FlatTables, room: int | float | None, stop: Stop = NO_STOP) -> Ledger:
    """Put the given tables into the arena, zeros into those of shifts, and measure them."""
    arithmetic, plan, arena = done.arithmetic, done.plan, done.arena
    lowest = arithmetic.dtype.type(arithmetic.lowest)
    number = np.int64 if arithmetic.exact else np.float64
    limit = number(min(room_of(arithmetic), np.inf if room is None else room))
    place_tables(plan, arena, flat, lowest, stop)
    given = plan.tables - plan.buckets
    if given > flat.tables:
        arena[plan.program.at[flat.tables] : plan.program.at[given - 1] + plan.sizes[given - 1]] = 0
    bounds, state = np.zeros(plan.tables, dtype=number), np.zeros(4, dtype=number)
    max_marginals.measure_inputs(plan.program, arena, bounds, state, lowest)
    return Ledger(bounds, state, limit, flat.tables)


def _large_variables(plan: Plan) -> list[tuple[int, int]]:
    """Return the ranges of mini-buckets of the variables that have a large one, and an empty range at the end."""
    variable = plan.program.variable
    ranges: list[tuple[int, int]] = []
    for b in np.flatnonzero(plan.program.cells > _LARGE).tolist():
        if ranges and b < ranges[-1][1]:
            continue
        first, last = b, b + 1
        while first > 0 and variable[first - 1] == variable[b]:
            first -= 1
        while last < plan.buckets and variable[last] == variable[b]:
            last += 1
        ranges.append((first, last))
    return [*ranges, (plan.buckets, plan.buckets)]


def _looks(plan: Plan, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges with empty ones in between, so that the time is looked at often enough."""
    variable = plan.program.variable
    count = np.cumsum(np.clip(plan.program.cells, _MANY, _LARGE)) // _LOOK
    outside = np.ones(plan.buckets + 1, dtype=np.bool_)
    for first, last in ranges:
        outside[first:last] = False
    cuts = 1 + np.flatnonzero((np.diff(count) > 0) & (np.diff(variable) != 0))
    return sorted([*ranges, *((int(b), int(b)) for b in cuts if outside[b])])


def _run_large(done: Elimination, ledger: Ledger, first: int, last: int, threads: int, stop: Stop) -> None:
    """Match and eliminate one variable, each mini-bucket on all threads."""
    program, lowest = done.plan.program, done.arithmetic.dtype.type(done.arithmetic.lowest)
    if last - first > 1:
        marginals = np.stack([_marginal(done, b, threads, stop) for b in range(first, last)])
        max_marginals.set_shifts(program, done.arena, ledger.state, first, last, marginals, ledger.limit, lowest)
    run_on_cpu(done, first, last, MAX_PLUS, threads, stop)
    max_marginals.settle(program, done.arena, ledger.bounds, ledger.state, first, last, lowest)


def _marginal(done: Elimination, b: int, threads: int, stop: Stop) -> Array:
    """Return a large mini-bucket's max-marginal: each thread goes through ranges of rows, and looks at the time."""
    plan = done.plan
    parts = split_bucket(plan.program, b)
    width, x_size = parts[1], parts[2]
    rows = int(plan.program.cells[b]) // (x_size * width)
    shares = min(rows, 4 * threads) if threads > 1 else 1
    cuts = [rows * i // shares for i in range(shares + 1)]
    step = rows if stop is NO_STOP else max(1, _LOOK // (x_size * width))
    lowest = done.arithmetic.dtype.type(done.arithmetic.lowest)
    blocks = np.full((shares, x_size, width), lowest, dtype=done.arithmetic.dtype)
    kernel = cast(Callable[..., None], join)

    def raise_to(block: Array, begin: int, end: int) -> None:
        for first in range(begin, end, step):
            if stop is not NO_STOP and stop.over:
                return
            kernel(done.arena, block, *parts, lowest, MARGINAL, first, min(first + step, end))

    run_parallel(
        [partial(raise_to, block, a, z) for block, (a, z) in zip(blocks, pairwise(cuts), strict=True)], threads
    )
    stop.check()
    best: Array = blocks.max(axis=(0, 2))
    return best


def compile_matching(dtype: np.dtype[Any]) -> None:
    """Compile what moment matching runs on the CPU for a number type, or find it on disk."""
    lowest = int(np.iinfo(dtype).min) // ADDENDS if dtype.kind == "i" else -np.inf
    tables = [Table((0, 1), np.ones((2, 2), dtype=dtype)), Table((0, 2), np.ones((2, 2), dtype=dtype))]
    arithmetic, scopes = Arithmetic(dtype, lowest, 2), [table.scope for table in tables]
    plan = plan_mini_buckets(scopes, np.full(3, 2), (0, 1, 2), (), 1, True)
    small = eliminate_matched(tables, plan, arithmetic)
    large = Elimination(plan, np.empty_like(small.elimination.arena), arithmetic)
    _run_large(large, open_ledger(large, flat_tables(tables, arithmetic), None), 0, 2, 1, NO_STOP)
