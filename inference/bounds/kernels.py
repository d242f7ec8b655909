"""Dual ascent: shifts that never change the sum of all tables, and make the sum of their maxima smaller.

Three passes, each of which leaves what it shifted from with a maximum of 0:

    triangles  each takes in its three pairs' tables and hands their max-marginals back one after another, a third, half
               of what is left, all of what is left (the order of generalised TRW-S, one triangle at a time)
    stars      the same between a large factor and its variables
    variables  each takes in its pairs' max-marginals and hands equal shares on to the pairs with later variables, or
               with earlier ones on the way back (Kolmogorov, "A new look at reweighted message passing", TPAMI 2015)

Shares are whole numbers and what is shifted is subtracted where it comes from, so rounding loses nothing. A dead entry
stays dead and is never shared; a live one that leaves ±LIMIT ends the pass: it returns False and all tables still
bound the utility, but nothing more may be shifted. Tables are padded with dead entries to whole vectors.
"""

import numpy as np
from numba import njit

from dmcmc.inference.bounds.quantise import DEAD as _DEAD
from dmcmc.inference.bounds.quantise import LIMIT as _LIMIT
from dmcmc.inference.bounds.quantise import NEVER
from dmcmc.inference.bounds.quantise import THRESHOLD as _THRESHOLD

DEAD, LIMIT, THRESHOLD = np.int32(_DEAD), np.int32(_LIMIT), np.int32(_THRESHOLD)


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True)
def transpose(table, out, rows, columns):
    """Set out[j, i] = table[i, j]."""
    for i in range(rows):
        for j in range(columns):
            out[j, i] = table[i, j]


@njit(cache=True, nogil=True)
def take_in(into, table, rows, columns):
    """Add ``table`` to ``into``; the caller overwrites or clears ``table``."""
    for i in range(rows):
        for j in range(columns):
            x = np.int32(into[i, j] + table[i, j])
            into[i, j] = DEAD if x < THRESHOLD else x


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def triangle_pass(graph, shares, scratch):
    """Level every triangle with its pairs; ``scratch`` is (2, W, W) int32. False if an entry left the limits."""
    third, half, whole = np.float32(1 / 3), np.float32(1 / 2), np.float32(1)
    turned, rest = scratch[0], scratch[1]
    for t in range(graph.triangles.shape[0]):
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
        max_plus(ac, turned, rest, wa, wc, wb)
        largest = hand_back(ab, pair_ab, rest, third, wa, wb)
        max_plus(ab, bc, rest, wa, wb, wc)
        largest = max(largest, hand_back(ac, pair_ac, rest, half, wa, wc))
        transpose(ab, turned, wa, wb)
        max_plus(turned, ac, rest, wb, wa, wc)
        largest = max(largest, hand_back(bc, pair_bc, rest, whole, wb, wc))
        if largest > LIMIT:
            return False
    return True


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True, inline="always")
def _difference(left, right):
    """Return half the difference of two live maxima, else 0."""
    return np.int32(0) if min(left, right) < THRESHOLD else np.int32((np.int64(left) - right) >> 1)


@njit(cache=True, nogil=True)
def _shift_row(row, shift):
    for i in range(row.size):
        row[i] = DEAD if row[i] < THRESHOLD else np.int32(row[i] + shift)


@njit(cache=True, nogil=True)
def variable_pass(graph, shares, forward, message):
    """Visit variables in order, or backwards; ``message`` is (W,) int32. False if an entry left the limits."""
    n = graph.domains.size
    for step in range(n):
        v = step if forward else n - 1 - step
        unary, d, width = shares.unary[v], graph.domains[v], graph.widths[v]
        first, last = graph.incident_at[v], graph.incident_at[v + 1]
        behind = 0
        for position in range(first, last):
            e = graph.incident[position]
            a, b = graph.pairs[e, 0], graph.pairs[e, 1]
            other = a + b - v
            behind += (other < v) == forward
            if not _pull(shares.pair[e], unary, message, v == a, graph.widths[other], d, width):
                return False
        ahead = last - first - behind
        weight = np.float32(1 / max(1, behind, ahead))
        for i in range(width):
            message[i] = DEAD if unary[i] < THRESHOLD else np.int32(np.float32(unary[i]) * weight)
            unary[i] = DEAD if unary[i] < THRESHOLD else np.int32(unary[i] - ahead * message[i])
        fits = True
        for position in range(first, last):
            e = graph.incident[position]
            a, b = graph.pairs[e, 0], graph.pairs[e, 1]
            if (a + b - v < v) != forward:
                fits &= _push(shares.pair[e], message, v == a, graph.widths[a], graph.widths[b])
        if not fits:
            return False
    return True


@njit(cache=True, nogil=True, inline="always")
def size_of(x):
    """Return |x|, 0 for a dead entry."""
    return np.int32(0) if x < THRESHOLD else max(x, np.int32(-x))


@njit(cache=True, nogil=True)
def _pull(table, unary, message, is_first, around, d, width):
    """Move a pair's max-marginal over one of its variables into that variable's table."""
    largest = np.int32(0)
    if is_first:
        for i in range(d):
            best = DEAD
            for j in range(around):
                best = max(best, table[i, j])
            message[i] = best
            for j in range(around):
                x = DEAD if table[i, j] < THRESHOLD else np.int32(table[i, j] - best)
                table[i, j] = x
                largest = max(largest, size_of(x))
    else:
        for j in range(width):
            message[j] = DEAD
        for i in range(around):
            for j in range(width):
                message[j] = max(message[j], table[i, j])
        for i in range(around):
            for j in range(width):
                x = DEAD if table[i, j] < THRESHOLD else np.int32(table[i, j] - message[j])
                table[i, j] = x
                largest = max(largest, size_of(x))
    for i in range(d):
        total = np.int32(unary[i] + message[i])
        unary[i] = DEAD if total < THRESHOLD else total
        largest = max(largest, size_of(total))
    return largest <= LIMIT


