# mypy: ignore-errors
"""Exponentials of a table's entries, and logarithms of sums of their products: eight entries at a time.

Both are the straight lines between powers of two that a float's bits are (Schraudolph, Neural Computation 11, 1999).
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, THRESHOLD
from dmcmc.inference.bounds.dual.tables.llvm_vectors import (
    FLOAT,
    INTEGER,
    LANES,
    Table,
    blocks,
    constant,
    larger,
    largest,
    repeated,
    splat,
    times,
)
from dmcmc.inference.runtime.compile import njit

STEP = np.float32(1 << 23)  # of a float's bits for a power of two
_HIGH = 58  # the largest exponential of a table is 2 to this; so products of up to 2,048 terms are below 2^127,
TOP = np.float32((127 + _HIGH) << 23)  # (its bits,)
ZERO = np.float32((127 - 63) << 23)  # and none of those with bits above these is subnormal, which would be slow
PRODUCT = np.float32((127 + 2 * _HIGH) << 23)  # the bits of the largest product
LEAST = np.float32(1)  # a sum below this may have lost its largest term


def _naive_powers(entries, tops, slope):
    """Return the bits of the exponentials of some entries less their tops."""
    power = TOP + (entries - tops).astype(np.float32) * slope
    return np.where(power > ZERO, power, np.float32(0)).astype(np.int32)


def _naive_of_columns(table, j, count, slope, tops, out):
    """Write the exponentials of some columns from j on, over so many rows, less their largest entries; those too."""
    tops[j : j + LANES] = np.maximum(DEAD, table[:count, j : j + LANES].max(axis=0))
    out[:count, j : j + LANES] = _naive_powers(table[:count, j : j + LANES], tops[j : j + LANES], slope)


def _naive_of_row(table, i, columns, slope, tops, out):
    """Write the exponentials of a row less its largest entry; that too."""
    tops[i] = max(DEAD, table[i, :columns].max())
    out[i, :columns] = _naive_powers(table[i, :columns], tops[i], slope)


def _naive_logarithms(bits, tops, best, i, j, back, up, out):
    """Write the logarithms of some sums of row i, their tops added; return whether one is too small that matters.

    Where a top is dead, so is the sum.
    """
    beyond = ((bits[i, j : j + LANES].astype(np.float32) - PRODUCT) * back).astype(np.int32)
    dead = np.minimum(tops[i], best[j : j + LANES]) < THRESHOLD
    out[i, j : j + LANES] = np.where(dead, DEAD, tops[i] + best[j : j + LANES] + (beyond + up))
    return int((~dead & (bits[i, j : j + LANES].view(np.float32) < LEAST)).any())


def _naive_put_where_few(bits, exact, i, j, out):
    """Write those of some exact entries of row i whose sums are too small."""
    few = bits[i, j : j + LANES].view(np.float32) < LEAST
    out[i, j : j + LANES][few] = exact[i, j : j + LANES][few]


if config.DISABLE_JIT:
    _of_columns, _of_row = _naive_of_columns, _naive_of_row
    logarithms, put_where_few = _naive_logarithms, _naive_put_where_few
else:
    _INTEGERS, _FLOATS = ir.VectorType(INTEGER, LANES), ir.VectorType(FLOAT, LANES)
    _DEADS = constant(INTEGER, LANES, int(DEAD))

    def _power(builder, entries, top, slope):
        power = builder.fmul(builder.sitofp(builder.sub(entries, top), _FLOATS), slope)
        power = builder.fadd(power, constant(FLOAT, LANES, float(TOP)))
        some = builder.fcmp_ordered(">", power, constant(FLOAT, LANES, float(ZERO)))
        return builder.fptosi(builder.select(some, power, constant(FLOAT, LANES, 0.0)), _INTEGERS)

    def _emit_of_columns(context, builder, signature, arguments):
        table, j, count, slope, tops, out = arguments
        table, tops, out = (Table(context, builder, signature.args[n], arguments[n]) for n in (0, 4, 5))
        slopes = splat(builder, slope, LANES)

        def find(k, found):
            return [larger(builder, table.load(k, j, _INTEGERS), *found)]

        (top,) = repeated(builder, count, [_DEADS], find)
        tops.store(None, j, top)

        def write(k, _):
            out.store(k, j, _power(builder, table.load(k, j, _INTEGERS), top, slopes))
            return []

        repeated(builder, count, [], write)
        return context.get_dummy_value()

    def _emit_of_row(context, builder, signature, arguments):
        table, i, columns, slope, tops, out = arguments
        table, tops, out = (Table(context, builder, signature.args[n], arguments[n]) for n in (0, 4, 5))
        slopes = splat(builder, slope, LANES)
        most = largest(builder, table.row_maxima(i, columns, _DEADS))
        tops.store(None, i, most)
        top = splat(builder, most, LANES)

        def write(k, _):
            j = times(builder, k, LANES)
            out.store(i, j, _power(builder, table.load(i, j, _INTEGERS), top, slopes))
            return []

        repeated(builder, blocks(builder, columns), [], write)
        return context.get_dummy_value()

    def _few(builder, bits):
        return builder.fcmp_ordered("<", builder.bitcast(bits, _FLOATS), constant(FLOAT, LANES, float(LEAST)))

    def _emit_logarithms(context, builder, signature, arguments):
        bits, tops, best, i, j, back, up, out = arguments
        bits, tops, best, out = (Table(context, builder, signature.args[n], arguments[n]) for n in (0, 1, 2, 7))
        found = bits.load(i, j, _INTEGERS)
        beyond = builder.fsub(builder.sitofp(found, _FLOATS), constant(FLOAT, LANES, float(PRODUCT)))
        beyond = builder.fptosi(builder.fmul(beyond, splat(builder, back, LANES)), _INTEGERS)
        left, right = splat(builder, tops.load(None, i, INTEGER), LANES), best.load(None, j, _INTEGERS)
        value = builder.add(builder.add(left, right), builder.add(beyond, splat(builder, up, LANES)))
        lower = builder.select(builder.icmp_signed("<", left, right), left, right)
        live = builder.icmp_signed(">=", lower, constant(INTEGER, LANES, int(THRESHOLD)))
        out.store(i, j, builder.select(live, value, _DEADS))
        few = builder.and_(_few(builder, found), live)
        return builder.zext(builder.bitcast(few, ir.IntType(LANES)), ir.IntType(64))

    def _emit_put_where_few(context, builder, signature, arguments):
        bits, exact, i, j, out = arguments
        bits, exact, out = (Table(context, builder, signature.args[n], arguments[n]) for n in (0, 1, 4))
        few = _few(builder, bits.load(i, j, _INTEGERS))
        out.store(i, j, builder.select(few, exact.load(i, j, _INTEGERS), out.load(i, j, _INTEGERS)))
        return context.get_dummy_value()

    @intrinsic
    def _of_columns(context, table, j, count, slope, tops, out):
        return types.void(table, types.intp, types.intp, types.float32, tops, out), _emit_of_columns

    @intrinsic
    def _of_row(context, table, i, columns, slope, tops, out):
        return types.void(table, types.intp, types.intp, types.float32, tops, out), _emit_of_row

    @intrinsic
    def logarithms(context, bits, tops, best, i, j, back, up, out):
        kinds = types.intp, types.intp, types.float32, types.int32
        return types.int64(bits, tops, best, *kinds, out), _emit_logarithms

    @intrinsic
    def put_where_few(context, bits, exact, i, j, out):
        return types.void(bits, exact, types.intp, types.intp, out), _emit_put_where_few


@njit(nogil=True)
def powers_of_columns(table, rows, columns, slope, tops, out):
    """Write the bits of the exponentials of entries less the largest ones of their columns; those to ``tops``.

    ``columns`` is a multiple of 8.
    """
    for j in range(0, columns, LANES):
        _of_columns(table, j, rows, slope, tops, out)


@njit(nogil=True)
def powers_of_rows(table, rows, columns, slope, tops, out):
    """Write the bits of the exponentials of entries less the largest ones of their rows; those to ``tops``.

    ``columns`` is a multiple of 8.
    """
    for i in range(rows):
        _of_row(table, i, columns, slope, tops, out)
