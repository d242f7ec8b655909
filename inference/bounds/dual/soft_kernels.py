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

from dmcmc.inference.bounds.dual.pair_kernels import DEAD
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


@njit(nogil=True)
def cooled(warmth, sweep, sweeps):
    """Return the temperature of a sweep of so many: two thirds of them cool, the others have none; none of a few."""
    warm = sweeps * 2 // 3 if sweeps >= LEAST_SWEEPS else 0
    return np.float32(warmth * COLD ** np.float32(sweep / warm)) if sweep < warm else np.float32(0)


@njit(nogil=True, error_model="numpy")
def soft_plus(left, right, out, rows, inner, columns, temperature, room):
    """Set out[i, j] to about T log of the sum over k of exp((left[i, k] + right[k, j]) / T), no less than the maximum.

    ``room`` is (4, W, W) int32; rows is even, inner is a multiple of 4.
    """
    slope = np.float32(STEP * np.float32(1.4426950408889634) / temperature)
    back = np.float32(1 / slope)
    up = np.int32(temperature * UP) + np.int32(1)
    tops, best = room[3, 0], room[3, 1]
    exps_left, exps_right, sums = room[0].view(np.float32), room[1].view(np.float32), room[2].view(np.float32)
    for j in range(columns):
        best[j] = DEAD
    for k in range(inner):
        for j in range(columns):
            best[j] = max(best[j], right[k, j])
    for k in range(inner):
        for j in range(columns):
            power = TOP + np.float32(np.int32(right[k, j] - best[j])) * slope
            room[1, k, j] = np.int32(power if power > ZERO else np.float32(0))
    for i in range(rows):
        top = DEAD
        for k in range(inner):
            top = max(top, left[i, k])
        tops[i] = top
        for k in range(inner):
            power = TOP + np.float32(np.int32(left[i, k] - top)) * slope
            room[0, i, k] = np.int32(power if power > ZERO else np.float32(0))
    for i in range(0, rows, 2):
        for j in range(columns):
            sums[i, j] = np.float32(0)
            sums[i + 1, j] = np.float32(0)
        for k in range(0, inner, 4):
            p0, p1, p2, p3 = exps_left[i, k], exps_left[i, k + 1], exps_left[i, k + 2], exps_left[i, k + 3]
            q0, q1 = exps_left[i + 1, k], exps_left[i + 1, k + 1]
            q2, q3 = exps_left[i + 1, k + 2], exps_left[i + 1, k + 3]
            for j in range(columns):
                r0, r1, r2, r3 = exps_right[k, j], exps_right[k + 1, j], exps_right[k + 2, j], exps_right[k + 3, j]
                sums[i, j] += (p0 * r0 + p1 * r1) + (p2 * r2 + p3 * r3)
                sums[i + 1, j] += (q0 * r0 + q1 * r1) + (q2 * r2 + q3 * r3)
    for i in range(rows):
        least = LEAST
        for j in range(columns):
            least = min(least, sums[i, j])
            beyond = np.int32((np.float32(room[2, i, j]) - PRODUCT) * back)
            out[i, j] = np.int32(np.int32(tops[i] + best[j]) + np.int32(beyond + up))
        if least < LEAST:  # an entry's terms are all too small
            most = room[3, 2]
            for j in range(columns):
                most[j] = DEAD
            for k in range(inner):
                here = left[i, k]
                for j in range(columns):
                    most[j] = max(most[j], np.int32(here + right[k, j]))
            for j in range(columns):
                out[i, j] = most[j] if sums[i, j] < LEAST else out[i, j]
