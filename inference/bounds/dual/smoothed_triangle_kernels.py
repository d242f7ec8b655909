# mypy: ignore-errors
"""Smoothed max-marginals of triangles: dual ascent at a positive temperature.

Block-coordinate ascent on the maxima gets stuck where no change of a single table lowers the bound, which may be far
above the minimum that changes of several tables together reach. With log-sum-exp in place of the maximum the bound is
smooth, and the same messages converge to its minimum. As the temperature is annealed to 0, that minimum becomes the
minimum of the exact bound (Savchynskyy, Schmidt, Kappes, Schnörr, UAI 2012).

Messages never change the sum of the tables, whatever their values are. After it has sent at least its max-marginals, a
triangle has no entry above 0, as the bound assumes. So the smoothed products only have to be at least the exact maxima.

Exponentials and logarithms are piecewise linear between powers of two, as a float's bit pattern is (Schraudolph, Neural
Computation 11, 1999). Let E(2^a (1 + x)) = a + x for 0 <= x < 1 be this approximate binary logarithm. Then the
logarithm of a product is never below the sum of the logarithms: (1 + x)(1 + y) = 1 + x + y + xy, and where that is 2 or
more, its half exceeds x + y by (1 - x)(1 - y) / 2.

A triangle is a triplet region of three variables with one table per pair; its max-marginal over a pair is that pair's
table plus a max-plus product of the other two tables. ``triangle_kernels`` calls the two smoothed products. W is the
number of columns of a table. The four tables of ``workspace`` are: the exponentials of the left and of the right table,
the sums of their products (all three as float32 bit patterns), and one table whose first two rows hold the left table's
row maxima and the right table's column maxima.
"""

import numpy as np

from dmcmc.inference.bounds.contract.tuning import FINAL_TEMPERATURE_RATIO, MIN_ANNEALED_SWEEPS
from dmcmc.inference.bounds.dual.llvm_vectors import LANES
from dmcmc.inference.bounds.dual.log_sum_exp_kernels import (
    BITS_PER_DOUBLING,
    exponentiate_columns,
    exponentiate_rows,
    replace_small_sums,
    write_logarithms,
)
from dmcmc.inference.bounds.dual.message_kernels import (
    NARROW_COLUMNS,
    TILE_ROWS,
    max_plus_tile,
    plus_times,
    short_max_plus_tile,
)
from dmcmc.inference.runtime.compile import njit

SCRATCH_TABLES = 6  # tables of workspace for a sweep: two for the products and four for smoothed products
ROUNDING_MARGIN = np.float32(2.0**-12)  # of the temperature: exceeds all rounding errors of a smoothed product
_LOG2_E = np.float32(1.4426950408889634)  # log2(e)


@njit(nogil=True, allocates=False)
def annealed_temperature(initial_temperature, sweep, sweeps):
    """Return the temperature of a sweep: geometric annealing over the first two thirds of the sweeps, then 0.

    With A annealed sweeps, sweep s has ``initial_temperature * FINAL_TEMPERATURE_RATIO ** (s / A)``. The temperature is
    always 0 if there are fewer than ``MIN_ANNEALED_SWEEPS`` sweeps. The GPU kernels use this source, too.

    Parameters
    ----------
    initial_temperature : float32
        Temperature of the first sweep, in units of the integer scale; 0 for exact maxima.
    sweep : int
        Number of this sweep, from 0 on.
    sweeps : int
        Number of all sweeps.
    """
    annealed = sweeps * 2 // 3 if sweeps >= MIN_ANNEALED_SWEEPS else 0
    if initial_temperature <= 0 or sweep >= annealed:
        return np.float32(0)
    return np.float32(initial_temperature * FINAL_TEMPERATURE_RATIO ** np.float32(sweep / annealed))


@njit(nogil=True, allocates=False)
def padded_size(size):
    """Return a number of columns rounded up to a multiple of 8."""
    return (size + LANES - 1) // LANES * LANES


