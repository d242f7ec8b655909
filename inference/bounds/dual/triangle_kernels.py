# mypy: ignore-errors
"""Dual ascent between triangles and their pairs; see ``pair_kernels`` for the method.

A triangle is a triplet region: variables a < b < c and the pairs ab, ac and bc. Its utility is the sum of three tables
over these pairs, so its max-marginal over ab is its own table plus a max-plus product of the other two:

    M(a, b) = ab(a, b) + max over c of [ac(a, c) + bc(b, c)]

The three pairs receive 1/3, 1/2 and all of the max-marginal in turn, which is subtracted from the triangle each time;
afterwards the triangle has a maximum of 0.

``ascent_kernels`` calls ``triangle_pass`` in every sweep, and ``recentre`` from time to time. At a positive temperature
the maximum over c is smoothed, see ``smoothed_triangle_kernels``. W is the number of columns of a table; entries below
``FORBIDDEN_BELOW`` are forbidden, and an allowed entry beyond ±``MAX_MAGNITUDE`` has left the range.
"""

import numpy as np

from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN_BELOW
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import smoothed_max_plus, smoothed_max_plus_transposed
from dmcmc.inference.bounds.dual.tables.maxima_kernels import column_maxima, row_maxima
from dmcmc.inference.bounds.dual.tables.pair_message_kernels import add_to_columns, add_to_rows
from dmcmc.inference.bounds.dual.tables.product_kernels import SHORT_TILE_ROWS, max_plus
from dmcmc.inference.bounds.dual.tables.transpose_kernels import transpose
from dmcmc.inference.bounds.dual.tables.triangle_message_kernels import add_table, send_to_pair
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True, allocates=False)
def combine_over_third(left, right, out, rows, inner, columns, temperature, workspace):
    """Set ``out`` to the max-plus product of two tables of a triangle, smoothed if the temperature is positive.

    Parameters
    ----------
    left : (>= rows, >= inner) int32
    right : (>= inner, >= columns) int32
    out : (>= rows, >= columns) int32
    rows, inner, columns : int
        As for ``max_plus``; ``inner`` is the domain size of the third variable, over which the maximum is taken.
    temperature : float32
        0 for exact maxima.
    workspace : (4, W, W) int32
        Workspace of the smoothed product.
    """
    if temperature > 0:
        smoothed_max_plus(left, right, out, rows, inner, columns, temperature, workspace)
    else:
        max_plus(left, right, out, rows, inner, columns)


@njit(nogil=True, allocates=False)
def padded_rows(rows):
    """Return ``rows`` rounded up to the multiple that a matrix product needs; the extra rows are forbidden padding."""
    return (rows + SHORT_TILE_ROWS - 1) // SHORT_TILE_ROWS * SHORT_TILE_ROWS


@njit(nogil=True, allocates=False)
def triangle_pass(graph, potentials, temperature, scratch, halt):
    """Add the pairwise tables to every triangle and send its max-marginals back to the pairs, one triangle at a time.

    Parameters
    ----------
    graph : DualGraph
    potentials : DualPotentials
        Changed in place.
    temperature : float32
        Smooths the maxima of the max-marginals; 0 for exact maxima.
    scratch : (6, W, W) int32
        Workspace: a transposed table, a product, and four tables for the smoothed product.
    halt : (1,) uint8
        Another thread sets it to 1 to end the pass; the remaining triangles are left unchanged then.

    Returns
    -------
    bool
        False if an entry left the range, which ends the pass.
    """
    third, half, full = np.float32(1 / 3), np.float32(1 / 2), np.float32(1)
    transposed, product, workspace = scratch[0], scratch[1], scratch[2:]
    for t in range(graph.triangles.shape[0]):
        if halt[0] != 0:
            break
        a, b, c = graph.corners[t, 0], graph.corners[t, 1], graph.corners[t, 2]
        da, db, dc = graph.domains[a], graph.domains[b], graph.domains[c]
        wb, wc = graph.widths[b], graph.widths[c]
        triangle = potentials.triangle[t]
        ab, ac, bc = triangle[0], triangle[1], triangle[2]
        pair_ab = potentials.pair[graph.triangles[t, 0]]
        pair_ac = potentials.pair[graph.triangles[t, 1]]
        pair_bc = potentials.pair[graph.triangles[t, 2]]
        add_table(ab, pair_ab, da, wb)
        add_table(ac, pair_ac, da, wc)
        add_table(bc, pair_bc, db, wc)
        transpose(bc, transposed, wb, wc)
        combine_over_third(ac, transposed, product, padded_rows(da), dc, wb, temperature, workspace)
        fits = send_to_pair(ab, pair_ab, product, third, da, wb)
        combine_over_third(ab, bc, product, padded_rows(da), db, wc, temperature, workspace)
        fits &= send_to_pair(ac, pair_ac, product, half, da, wc)
        if temperature > 0:
            smoothed_max_plus_transposed(ab, ac, product, padded_rows(db), da, wc, temperature, workspace)
        else:
            max_plus(ab.T, ac, product, padded_rows(db), da, wc)
        fits &= send_to_pair(bc, pair_bc, product, full, db, wc)
        if not fits:
            return False
    return True


@njit(nogil=True)
def recentre(graph, potentials):
    """Equalise the maxima of a triangle's two tables at each value of each of its variables.

    At value i of variable a, for instance, half the difference of the maxima of ab(i, .) and ac(i, .) moves from one
    table to the other. The sum of the three tables does not change. Without this step they drift apart a little in
    every pass, because one pair brings a triangle more than it takes back, and would leave the range.
    """
    left_maxima, right_maxima = np.empty((2, potentials.unary.shape[1]), dtype=np.int32)
    for t in range(graph.triangles.shape[0]):
        corners = graph.corners[t]
        wa, wb, wc = graph.widths[corners[0]], graph.widths[corners[1]], graph.widths[corners[2]]
        ab, ac, bc = potentials.triangle[t, 0], potentials.triangle[t, 1], potentials.triangle[t, 2]
        row_maxima(ab, wa, wb, left_maxima)
        row_maxima(ac, wa, wc, right_maxima)
        _halve_differences(left_maxima, right_maxima, wa)
        add_to_rows(ab, wa, wb, left_maxima)
        add_to_rows(ac, wa, wc, right_maxima)
        column_maxima(ab, wa, wb, left_maxima)
        row_maxima(bc, wb, wc, right_maxima)
        _halve_differences(left_maxima, right_maxima, wb)
        add_to_columns(ab, wa, wb, left_maxima)
        add_to_rows(bc, wb, wc, right_maxima)
        column_maxima(ac, wa, wc, left_maxima)
        column_maxima(bc, wb, wc, right_maxima)
        _halve_differences(left_maxima, right_maxima, wc)
        add_to_columns(ac, wa, wc, left_maxima)
        add_to_columns(bc, wb, wc, right_maxima)


@njit(nogil=True, allocates=False)
def _halve_differences(left, right, count):
    """Replace both vectors of maxima by the messages that equalise them, or by 0 where one of the two is forbidden."""
    for i in range(count):
        both_allowed = min(left[i], right[i]) >= FORBIDDEN_BELOW
        half = np.int32((np.int64(left[i]) - right[i]) >> 1) if both_allowed else np.int32(0)
        left[i], right[i] = np.int32(-half), half
