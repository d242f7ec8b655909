# mypy: ignore-errors
"""Triangles' marginals when maxima are smoothed: dual ascent at a temperature does not get stuck where it would.

Ascent by maxima ends where no table alone lets the bound fall, which may be far above what several together would
allow. With log-sum-exp in place of the maximum the bound is smooth, and the same shifts go down to its minimum; cooled,
that is the bound's (Savchynskyy, Schmidt, Kappes, Schnörr, UAI 2012).

Whatever is shifted, no sum of shares changes. A triangle that hands back no less than its max-marginals is left with
nothing above 0, as the bound has it; so what matters of these numbers is that they are never below the maxima.
Exponentials and logarithms are the straight lines between powers of two that a float's bits are (Schraudolph, Neural
Computation 11, 1999). With E(2^a (1 + x)) = a + x for 0 <= x < 1 the logarithm of a product is never below the sum:
(1 + x)(1 + y) = 1 + x + y + xy, and where that is 2 or more, half of it is beyond x + y by (1 - x)(1 - y) / 2.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from dmcmc.inference.bounds.dual.pair_kernels import DEAD
from dmcmc.inference.bounds.dual.tables.maxima_kernels import column_maxima
from dmcmc.inference.bounds.dual.tables.product_kernels import plus_times
from dmcmc.inference.bounds.dual.tables.vectors import FLOAT, INTEGER, LANES, Table, constant, splat
from dmcmc.inference.runtime.compile import njit

SCRATCH = 6  # tables that sweeps work in: two for products, four that smoothed ones take
STEP = np.float32(1 << 23)  # of a float's bits for a power of two
_HIGH = 58  # the largest exponential of a table is 2 to this; so products of up to 2,048 terms are below 2^127,
TOP = np.float32((127 + _HIGH) << 23)  # (its bits,)
ZERO = np.float32((127 - 63) << 23)  # and none of those with bits above these is subnormal, which would be slow
PRODUCT = np.float32((127 + 2 * _HIGH) << 23)  # the bits of the largest product
LEAST = np.float32(1)  # a sum below this may have lost its largest term
UP = np.float32(2.0**-12)  # of the temperature is more than all that is lost by rounding
LEAST_SWEEPS = 8  # fewer do not make up for what warm ones leave
COLD = np.float32(0.2)  # of the first temperature is the last one's
ROWS = np.float32(0.25)  # of the first temperature with the interface free is a row's, which begins where that ends


@njit(nogil=True)
def cooled(warmth, sweep, sweeps):
    """Return the temperature of a sweep of so many: two thirds of them cool, the others have none; none of a few."""
    warm = sweeps * 2 // 3 if sweeps >= LEAST_SWEEPS else 0
    return np.float32(warmth * COLD ** np.float32(sweep / warm)) if sweep < warm else np.float32(0)


def _naive_powers(table, tops, i, j, one, slope, out):
    """Write the exponentials of some entries of row i less their tops: ``tops[i]``, or ``tops[j]`` for each."""
    top = tops[i] if one else tops[j : j + LANES]
    power = TOP + (table[i, j : j + LANES] - top).astype(np.float32) * slope
    out[i, j : j + LANES] = np.where(power > ZERO, power, np.float32(0)).astype(np.int32)


def _naive_logarithms(bits, tops, best, i, j, back, up, out):
    """Write the logarithms of some sums of row i, their tops added; return whether a sum is too small."""
    beyond = ((bits[i, j : j + LANES].astype(np.float32) - PRODUCT) * back).astype(np.int32)
    out[i, j : j + LANES] = tops[i] + best[j : j + LANES] + (beyond + up)
    return int((bits[i, j : j + LANES].view(np.float32) < LEAST).any())


if config.DISABLE_JIT:
    _powers, _logarithms = _naive_powers, _naive_logarithms
else:
    _INTEGERS, _FLOATS = ir.VectorType(INTEGER, LANES), ir.VectorType(FLOAT, LANES)

    def _emit_powers(context, builder, signature, arguments):
        table, tops, i, j, one, slope, out = arguments
        kinds = signature.args
        table, out = Table(context, builder, kinds[0], table), Table(context, builder, kinds[6], out)
        tops = Table(context, builder, kinds[1], tops)
        top = splat(builder, tops.load(None, i, INTEGER), LANES)
        top = builder.select(one, top, tops.load(None, j, _INTEGERS))
        power = builder.sitofp(builder.sub(table.load(i, j, _INTEGERS), top), _FLOATS)
        power = builder.fadd(builder.fmul(power, splat(builder, slope, LANES)), constant(FLOAT, LANES, float(TOP)))
        some = builder.fcmp_ordered(">", power, constant(FLOAT, LANES, float(ZERO)))
        power = builder.select(some, power, constant(FLOAT, LANES, 0.0))
        out.store(i, j, builder.fptosi(power, _INTEGERS))
        return context.get_dummy_value()

    @intrinsic
    def _powers(context, table, tops, i, j, one, slope, out):
        kinds = types.intp, types.intp, types.boolean, types.float32
        return types.void(table, tops, *kinds, out), _emit_powers

    def _emit_logarithms(context, builder, signature, arguments):
        bits, tops, best, i, j, back, up, out = arguments
        kinds = signature.args
        bits, out = Table(context, builder, kinds[0], bits), Table(context, builder, kinds[7], out)
        tops, best = Table(context, builder, kinds[1], tops), Table(context, builder, kinds[2], best)
        found = bits.load(i, j, _INTEGERS)
        beyond = builder.fsub(builder.sitofp(found, _FLOATS), constant(FLOAT, LANES, float(PRODUCT)))
        beyond = builder.fptosi(builder.fmul(beyond, splat(builder, back, LANES)), _INTEGERS)
        top = builder.add(splat(builder, tops.load(None, i, INTEGER), LANES), best.load(None, j, _INTEGERS))
        out.store(i, j, builder.add(top, builder.add(beyond, splat(builder, up, LANES))))
        few = builder.fcmp_ordered("<", builder.bitcast(found, _FLOATS), constant(FLOAT, LANES, float(LEAST)))
        return builder.zext(builder.bitcast(few, ir.IntType(LANES)), ir.IntType(64))

    @intrinsic
    def _logarithms(context, bits, tops, best, i, j, back, up, out):
        kinds = types.intp, types.intp, types.float32, types.int32
        return types.int64(bits, tops, best, *kinds, out), _emit_logarithms


@njit(nogil=True, error_model="numpy")
def soft_plus(left, right, out, rows, inner, columns, temperature, room):
    """Set out[i, j] to about T log of the sum over k of exp((left[i, k] + right[k, j]) / T), no less than the maximum.

    ``room`` is (4, W, W) int32; rows, inner and columns are multiples of 8.
    """
    slope = np.float32(STEP * np.float32(1.4426950408889634) / temperature)
    back = np.float32(1 / slope)
    up = np.int32(temperature * UP) + np.int32(1)
    tops, best = room[3, 0], room[3, 1]
    exps_left, exps_right, sums = room[0].view(np.float32), room[1].view(np.float32), room[2].view(np.float32)
    column_maxima(right, inner, columns, best)
    for k in range(inner):
        for j in range(0, columns, LANES):
            _powers(right, best, k, j, False, slope, room[1])
    for i in range(rows):
        top = DEAD
        for k in range(inner):
            top = max(top, left[i, k])
        tops[i] = top
        for k in range(0, inner, LANES):
            _powers(left, tops, i, k, True, slope, room[0])
    plus_times(exps_left, exps_right, sums, rows, inner, columns)
    for i in range(rows):
        few = 0
        for j in range(0, columns, LANES):
            few |= _logarithms(room[2], tops, best, i, j, back, up, out)
        if few != 0:
            _exact_where_few(left, right, out[i], i, inner, columns, sums[i], room[3, 2])


@njit(nogil=True)
def _exact_where_few(left, right, out, i, inner, columns, sums, most):
    """Set those entries of a row to the maxima whose terms are all too small."""
    for j in range(columns):
        most[j] = DEAD
    for k in range(inner):
        here = left[i, k]
        for j in range(columns):
            most[j] = max(most[j], np.int32(here + right[k, j]))
    for j in range(columns):
        out[j] = most[j] if sums[j] < LEAST else out[j]
