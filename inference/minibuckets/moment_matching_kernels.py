# mypy: ignore-errors
"""Kernels of moment matching: max-marginals of mini-buckets, and the shifts that even them out.

A max-marginal is the maximum over the separator where elimination takes it over x: the same
:func:`dmcmc.inference.elimination.join_kernels.join` finds both. The joined table is never written: one block of (x, l)
is kept, and raised by every h.
"""

import math

import numpy as np

from dmcmc.inference.elimination.join_kernels import MARGINAL, join, split_bucket
from dmcmc.inference.elimination.semirings import MAXIMUM
from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit

_MAXIMUM = MAXIMUM
LIVE, MOST_LIVE, SHIFTS, SKIPPED = range(4)  # of ``state``: what is live, the most that was, shifts made and left out
_GRID = 40  # float shifts are multiples of 2^-40 of what is live, so that up to 2^11 of them add up without rounding
_MOST = 1 << 11


@njit(nogil=True)
def max_marginal(program, arena, b, lowest):
    """Return a mini-bucket's best sum for every value of its variable: (x_size,)."""
    parts = split_bucket(program, b)
    width, x_size = parts[1], parts[2]
    block = np.full((x_size, width), lowest, dtype=arena.dtype)
    join(arena, block, *parts, lowest, MARGINAL, 0, program.cells[b] // (x_size * width))
    best = np.empty(x_size, dtype=arena.dtype)
    for x in range(x_size):
        best[x] = block[x].max()
    return best


@njit(nogil=True)
def spread(marginal, lowest):
    """Return the square root of the range of a max-marginal's finite values."""
    half = lowest / 2
    low, high = np.inf, -np.inf
    for m in marginal:
        if m >= half and m > lowest:
            low, high = min(low, float(m)), max(high, float(m))
    return math.sqrt(high - low) if high > low else 0.0


@njit(nogil=True)
def even_out(marginals, shifts, live, lowest):
    """Write the shifts (m, x_size) that make m max-marginals agree; return each mini-bucket's largest |shift| (m,).

    Mini-bucket k gets a share of the sum S(x) of all, in proportion to the root of how much its own max-marginal
    varies. The shifts add up to zero for every x, exactly: the heaviest mini-bucket takes what rounding leaves, and
    floats are put on a grid on which sums do not round (``live`` is what they are relative to). A value that one
    mini-bucket forbids is forbidden in all: nothing finite can come of it.
    """
    m, x_size = marginals.shape
    number = marginals.dtype.type
    half = lowest / 2
    grid = 0.0
    if number(0.5) > 0:  # floats
        grid = math.ldexp(1.0, math.frexp(max(live, 1e-290))[1] - _GRID)
    weight = np.empty(m)
    for k in range(m):
        weight[k] = spread(marginals[k], lowest)
    heaviest = np.argmax(weight)
    weight /= max(weight.sum(), 1e-300)
    largest = np.zeros(m, dtype=marginals.dtype)
    for x in range(x_size):
        hard = False
        total = number(0)
        for k in range(m):
            hard |= marginals[k, x] <= lowest or marginals[k, x] < half
            total += marginals[k, x]
        if hard:
            shifts[:, x] = lowest
            continue
        rest = number(0)
        for k in range(m):
            if k != heaviest:
                if grid > 0:
                    shift = number(np.rint((weight[k] * total - marginals[k, x]) / grid) * grid)
                else:
                    shift = number(number(np.rint(weight[k] * total)) - marginals[k, x])
                shifts[k, x] = shift
                rest += shift
        shifts[heaviest, x] = -rest
        for k in range(m):
            largest[k] = max(largest[k], abs(shifts[k, x]))
    return largest


@njit(nogil=True)
def bound_of(entries, lowest):
    """Return the largest finite |entry|."""
    half = lowest / 2
    bound = entries.dtype.type(0)
    for i in range(entries.size):
        e = entries[i]
        if e >= half and e > lowest:
            bound = max(bound, abs(e))
    return bound


@njit(nogil=True)
def table(program, arena, t):
    """Return the entries of a table as a view."""
    size = 1
    for s in range(program.scope_start[t], program.scope_start[t + 1]):
        size *= program.domains[program.scope[s]]
    return arena[program.at[t] : program.at[t] + size]


@njit(nogil=True)
def measure_inputs(program, arena, bounds, state, lowest):
    """Set the bounds of the given tables and what is live in all."""
    for t in range(program.at.size - program.variable.size):
        bounds[t] = bound_of(table(program, arena, t), lowest)
        state[LIVE] += bounds[t]
    state[MOST_LIVE] = state[LIVE]


@njit(nogil=True)
def set_shifts(program, arena, state, first, last, marginals, limit, lowest):
    """Write the shift tables of mini-buckets ``first`` to ``last``, or zeros if sums might leave ``limit``.

    ``state`` has :data:`LIVE` and so on.
    """
    shifts = np.zeros_like(marginals)
    largest = even_out(marginals, shifts, float(state[LIVE]), lowest)
    after = state[LIVE]
    for k in range(last - first):
        if after <= limit:
            after += largest[k]
    if after > limit or last - first > _MOST:
        shifts[:] = 0
        state[SKIPPED] += last - first
    else:
        state[MOST_LIVE] = max(state[MOST_LIVE], after)
        state[SHIFTS] += last - first
    for k in range(last - first):
        copy_entries(shifts[k], table(program, arena, program.inputs[program.input_start[first + k + 1] - 1]))


@njit(nogil=True)
def settle(program, arena, bounds, state, first, last, lowest):
    """Measure the messages of buckets ``first`` to ``last``, just eliminated, and :func:`account` for them."""
    for b in range(first, last):
        output = program.at.size - program.variable.size + b
        bounds[output] = bound_of(table(program, arena, output), lowest)
    account(program, bounds, state, first, last)


@njit(nogil=True)
def account(program, bounds, state, first, last):
    """Take the inputs of buckets ``first`` to ``last`` from what is live, and add their messages."""
    for b in range(first, last):
        for i in range(program.input_start[b], program.input_start[b + 1]):
            state[LIVE] -= bounds[program.inputs[i]]
        state[LIVE] += bounds[program.at.size - program.variable.size + b]
    state[MOST_LIVE] = max(state[MOST_LIVE], state[LIVE])


@njit(nogil=True)
def run_matched(program, arena, bounds, state, first, last, limit, lowest):
    """Run buckets ``first`` to ``last`` (whole variables), each variable's mini-buckets matched before."""
    b = first
    while b < last:
        end = b + 1
        while end < last and program.variable[end] == program.variable[b]:
            end += 1
        if end - b > 1:
            marginals = np.empty((end - b, program.domains[program.variable[b]]), dtype=arena.dtype)
            for k in range(end - b):
                marginals[k] = max_marginal(program, arena, b + k, lowest)
            set_shifts(program, arena, state, b, end, marginals, limit, lowest)
        for i in range(b, end):
            parts = split_bucket(program, i)
            width = parts[1]
            rows = program.cells[i] // (parts[2] * width)
            out = table(program, arena, program.at.size - program.variable.size + i).reshape(rows, width)
            join(arena, out, *parts, lowest, _MAXIMUM, 0, rows)
        settle(program, arena, bounds, state, b, end, lowest)
        b = end
