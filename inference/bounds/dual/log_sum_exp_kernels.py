# mypy: ignore-errors
"""Exponentials of table entries, and logarithms of sums of their products, eight entries at a time.

Together with a plus-times product they give a smoothed max-plus product (log-sum-exp): exponentiate both tables,
multiply, take logarithms. ``smoothed_triangle_kernels`` does this. Both functions are piecewise linear between powers
of two, as a float32's bit pattern is (Schraudolph, Neural Computation 11, 1999): the exponential of x is the float32
whose bit pattern is a linear function of x, and the logarithm of x is a linear function of its bit pattern.

Entries are exponentiated relative to their row's or column's maximum, so that the largest exponential is always 2^58.
``bits_per_unit`` is float32, the increase of the bit pattern per unit of an entry, which is larger at a lower
temperature. The ``_naive`` functions are NumPy twins of the intrinsics: they define what these compute, and run where
kernels are interpreted.

The intrinsics are written as functions that emit LLVM code with ``builder``; their other arguments are LLVM values.
"""

import numpy as np
from numba import types

from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW
from dmcmc.inference.bounds.dual.llvm_vectors import (
    FLOAT,
    FLOAT_LANES,
    FORBIDDEN_LANES,
    INTEGER,
    INTEGER_LANES,
    LANES,
    constant,
    emit_loop,
    is_forbidden,
    mask_as_integer,
    multiply_by,
    splat,
    vector_count,
    vector_intrinsic,
)
from dmcmc.inference.runtime.compile import njit

BITS_PER_DOUBLING = np.float32(1 << 23)  # a float32 that is twice as large has a bit pattern larger by this
_MAX_EXPONENT = 58  # a table's largest exponential is 2^58: sums of up to 2,048 products stay below 2^127
MAX_POWER_BITS = np.float32((127 + _MAX_EXPONENT) << 23)  # bit pattern of 2^58
# Bit pattern of 2^-63: smaller exponentials become 0, so that no product is subnormal, which would be slow.
MIN_POWER_BITS = np.float32((127 - 63) << 23)
MAX_PRODUCT_BITS = np.float32((127 + 2 * _MAX_EXPONENT) << 23)  # bit pattern of the largest product, 2^116
MIN_RELIABLE_SUM = np.float32(1)  # a smaller sum may have lost its largest term to underflow


def _naive_powers(entries, maxima, bits_per_unit):
    """Return the bit patterns (int32) of the exponentials of ``entries - maxima``, 0 where they are too small."""
    power = MAX_POWER_BITS + (entries - maxima).astype(np.float32) * bits_per_unit
    return np.where(power > MIN_POWER_BITS, power, np.float32(0)).astype(np.int32)


def _naive_exponentiate_columns(table, j, count, bits_per_unit, maxima, out):
    """Write the maxima of eight columns, from j on, over ``count`` rows, and the exponentials to ``out``."""
    entries = table[:count, j : j + LANES]
    end = j + entries.shape[1]  # what the intrinsic writes beyond the table's columns is not used
    maxima[j:end] = np.maximum(FORBIDDEN, entries.max(axis=0))
    out[:count, j:end] = _naive_powers(entries, maxima[j:end], bits_per_unit)


def _naive_exponentiate_row(table, i, columns, bits_per_unit, maxima, out):
    """Write the maximum of row i to ``maxima[i]``, and the exponentials of the row to ``out``."""
    maxima[i] = max(FORBIDDEN, table[i, :columns].max())
    out[i, :columns] = _naive_powers(table[i, :columns], maxima[i], bits_per_unit)


def _naive_write_logarithms(bits, row_maxima, column_maxima, i, j, units_per_bit, margin, out):
    """Write the smoothed maxima of eight entries of row i, from column j on; return 1 if one of them is unreliable.

    An entry is ``row_maxima[i] + column_maxima[j]`` plus the scaled logarithm of its sum; it is forbidden if one of
    both maxima is. It is unreliable if its sum is below ``MIN_RELIABLE_SUM``.

    Parameters
    ----------
    bits : (rows, columns) int32
        Bit patterns of the float32 sums of products.
    row_maxima : (rows,) int32
        Row maxima of the left table.
    column_maxima : (columns,) int32
        Column maxima of the right table.
    i, j : int
    units_per_bit : float32
        Entry units per bit, the reciprocal of ``bits_per_unit``.
    margin : int32
        Added to each result, so that rounding never takes it below the exact maximum.
    out : (rows, columns) int32
    """
    excess = ((bits[i, j : j + LANES].astype(np.float32) - MAX_PRODUCT_BITS) * units_per_bit).astype(np.int32)
    forbidden = np.minimum(row_maxima[i], column_maxima[j : j + LANES]) < FORBIDDEN_BELOW
    out[i, j : j + LANES] = np.where(
        forbidden, FORBIDDEN, row_maxima[i] + column_maxima[j : j + LANES] + (excess + margin)
    )
    return int((~forbidden & (bits[i, j : j + LANES].view(np.float32) < MIN_RELIABLE_SUM)).any())


