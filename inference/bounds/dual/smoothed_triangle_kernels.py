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

from dmcmc.inference.bounds.dual.tables.llvm_vectors import LANES
from dmcmc.inference.bounds.dual.tables.log_sum_exp_kernels import (
    STEP,
    logarithms,
    powers_of_columns,
    powers_of_rows,
    put_where_few,
)
from dmcmc.inference.bounds.dual.tables.product_kernels import NARROW, larger_narrow, plus_times
from dmcmc.inference.bounds.dual.tables.product_kernels import ROWS as BAND
from dmcmc.inference.runtime.compile import njit

SCRATCH = 6  # tables that sweeps work in: two for products, four that smoothed ones take
UP = np.float32(2.0**-12)  # of the temperature is more than all that is lost by rounding
_OF_E = np.float32(1.4426950408889634)  # powers of two that e is
LEAST_SWEEPS = 8  # fewer do not make up for what warm ones leave
COLD = np.float32(0.2)  # of the first temperature is the last one's
ROWS = np.float32(0.25)  # of the first temperature with the interface free is a row's, which begins where that ends


@njit(nogil=True)
def cooled(warmth, sweep, sweeps):
    """Return the temperature of a sweep of so many: two thirds of them cool, the others have none; none of a few."""
    warm = sweeps * 2 // 3 if sweeps >= LEAST_SWEEPS else 0
    return np.float32(warmth * COLD ** np.float32(sweep / warm)) if sweep < warm else np.float32(0)


@njit(nogil=True)
def padded(size):
    """Return a number of columns with those that make it a multiple of 8."""
    return (size + LANES - 1) // LANES * LANES


@njit(nogil=True, error_model="numpy")
def soft_plus(left, right, out, rows, inner, columns, temperature, room):
    """Set out[i, j] to about T log of the sum over k of exp((left[i, k] + right[k, j]) / T), no less than the maximum.

    ``room`` is (4, W, W) int32; ``rows`` is a multiple of 4, ``columns`` of 8, ``inner`` any number from 1 on, where
    what is behind so many entries of a row of ``left``, up to a multiple of 8, is dead.
    """
    slope = np.float32(STEP * _OF_E / temperature)
    powers_of_rows(left, rows, padded(inner), slope, room[3, 0], room[0])
    powers_of_columns(right, inner, columns, slope, room[3, 1], room[1])
    plus_times(room[0].view(np.float32), room[1].view(np.float32), room[2].view(np.float32), rows, inner, columns)
    _take_logarithms(left, right, out, rows, inner, columns, temperature, slope, room)


@njit(nogil=True, error_model="numpy")
def soft_plus_turned(turned, right, out, rows, inner, columns, temperature, room):
    """As :func:`soft_plus` of ``turned`` transposed, (inner, rows), and ``right``."""
    slope = np.float32(STEP * _OF_E / temperature)
    powers_of_columns(turned, inner, padded(rows), slope, room[3, 0], room[0])
    powers_of_columns(right, inner, columns, slope, room[3, 1], room[1])
    plus_times(room[0].view(np.float32).T, room[1].view(np.float32), room[2].view(np.float32), rows, inner, columns)
    _take_logarithms(turned.T, right, out, rows, inner, columns, temperature, slope, room)


@njit(nogil=True, error_model="numpy")
def _take_logarithms(left, right, out, rows, inner, columns, temperature, slope, room):
    """Set ``out`` to the logarithms of sums of powers, and to maxima where all terms of a sum are too small."""
    back, up = np.float32(1 / slope), np.int32(temperature * UP) + np.int32(1)
    exact, bits, tops, best = room[0], room[2], room[3, 0], room[3, 1]
    for i in range(0, rows, BAND):
        for j in range(0, columns, NARROW):
            few, last = 0, min(rows, i + BAND)
            for row in range(i, last):
                few |= logarithms(bits, tops, best, row, j, back, up, out)
            if few != 0:
                larger_narrow(left, right, exact, i, j, inner)
                for row in range(i, last):
                    put_where_few(bits, exact, row, j, out)