@njit(nogil=True, error_model="numpy", allocates=False)
def smoothed_max_plus(left, right, out, rows, inner, columns, temperature, workspace):
    """Set ``out[i, j]`` to about T log of the sum over k of exp((left[i, k] + right[k, j]) / T), at least the maximum.

    Parameters
    ----------
    left : (>= rows, >= inner) int32
        Entries beyond column ``inner``, up to a multiple of 8, are forbidden.
    right : (>= inner, >= columns) int32
    out : (>= rows, >= columns) int32
    rows : int
        A multiple of 4.
    inner : int
        Number of terms, at least 1.
    columns : int
        A multiple of 8.
    temperature : float32
        T, positive.
    workspace : (4, W, W) int32
        Workspace.
    """
    bits_per_unit = np.float32(BITS_PER_DOUBLING * _LOG2_E / temperature)
    exponentiate_rows(left, rows, padded_size(inner), bits_per_unit, workspace[3, 0], workspace[0])
    exponentiate_columns(right, inner, columns, bits_per_unit, workspace[3, 1], workspace[1])
    plus_times(
        workspace[0].view(np.float32),
        workspace[1].view(np.float32),
        workspace[2].view(np.float32),
        rows,
        inner,
        columns,
    )
    _take_logarithms(left, right, out, rows, inner, columns, temperature, bits_per_unit, workspace)


@njit(nogil=True, error_model="numpy", allocates=False)
def smoothed_max_plus_transposed(transposed, right, out, rows, inner, columns, temperature, workspace):
    """Compute ``smoothed_max_plus`` with a left table that is given transposed, as (>= inner, >= rows) int32.

    The other arguments are as for ``smoothed_max_plus``.
    """
    bits_per_unit = np.float32(BITS_PER_DOUBLING * _LOG2_E / temperature)
    exponentiate_columns(transposed, inner, padded_size(rows), bits_per_unit, workspace[3, 0], workspace[0])
    exponentiate_columns(right, inner, columns, bits_per_unit, workspace[3, 1], workspace[1])
    plus_times(
        workspace[0].view(np.float32).T,
        workspace[1].view(np.float32),
        workspace[2].view(np.float32),
        rows,
        inner,
        columns,
    )
    _take_logarithms(transposed.T, right, out, rows, inner, columns, temperature, bits_per_unit, workspace)


@njit(nogil=True, error_model="numpy", allocates=False)
def _take_logarithms(left, right, out, rows, inner, columns, temperature, bits_per_unit, workspace):
    """Write the logarithms of the sums in ``workspace[2]`` to ``out``, or exact maxima where a sum is too small.

    The tables are as for ``smoothed_max_plus``. On entry ``workspace[2]`` holds the float32 sums of products of
    exponentials, ``workspace[3, 0]`` the maxima of the rows of ``left``, and ``workspace[3, 1]`` the maxima of the
    columns of ``right``. ``bits_per_unit`` is the increase of an exponential's bit pattern per unit of an entry.
    """
    units_per_bit, margin = np.float32(1 / bits_per_unit), np.int32(temperature * ROUNDING_MARGIN + 1)
    exact, bits, row_maxima, column_maxima = workspace[0], workspace[2], workspace[3, 0], workspace[3, 1]
    for i in range(0, rows, TILE_ROWS):
        for j in range(0, columns, NARROW_COLUMNS):
            unreliable, last = 0, min(rows, i + TILE_ROWS)
            for row in range(i, last):
                unreliable |= write_logarithms(bits, row_maxima, column_maxima, row, j, units_per_bit, margin, out)
            if unreliable != 0:
                if last - i == TILE_ROWS:
                    max_plus_tile(left, right, exact, i, j, inner)
                else:
                    short_max_plus_tile(left, right, exact, i, j, inner)
                for row in range(i, last):
                    replace_small_sums(bits, exact, row, j, out)
