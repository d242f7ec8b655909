# mypy: ignore-errors
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

from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.tables.entry_values import DEAD as _DEAD
from dmcmc.inference.bounds.dual.tables.entry_values import LIMIT as _LIMIT
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD as _THRESHOLD
from dmcmc.inference.bounds.dual.tables.maxima_kernels import column_maxima, row_maxima
from dmcmc.inference.bounds.dual.tables.pair_message_kernels import (
    add_to_columns,
    add_to_rows,
    level_columns,
    level_rows,
)
from dmcmc.inference.runtime.compile import njit

DEAD, LIMIT, THRESHOLD = np.int32(_DEAD), np.int32(_LIMIT), np.int32(_THRESHOLD)


@njit(nogil=True)
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
                if v == a:
                    fits &= add_to_rows(shares.pair[e], width, graph.widths[b], message)
                else:
                    fits &= add_to_columns(shares.pair[e], graph.widths[a], width, message)
        if not fits:
            return False
    return True


@njit(nogil=True, inline="always")
def size_of(x):
    """Return |x|, 0 for a dead entry."""
    return np.int32(0) if x < THRESHOLD else max(x, np.int32(-x))


@njit(nogil=True)
def _pull(table, unary, message, is_first, around, d, width):
    """Move a pair's max-marginal over one of its variables into that variable's table."""
    fits = level_rows(table, d, around, message) if is_first else level_columns(table, around, width, message)
    largest = np.int32(0)
    for i in range(d):
        total = np.int32(unary[i] + message[i])
        unary[i] = DEAD if total < THRESHOLD else total
        largest = max(largest, size_of(total))
    return fits and largest <= LIMIT


@njit(nogil=True)
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


@njit(nogil=True)
def remove_values(graph, shares, message, constant, threshold):
    """Kill every value with which the bound is below ``threshold``; return how many.

    Value i of v is worth at most: the bound without v and its pairs, plus unary[i], plus its pairs' best entries at i.
    ``message`` is (W,) int32.
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
            around = graph.widths[graph.pairs[e, 0] + graph.pairs[e, 1] - v]
            if v == a:
                row_maxima(shares.pair[e], d, around, message)
            else:
                column_maxima(shares.pair[e], around, graph.widths[v], message)
            highest = DEAD
            for i in range(d):
                value[i] += message[i]
                highest = max(highest, message[i])
            rest -= highest
        for i in range(d):
            if unary[i] >= THRESHOLD and (value[i] < THRESHOLD or rest + value[i] < threshold):
                unary[i] = DEAD
                removed += 1
        if unary[:d].max() < THRESHOLD:
            return removed
    return removed
