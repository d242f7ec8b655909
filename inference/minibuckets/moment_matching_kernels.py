# mypy: ignore-errors
"""Kernels of moment matching: max-marginals of mini-buckets, and the cost shifts that equalise them.

A mini-bucket is a group of the tables with a variable x from which x is eliminated separately; the other variables of
these tables are its separator. A max-marginal m(x) is a maximum over the separator, where elimination takes the maximum
over x: :func:`dmcmc.inference.elimination.join_kernels.join` computes both. It splits the separator into leading
variables h and trailing variables l. The joined table is never written; one block of (x, l) is raised to the maximum by
every h. A cost shift is a table over x that is added to a mini-bucket; the shifts of x's mini-buckets add up to zero.
:mod:`dmcmc.inference.minibuckets.moment_matching` explains the method and calls these kernels.

Shared arguments
----------------
program
    A :class:`dmcmc.inference.elimination.plan.BucketProgram`: the plan as flat arrays. Tables are numbered: first the
    inputs, then one message per mini-bucket. The last input of a matched mini-bucket is its cost-shift table.
arena : (entries,)
    All tables, in the dtype of the arithmetic.
magnitudes : (tables,) int64 or float64
    The largest finite |entry| of every table.
state : (4,) int64 or float64
    Total magnitude of the tables that are not joined yet, its peak, shift tables made, shift tables omitted.
lowest
    The −∞ of the arithmetic. Sums below half of it, which the kernels call ``half``, mean −∞ too.
"""

import math

import numpy as np

from dmcmc.inference.elimination.join_kernels import MAX_MARGINAL, join, split_bucket
from dmcmc.inference.elimination.semirings import MAXIMUM
from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit

# indices of ``state``: total magnitude, its peak, shift tables made, shift tables omitted
TOTAL, PEAK, SHIFTS, SKIPPED = range(4)
# float shifts are multiples of 2^-40 of the total magnitude, so that up to 2^11 of them are added without rounding
_GRID_BITS = 40
_MAX_SHIFTS = 1 << 11