def _naive_replace_small_sums(bits, exact, i, j, out):
    """Copy eight entries of row i, from column j on, from ``exact`` to ``out`` where ``bits`` are unreliable."""
    unreliable = bits[i, j : j + LANES].view(np.float32) < MIN_RELIABLE_SUM
    out[i, j : j + LANES][unreliable] = exact[i, j : j + LANES][unreliable]


def _power(builder, entries, top, bits_per_unit):
    """Emit the bit patterns of the exponentials of eight entries relative to ``top``."""
    power = builder.fmul(builder.sitofp(builder.sub(entries, top), FLOAT_LANES), bits_per_unit)
    power = builder.fadd(power, constant(FLOAT, LANES, float(MAX_POWER_BITS)))
    representable = builder.fcmp_ordered(">", power, constant(FLOAT, LANES, float(MIN_POWER_BITS)))
    return builder.fptosi(builder.select(representable, power, constant(FLOAT, LANES, 0.0)), INTEGER_LANES)


@vector_intrinsic(_naive_exponentiate_columns)
def _exponentiate_columns(builder, table, j, count, bits_per_unit, maxima, out):
    """Emit the maxima and exponentials of eight columns."""
    rates, top = splat(builder, bits_per_unit, LANES), table.column_maxima(j, count)
    maxima.store(None, j, top)

    def write(k, _):
        """Store the exponentials of row k."""
        out.store(k, j, _power(builder, table.load(k, j, INTEGER_LANES), top, rates))
        return []

    emit_loop(builder, count, [], write)


@vector_intrinsic(_naive_exponentiate_row)
def _exponentiate_row(builder, table, i, columns, bits_per_unit, maxima, out):
    """Emit the maximum and exponentials of a row."""
    rates, largest = splat(builder, bits_per_unit, LANES), table.row_maximum(i, columns)
    maxima.store(None, i, largest)
    maximum_lanes = splat(builder, largest, LANES)

    def write(k, _):
        """Store the exponentials of the k-th vector of the row."""
        j = multiply_by(builder, k, LANES)
        out.store(i, j, _power(builder, table.load(i, j, INTEGER_LANES), maximum_lanes, rates))
        return []

    emit_loop(builder, vector_count(builder, columns), [], write)


def _below_reliable(builder, bits):
    """Return a mask of the sums below ``MIN_RELIABLE_SUM``."""
    return builder.fcmp_ordered(
        "<", builder.bitcast(bits, FLOAT_LANES), constant(FLOAT, LANES, float(MIN_RELIABLE_SUM))
    )


@vector_intrinsic(_naive_write_logarithms, types.int64)
def write_logarithms(builder, bits, row_maxima, column_maxima, i, j, units_per_bit, margin, out):
    """Emit eight smoothed maxima of a row."""
    sum_bits = bits.load(i, j, INTEGER_LANES)
    excess = builder.fsub(builder.sitofp(sum_bits, FLOAT_LANES), constant(FLOAT, LANES, float(MAX_PRODUCT_BITS)))
    excess = builder.fptosi(builder.fmul(excess, splat(builder, units_per_bit, LANES)), INTEGER_LANES)
    left, right = splat(builder, row_maxima.load(None, i, INTEGER), LANES), column_maxima.load(None, j, INTEGER_LANES)
    value = builder.add(builder.add(left, right), builder.add(excess, splat(builder, margin, LANES)))
    smaller = builder.select(builder.icmp_signed("<", left, right), left, right)
    allowed = builder.not_(is_forbidden(builder, smaller))
    out.store(i, j, builder.select(allowed, value, FORBIDDEN_LANES))
    return mask_as_integer(builder, builder.and_(_below_reliable(builder, sum_bits), allowed))


@vector_intrinsic(_naive_replace_small_sums)
def replace_small_sums(builder, bits, exact, i, j, out):
    """Emit the copy of exact entries to where the sums are unreliable."""
    unreliable = _below_reliable(builder, bits.load(i, j, INTEGER_LANES))
    out.store(i, j, builder.select(unreliable, exact.load(i, j, INTEGER_LANES), out.load(i, j, INTEGER_LANES)))


@njit(nogil=True, allocates=False)
def exponentiate_columns(table, rows, columns, bits_per_unit, maxima, out):
    """Write the column maxima, and the exponentials of the entries relative to them.

    Parameters
    ----------
    table : (>= rows, >= columns) int32
    rows, columns : int
        ``columns`` is a multiple of 8.
    bits_per_unit : float32
        Increase of the bit pattern per unit of an entry.
    maxima : (>= columns,) int32
        Receives the maxima, at least ``FORBIDDEN``.
    out : (>= rows, >= columns) int32
        Bit patterns of float32 numbers.
    """
    for j in range(0, columns, LANES):
        _exponentiate_columns(table, j, rows, bits_per_unit, maxima, out)


@njit(nogil=True, allocates=False)
def exponentiate_rows(table, rows, columns, bits_per_unit, maxima, out):
    """Write the row maxima, and the exponentials of the entries relative to them.

    Parameters
    ----------
    table, rows, columns, bits_per_unit, out
        As for ``exponentiate_columns``.
    maxima : (>= rows,) int32
        Receives the maxima, at least ``FORBIDDEN``.
    """
    for i in range(rows):
        _exponentiate_row(table, i, columns, bits_per_unit, maxima, out)
