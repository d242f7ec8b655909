# mypy: ignore-errors
"""Dual ascent between triangles and their pairs; see the kernels of pairs.

A triangle's utility is the sum of three tables, so its max-marginal over ab is a max-plus product of the other two:

    M(a, b) = ab(a, b) + max over c of [ac(a, c) + bc(b, c)]
"""

import numpy as np

from dmcmc.inference.bounds.dual.pair_kernels import THRESHOLD
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import soft_plus, soft_plus_turned
from dmcmc.inference.bounds.dual.tables.maxima_kernels import column_maxima, row_maxima
from dmcmc.inference.bounds.dual.tables.pair_message_kernels import add_to_columns, add_to_rows
from dmcmc.inference.bounds.dual.tables.pair_to_triangle_kernels import take_in
from dmcmc.inference.bounds.dual.tables.product_kernels import FEW, max_plus
from dmcmc.inference.bounds.dual.tables.transpose_kernels import turn
from dmcmc.inference.bounds.dual.tables.triangle_to_pair_kernels import hand_back
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def marginal(left, right, out, rows, inner, columns, temperature, room):
    """Set what the third variable adds to each pair of values of two: a product, smoothed at a temperature."""
    if temperature > 0:
        soft_plus(left, right, out, rows, inner, columns, temperature, room)
    else:
        max_plus(left, right, out, rows, inner, columns)


@njit(nogil=True)
def whole_bands(rows):
    """Return so many rows of a product with those, of dead entries, that it is made with."""
    return (rows + FEW - 1) // FEW * FEW


@njit(nogil=True)
def triangle_pass(graph, shares, temperature, scratch, halt):
    """Level every triangle with its pairs; ``scratch`` is (6, W, W) int32. False if an entry left the limits.

    A ``temperature`` (float32) smooths the maxima of marginals; 0 does not.

    When ``halt`` (1,) uint8 becomes 1, the other triangles stay as they are.
    """
    third, half, whole = np.float32(1 / 3), np.float32(1 / 2), np.float32(1)
    turned, rest, room = scratch[0], scratch[1], scratch[2:]
    for t in range(graph.triangles.shape[0]):
        if halt[0] != 0:
            break
        a, b, c = graph.corners[t, 0], graph.corners[t, 1], graph.corners[t, 2]
        da, db, dc = graph.domains[a], graph.domains[b], graph.domains[c]
        wb, wc = graph.widths[b], graph.widths[c]
        cluster = shares.cluster[t]
        ab, ac, bc = cluster[0], cluster[1], cluster[2]
        pair_ab = shares.pair[graph.triangles[t, 0]]
        pair_ac = shares.pair[graph.triangles[t, 1]]
        pair_bc = shares.pair[graph.triangles[t, 2]]
        take_in(ab, pair_ab, da, wb)
        take_in(ac, pair_ac, da, wc)
        take_in(bc, pair_bc, db, wc)
        turn(bc, turned, wb, wc)
        marginal(ac, turned, rest, whole_bands(da), dc, wb, temperature, room)
        fits = hand_back(ab, pair_ab, rest, third, da, wb)
        marginal(ab, bc, rest, whole_bands(da), db, wc, temperature, room)
        fits &= hand_back(ac, pair_ac, rest, half, da, wc)
        if temperature > 0:
            soft_plus_turned(ab, ac, rest, whole_bands(db), da, wc, temperature, room)
        else:
            max_plus(ab.T, ac, rest, whole_bands(db), da, wc)
        fits &= hand_back(bc, pair_bc, rest, whole, db, wc)
        if not fits:
            return False
    return True


@njit(nogil=True)
def recentre(graph, shares):
    """Even out what a triangle's tables hold for each of its variables: none of its sums changes.

    Without this the tables of a triangle drift apart, a little every pass, as one pair brings it more than it takes.
    """
    shifts, others = np.empty((2, shares.unary.shape[1]), dtype=np.int32)
    for t in range(graph.triangles.shape[0]):
        corners = graph.corners[t]
        a, b, c = graph.widths[corners[0]], graph.widths[corners[1]], graph.widths[corners[2]]
        ab, ac, bc = shares.cluster[t, 0], shares.cluster[t, 1], shares.cluster[t, 2]
        row_maxima(ab, a, b, shifts)
        row_maxima(ac, a, c, others)
        _halve_differences(shifts, others, a)
        add_to_rows(ab, a, b, shifts)
        add_to_rows(ac, a, c, others)
        column_maxima(ab, a, b, shifts)
        row_maxima(bc, b, c, others)
        _halve_differences(shifts, others, b)
        add_to_columns(ab, a, b, shifts)
        add_to_rows(bc, b, c, others)
        column_maxima(ac, a, c, shifts)
        column_maxima(bc, b, c, others)
        _halve_differences(shifts, others, c)
        add_to_columns(ac, a, c, shifts)
        add_to_columns(bc, b, c, others)


@njit(nogil=True)
def _halve_differences(maxima, others, count):
    """Set maxima, and others, to what brings each two of them together where both are live, else to 0."""
    for i in range(count):
        live = min(maxima[i], others[i]) >= THRESHOLD
        half = np.int32((np.int64(maxima[i]) - others[i]) >> 1) if live else np.int32(0)
        maxima[i], others[i] = np.int32(-half), half