@njit(nogil=True)
def max_marginal(program, arena, b, lowest):
    """Return the max-marginal of a mini-bucket: its largest sum for every value of its variable, (x_size,)."""
    parts = split_bucket(program, b)
    width, x_size = parts[1], parts[2]
    block = np.full((x_size, width), lowest, dtype=arena.dtype)
    join(arena, block, *parts, lowest, MAX_MARGINAL, 0, program.cells[b] // (x_size * width))
    best = np.empty(x_size, dtype=arena.dtype)
    for x in range(x_size):
        best[x] = block[x].max()
    return best


@njit(nogil=True, allocates=False)
def root_range(marginal, lowest):
    """Return the square root of (largest − least finite value) of a max-marginal; 0 without finite values."""
    half = lowest / 2
    low, high = np.inf, -np.inf
    for value in marginal:
        if value >= half and value > lowest:
            low, high = min(low, float(value)), max(high, float(value))
    return math.sqrt(high - low) if high > low else 0.0


@njit(nogil=True)
def equalise_max_marginals(marginals, shifts, total_magnitude, lowest):
    """Compute the cost shifts that equalise m max-marginals; return each mini-bucket's largest |shift|, (m,).

    The shift of mini-bucket k is w_k · S(x) − m_k(x), where m_k is its max-marginal, S(x) the sum of all of them, and
    w_k = √range(m_k) / Σ √range. The max-marginal of mini-bucket k thus becomes the share w_k of S(x). The shifts add
    up to zero exactly for every x: the mini-bucket with the largest weight takes the rounding remainder, and floats are
    rounded to a grid on which sums are exact. A value that one mini-bucket forbids is forbidden in all of them, since
    it cannot be part of a finite sum.

    Parameters
    ----------
    marginals : (m, x_size)
        The max-marginals, in the dtype of the arithmetic.
    shifts : (m, x_size)
        The shifts, written in place.
    total_magnitude : float
        The total magnitude, to which the grid is relative.
    """
    m, x_size = marginals.shape
    number = marginals.dtype.type
    half = lowest / 2
    grid = 0.0
    if number(0.5) > 0:  # floating-point numbers
        # 1e-290 keeps the grid a normal number if all tables are zero
        grid = math.ldexp(1.0, math.frexp(max(total_magnitude, 1e-290))[1] - _GRID_BITS)
    weight, total_weight = np.empty(m), 0.0
    for k in range(m):
        weight[k] = root_range(marginals[k], lowest)
        total_weight += weight[k]
    heaviest = np.argmax(weight)
    # no division by zero if all max-marginals are constant: all weights are zero then
    weight /= max(total_weight, 1e-300)
    largest = np.zeros(m, dtype=marginals.dtype)
    for x in range(x_size):
        is_forbidden = False
        sum_of_marginals = number(0)
        for k in range(m):
            is_forbidden |= marginals[k, x] <= lowest or marginals[k, x] < half
            sum_of_marginals += marginals[k, x]
        if is_forbidden:
            shifts[:, x] = lowest
            continue
        sum_of_others = number(0)
        for k in range(m):
            if k != heaviest:
                if grid > 0:
                    shift = number(np.rint((weight[k] * sum_of_marginals - marginals[k, x]) / grid) * grid)
                else:
                    shift = number(number(np.rint(weight[k] * sum_of_marginals)) - marginals[k, x])
                shifts[k, x] = shift
                sum_of_others += shift
        shifts[heaviest, x] = -sum_of_others
        for k in range(m):
            largest[k] = max(largest[k], abs(shifts[k, x]))
    return largest


@njit(nogil=True, allocates=False)
def magnitude_of(entries, lowest):
    """Return the largest finite |entry|."""
    half = lowest / 2
    magnitude = entries.dtype.type(0)
    for i in range(entries.size):
        entry = entries[i]
        if entry >= half and entry > lowest:
            magnitude = max(magnitude, abs(entry))
    return magnitude


@njit(nogil=True)
def table_entries(program, arena, t):
    """Return the entries of table ``t`` as a view, (entries,)."""
    size = 1
    for s in range(program.scope_start[t], program.scope_start[t + 1]):
        size *= program.domains[program.scope[s]]
    return arena[program.at[t] : program.at[t] + size]


@njit(nogil=True)
def measure_inputs(program, arena, magnitudes, state, lowest):
    """Set the magnitudes of the input tables and the total magnitude."""
    for t in range(program.at.size - program.variable.size):
        magnitudes[t] = magnitude_of(table_entries(program, arena, t), lowest)
        state[TOTAL] += magnitudes[t]
    state[PEAK] = state[TOTAL]


@njit(nogil=True)
def set_shifts(program, arena, state, first, last, marginals, limit, lowest):
    """Write the cost-shift tables of mini-buckets ``first`` to ``last`` − 1, or zeros if sums might exceed ``limit``.

    Zeros, an omitted shift, leave the bound valid but looser.

    Parameters
    ----------
    state : (4,)
        The total magnitude and the counts; updated.
    marginals : (last − first, x_size)
        The max-marginals of the mini-buckets.
    limit
        Largest admissible total magnitude.
    """
    shifts = np.zeros_like(marginals)
    largest = equalise_max_marginals(marginals, shifts, float(state[TOTAL]), lowest)
    after = state[TOTAL]
    for k in range(last - first):
        if after <= limit:
            after += largest[k]
    if after > limit or last - first > _MAX_SHIFTS:
        shifts[:] = 0
        state[SKIPPED] += last - first
    else:
        state[PEAK] = max(state[PEAK], after)
        state[SHIFTS] += last - first
    for k in range(last - first):
        copy_entries(shifts[k], table_entries(program, arena, program.inputs[program.input_start[first + k + 1] - 1]))


@njit(nogil=True)
def measure_messages(program, arena, magnitudes, state, first, last, lowest):
    """Compute the magnitudes of the new messages of buckets ``first`` to ``last`` − 1 and update the total."""
    for b in range(first, last):
        output = program.at.size - program.variable.size + b
        magnitudes[output] = magnitude_of(table_entries(program, arena, output), lowest)
    update_total(program, magnitudes, state, first, last)


@njit(nogil=True, allocates=False)
def update_total(program, magnitudes, state, first, last):
    """Update the total magnitude: subtract the inputs of buckets ``first`` to ``last`` − 1, add their messages."""
    for b in range(first, last):
        for i in range(program.input_start[b], program.input_start[b + 1]):
            state[TOTAL] -= magnitudes[program.inputs[i]]
        state[TOTAL] += magnitudes[program.at.size - program.variable.size + b]
    state[PEAK] = max(state[PEAK], state[TOTAL])


@njit(nogil=True)
def run_matched(program, arena, magnitudes, state, first, last, limit, lowest):
    """Run buckets ``first`` to ``last`` − 1 (whole variables) on one thread; match a variable's mini-buckets first.

    ``limit`` is the largest admissible total magnitude. Variables with a single bucket are not matched.
    """
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
            out = table_entries(program, arena, program.at.size - program.variable.size + i).reshape(rows, width)
            join(arena, out, *parts, lowest, MAXIMUM, 0, rows)
        measure_messages(program, arena, magnitudes, state, b, end, lowest)
        b = end
