# mypy: ignore-errors
"""Dual ascent between triangles and their pairs; see the kernels of pairs.

A triangle's utility is the sum of three tables, so its max-marginal over ab is a max-plus product of the other two:

    M(a, b) = ab(a, b) + max over c of [ac(a, c) + bc(b, c)]
"""

import numpy as np

from dmcmc.inference.bounds.dual.pair_kernels import DEAD, LIMIT, THRESHOLD
from dmcmc.inference.bounds.dual.soft_kernels import soft_plus
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True, error_model="numpy")
def max_plus(left, right, out, rows, inner, columns):
    """Set out[i, j] = max over k of left[i, k] + right[k, j]; rows is even, inner and columns are multiples of 8."""
    for i in range(0, rows, 2):
        for j in range(columns):
            out[i, j] = DEAD
            out[i + 1, j] = DEAD
        for k in range(0, inner, 8):
            p0, p1, p2, p3 = left[i, k], left[i, k + 1], left[i, k + 2], left[i, k + 3]
            p4, p5, p6, p7 = left[i, k + 4], left[i, k + 5], left[i, k + 6], left[i, k + 7]
            q0, q1, q2, q3 = left[i + 1, k], left[i + 1, k + 1], left[i + 1, k + 2], left[i + 1, k + 3]
            q4, q5, q6, q7 = left[i + 1, k + 4], left[i + 1, k + 5], left[i + 1, k + 6], left[i + 1, k + 7]
            for j in range(columns):
                r0, r1, r2, r3 = right[k, j], right[k + 1, j], right[k + 2, j], right[k + 3, j]
                r4, r5, r6, r7 = right[k + 4, j], right[k + 5, j], right[k + 6, j], right[k + 7, j]
                a = max(np.int32(p0 + r0), np.int32(p1 + r1))
                b = max(np.int32(p2 + r2), np.int32(p3 + r3))
                c = max(np.int32(p4 + r4), np.int32(p5 + r5))
                d = max(np.int32(p6 + r6), np.int32(p7 + r7))
                out[i, j] = max(out[i, j], max(max(a, b), max(c, d)))
                a = max(np.int32(q0 + r0), np.int32(q1 + r1))
                b = max(np.int32(q2 + r2), np.int32(q3 + r3))
                c = max(np.int32(q4 + r4), np.int32(q5 + r5))
                d = max(np.int32(q6 + r6), np.int32(q7 + r7))
                out[i + 1, j] = max(out[i + 1, j], max(max(a, b), max(c, d)))


@njit(nogil=True)
def transpose(table, out, rows, columns):
    """Set out[j, i] = table[i, j]."""
    for i in range(rows):
        for j in range(columns):
            out[j, i] = table[i, j]


@njit(nogil=True)
def take_in(into, table, rows, columns):
    """Add ``table`` to ``into``; the caller overwrites or clears ``table``."""
    for i in range(rows):
        for j in range(columns):
            x = np.int32(into[i, j] + table[i, j])
            into[i, j] = DEAD if x < THRESHOLD else x


@njit(nogil=True)
def hand_back(cluster, pair, rest, weight, rows, columns):
    """Give a pair its share of cluster + rest, the triangle's max-marginal over it; return the largest |live entry|.

    A weight of 1 gives all of it, whatever a float32 holds.
    """
    largest = np.int32(0)
    everything = weight == 1
    for i in range(rows):
        for j in range(columns):
            marginal = np.int32(cluster[i, j] + rest[i, j])
            dead = marginal < THRESHOLD
            share = marginal if everything else np.int32(np.float32(marginal) * weight)
            left = np.int32(cluster[i, j] - share)
            pair[i, j] = DEAD if dead else share
            cluster[i, j] = DEAD if dead else left
            size = max(max(left, np.int32(-left)), max(share, np.int32(-share)))
            largest = max(largest, np.int32(0) if dead else size)
    return largest


@njit(nogil=True)
def marginal(left, right, out, rows, inner, columns, temperature, room):
    """Set what the third variable adds to each pair of values of two: a product, smoothed at a temperature."""
    if temperature > 0:
        soft_plus(left, right, out, rows, inner, columns, temperature, room)
    else:
        max_plus(left, right, out, rows, inner, columns)


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
        wa, wb, wc = graph.widths[a], graph.widths[b], graph.widths[c]
        cluster = shares.cluster[t]
        ab, ac, bc = cluster[0], cluster[1], cluster[2]
        pair_ab = shares.pair[graph.triangles[t, 0]]
        pair_ac = shares.pair[graph.triangles[t, 1]]
        pair_bc = shares.pair[graph.triangles[t, 2]]
        take_in(ab, pair_ab, wa, wb)
        take_in(ac, pair_ac, wa, wc)
        take_in(bc, pair_bc, wb, wc)
        transpose(bc, turned, wb, wc)
        marginal(ac, turned, rest, wa, wc, wb, temperature, room)
        largest = hand_back(ab, pair_ab, rest, third, wa, wb)
        marginal(ab, bc, rest, wa, wb, wc, temperature, room)
        largest = max(largest, hand_back(ac, pair_ac, rest, half, wa, wc))
        transpose(ab, turned, wa, wb)
        marginal(turned, ac, rest, wb, wa, wc, temperature, room)
        largest = max(largest, hand_back(bc, pair_bc, rest, whole, wb, wc))
        if largest > LIMIT:
            return False
    return True


@njit(nogil=True)
def recentre(graph, shares):
    """Even out what a triangle's tables hold for each of its variables: none of its sums changes.

    Without this the tables of a triangle drift apart, a little every pass, as one pair brings it more than it takes.
    """
    for t in range(graph.triangles.shape[0]):
        a, b, c = (
            graph.widths[graph.corners[t, 0]],
            graph.widths[graph.corners[t, 1]],
            graph.widths[graph.corners[t, 2]],
        )
        ab, ac, bc = shares.cluster[t, 0], shares.cluster[t, 1], shares.cluster[t, 2]
        for i in range(a):
            shift = _difference(ab[i, :b].max(), ac[i, :c].max())
            _shift_row(ab[i, :b], -shift)
            _shift_row(ac[i, :c], shift)
        for i in range(b):
            shift = _difference(ab[:a, i].max(), bc[i, :c].max())
            _shift_row(ab[:a, i], -shift)
            _shift_row(bc[i, :c], shift)
        for i in range(c):
            shift = _difference(ac[:a, i].max(), bc[:b, i].max())
            _shift_row(ac[:a, i], -shift)
            _shift_row(bc[:b, i], shift)


@njit(nogil=True, inline="always")
def _difference(left, right):
    """Return half the difference of two live maxima, else 0."""
    return np.int32(0) if min(left, right) < THRESHOLD else np.int32((np.int64(left) - right) >> 1)


@njit(nogil=True)
def _shift_row(row, shift):
    for i in range(row.size):
        row[i] = DEAD if row[i] < THRESHOLD else np.int32(row[i] + shift)