@njit(cache=True, nogil=True)
def _push(table, message, is_first, rows, columns):
    """Add a variable's message to one of its pairs."""
    largest = np.int32(0)
    for i in range(rows):
        if is_first:
            shift = message[i]
            for j in range(columns):
                x = np.int32(table[i, j] + shift)
                table[i, j] = DEAD if x < THRESHOLD else x
                largest = max(largest, size_of(x))
        else:
            for j in range(columns):
                x = np.int32(table[i, j] + message[j])
                table[i, j] = DEAD if x < THRESHOLD else x
                largest = max(largest, size_of(x))
    return largest <= LIMIT


@njit(cache=True, nogil=True)
def star_pass(graph, shares, message):
    """Level every large factor with its variables; ``message`` is (W,) int32. False if an entry left the limits."""
    for s in range(graph.star_at.size - 1):
        entries = shares.star[graph.star_at[s] : graph.star_at[s + 1]]
        scope = graph.star_scope[graph.star_start[s] : graph.star_start[s + 1]]
        for axis in range(scope.size):
            unary = shares.unary[scope[axis]]
            fits = _along(graph.domains, scope, axis, entries, unary, np.int32(1))
            for i in range(unary.size):
                unary[i] = np.int32(0) if unary[i] >= THRESHOLD else DEAD
            if not fits:
                return False
        for axis in range(scope.size):
            unary = shares.unary[scope[axis]]
            _marginal(graph.domains, scope, axis, entries, message)
            weight = np.float64(1 / (scope.size - axis))
            for i in range(graph.domains[scope[axis]]):
                share = np.int32(np.float64(message[i]) * weight)
                message[i] = DEAD if message[i] < THRESHOLD else share
                unary[i] = DEAD if message[i] < THRESHOLD or unary[i] < THRESHOLD else np.int32(unary[i] + message[i])
            if not _along(graph.domains, scope, axis, entries, message, np.int32(-1)):
                return False
    return True


@njit(cache=True, nogil=True)
def _along(domains, scope, axis, entries, vector, sign):
    """Add ``sign`` × a vector over one axis to a star's entries; what meets a dead value dies."""
    inner = 1
    for k in range(axis + 1, scope.size):
        inner *= domains[scope[k]]
    d = domains[scope[axis]]
    largest = np.int32(0)
    for begin in range(0, entries.size, inner):
        x = vector[(begin // inner) % d]
        for i in range(begin, begin + inner):
            if x < THRESHOLD or entries[i] < THRESHOLD:
                entries[i] = DEAD
            else:
                entries[i] = np.int32(entries[i] + sign * x)
                largest = max(largest, max(entries[i], np.int32(-entries[i])))
    return largest <= LIMIT


@njit(cache=True, nogil=True)
def _marginal(domains, scope, axis, entries, message):
    inner = 1
    for k in range(axis + 1, scope.size):
        inner *= domains[scope[k]]
    d = domains[scope[axis]]
    for i in range(d):
        message[i] = DEAD
    for begin in range(0, entries.size, inner):
        digit = (begin // inner) % d
        for i in range(begin, begin + inner):
            message[digit] = max(message[digit], entries[i])


@njit(cache=True, nogil=True)
def bound(graph, shares):
    """Return Σ of the largest entries of all tables: int64, NEVER if a table is all dead.

    Triangles count for nothing: they start with 0 and every pass leaves them with a maximum of 0.
    """
    total = np.int64(0)
    for v in range(graph.domains.size):
        best = shares.unary[v].max()
        if best < THRESHOLD:
            return NEVER
        total += best
    for e in range(graph.pairs.shape[0]):
        best = shares.pair[e].max()
        if best < THRESHOLD:
            return NEVER
        total += best
    for s in range(graph.star_at.size - 1):
        best = shares.star[graph.star_at[s] : graph.star_at[s + 1]].max()
        if best < THRESHOLD:
            return NEVER
        total += best
    return total


@njit(cache=True, nogil=True)
def remove_values(graph, shares, message, constant, threshold):
    """Kill every value with which the bound is below ``threshold``; return how many.

    Value i of v is worth at most: the bound without v and its pairs, plus unary[i], plus its pairs' best entries at i.
    """
    everything = bound(graph, shares)
    if everything == NEVER:
        return 0
    removed = 0
    value = np.empty(shares.unary.shape[1], dtype=np.int64)
    for v in range(graph.domains.size):
        unary, d = shares.unary[v], graph.domains[v]
        rest = constant + everything - unary[:d].max()
        for i in range(d):
            value[i] = unary[i]
        for position in range(graph.incident_at[v], graph.incident_at[v + 1]):
            e = graph.incident[position]
            a = graph.pairs[e, 0]
            around = graph.domains[graph.pairs[e, 0] + graph.pairs[e, 1] - v]
            table = shares.pair[e]
            highest = DEAD
            for i in range(d):
                best = DEAD
                if v == a:
                    for j in range(around):
                        best = max(best, table[i, j])
                else:
                    for j in range(around):
                        best = max(best, table[j, i])
                value[i] += best
                highest = max(highest, best)
            rest -= highest
        for i in range(d):
            if unary[i] >= THRESHOLD and (value[i] < THRESHOLD or rest + value[i] < threshold):
                unary[i] = DEAD
                removed += 1
        if unary[:d].max() < THRESHOLD:
            return removed
    return removed
