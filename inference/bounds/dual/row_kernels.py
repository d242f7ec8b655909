# mypy: ignore-errors
"""One interface assignment after another: fix the interface, ascend on what is left of the hidden variables."""

import numpy as np

from dmcmc.inference.bounds.dual.higher_order_kernels import star_pass
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.pair_kernels import (
    DEAD,
    LIMIT,
    THRESHOLD,
    bound,
    remove_values,
    size_of,
    variable_pass,
)
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import cooled
from dmcmc.inference.bounds.dual.triangle_kernels import recentre, triangle_pass
from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit

RECENTRE_EVERY = 16  # sweeps
PRUNE_EVERY = 4  # sweeps between removals of values
FIRST_SHIFTS = 30  # sweeps with the interface free that come first: each brings all rows what a row's own would


@njit(nogil=True)
def sweep(graph, shares, forward, temperature, scratch, halt):
    """Make all three passes; ``scratch`` is (6, W, W) int32. False if an entry left the limits."""
    if not triangle_pass(graph, shares, temperature, scratch, halt):
        return False
    if not star_pass(graph, shares, scratch[0, 0], halt):
        return False
    return variable_pass(graph, shares, forward, scratch[0, 0])


@njit(nogil=True)
def ascend(graph, shares, first, last, warmth, begin, sweeps, scratch, halt):
    """Make sweeps ``first`` to ``last`` - 1 in turning directions; return how many were made in all.

    They are those from ``begin`` on of ``sweeps``, which cool from ``warmth`` (float32), see :func:`.cooled`. ``halt``
    (1,) uint8 ends it when it becomes 1.
    """
    for step in range(first, last):
        temperature = cooled(warmth, begin + step - first, sweeps) if warmth > 0 else np.float32(0)
        if halt[0] != 0 or not sweep(graph, shares, step % 2 == 0, temperature, scratch, halt):
            return step
        if step % RECENTRE_EVERY == RECENTRE_EVERY - 1:
            recentre(graph, shares)
    return last


@njit(nogil=True)
def fix(whole, shares, hidden, part, slices, digits):
    """Set ``part``, the shares of the hidden graph, to what is left with the interface at ``digits`` (interface,).

    Return the constant that goes with it (int64, NEVER if the interface alone is forbidden), and whether all entries
    stayed within the limits: if not, ``part`` is of no use.
    """
    n = hidden.domains.size
    copy_entries(shares.unary[:n].reshape(-1), part.unary.reshape(-1))
    copy_entries(shares.pair[: hidden.pairs.shape[0]].reshape(-1), part.pair.reshape(-1))
    copy_entries(shares.cluster[: hidden.triangles.shape[0]].reshape(-1), part.cluster.reshape(-1))
    constant = np.int64(0)
    for x in range(n, whole.domains.size):
        alone = shares.unary[x, digits[x - n]]
        if alone < THRESHOLD:
            return NEVER, True
        constant += alone
    for e in range(hidden.pairs.shape[0], whole.pairs.shape[0]):
        entry, fits = _fix_pair(whole.pairs[e, 0], whole.pairs[e, 1], n, digits, shares.pair[e], part.unary)
        if entry < THRESHOLD:
            return NEVER, True
        if not fits:
            return NEVER, False
        constant += entry
    for t in range(hidden.triangles.shape[0], whole.triangles.shape[0]):
        a, b, c = whole.corners[t, 0], whole.corners[t, 1], whole.corners[t, 2]
        ab, ac, bc = shares.cluster[t, 0], shares.cluster[t, 1], shares.cluster[t, 2]
        if b < n:
            into = part.pair[whole.triangles[t, 0]]
            first, fits = np.int64(0), _add_table(into, ab)
        else:
            first, fits = _fix_pair(a, b, n, digits, ab, part.unary)
        second, fits_second = _fix_pair(a, c, n, digits, ac, part.unary)
        third, fits_third = _fix_pair(b, c, n, digits, bc, part.unary)
        if min(first, second, third) < THRESHOLD:
            return NEVER, True
        if not (fits and fits_second and fits_third):
            return NEVER, False
        constant += first + second + third
    kept = 0
    for s in range(whole.star_at.size - 1):
        scope = whole.star_scope[whole.star_start[s] : whole.star_start[s + 1]]
        table = shares.star[whole.star_at[s] : whole.star_at[s + 1]]
        if kept < slices.size and slices[kept] == s:
            _slice(whole.domains, scope, n, digits, table, part.star[hidden.star_at[kept] : hidden.star_at[kept + 1]])
            kept += 1
            continue
        at = 0
        for v in scope:
            at = at * whole.domains[v] + digits[v - n]
        if table[at] < THRESHOLD:
            return NEVER, True
        constant += table[at]
    return constant, True


@njit(nogil=True)
def _add_table(into, table):
    """Add a table to a pair's; return whether the sum is within the limits."""
    largest = np.int32(0)
    for i in range(into.shape[0]):
        for j in range(into.shape[1]):
            x = np.int32(into[i, j] + table[i, j])
            into[i, j] = DEAD if x < THRESHOLD else x
            largest = max(largest, size_of(x))
    return largest <= LIMIT


@njit(nogil=True)
def _fix_pair(a, b, n, digits, table, unary):
    """Add what is left of a table over a and b, b in the interface, to a's; return the entry if a is fixed as well."""
    y = digits[b - n]
    if a >= n:
        return np.int64(table[digits[a - n], y]), True
    largest = np.int32(0)
    for i in range(unary.shape[1]):
        x = np.int32(unary[a, i] + table[i, y])
        unary[a, i] = DEAD if x < THRESHOLD else x
        largest = max(largest, size_of(x))
    return np.int64(0), largest <= LIMIT


@njit(nogil=True)
def _slice(domains, scope, n, digits, table, out):
    """Copy the entries of a star that agree with the interface."""
    counter = np.zeros(scope.size, dtype=np.int64)
    for k in range(scope.size):
        if scope[k] >= n:
            counter[k] = digits[scope[k] - n]
    for i in range(out.size):
        at = 0
        for k in range(scope.size):
            at = at * domains[scope[k]] + counter[k]
        out[i] = table[at]
        for k in range(scope.size - 1, -1, -1):
            if scope[k] < n:
                counter[k] += 1
                if counter[k] < domains[scope[k]]:
                    break
                counter[k] = 0


@njit(nogil=True)
def run_rows(whole, shares, hidden, part, slices, rows, shape, sweeps, warmth, thresholds, bounds, live, scratch, halt):
    """Lower the bounds of some rows.

    rows (k,) int64 row numbers in C order over ``shape`` (interface,); bounds (rows,) int64, taken down where a better
    one is found; thresholds (k,) int64: values with which a row stays below are removed (NEVER: none); live
    (k, hidden, W) bool: what was not removed, or (0, 0, 0). ``part`` and ``scratch`` belong to the caller's thread.
    When ``halt`` (1,) uint8 becomes 1, the other rows stay as they are.
    """
    digits = np.zeros(shape.size, dtype=np.int64)
    for r in range(rows.size):
        if halt[0] != 0:
            return
        number = rows[r]
        for k in range(shape.size - 1, -1, -1):
            digits[k] = number % shape[k]
            number //= shape[k]
        constant, fits = fix(whole, shares, hidden, part, slices, digits)
        if not fits:
            for v in range(live.shape[1]):  # nothing is known of the row
                for i in range(live.shape[2]):
                    live[r, v, i] = shares.unary[v, i] >= THRESHOLD
            continue
        if constant == NEVER:
            bounds[rows[r]] = NEVER
            continue
        prune = thresholds[r] > NEVER
        done = 0
        while True:
            found = bound(hidden, part)
            if found == NEVER or (prune and constant + found < thresholds[r]):
                break
            if prune:
                remove_values(hidden, part, scratch[0, 0], constant, thresholds[r])
            if done >= sweeps or not fits:
                found = bound(hidden, part)
                break
            until = min(sweeps, done + PRUNE_EVERY) if prune else sweeps
            fits = ascend(hidden, part, done, until, warmth, done, sweeps, scratch, halt) == until
            done = until
        if found != NEVER:
            found += constant
        if prune:
            # without the removed values the row stays below the threshold all the same
            found = max(found, thresholds[r] - 1)
        bounds[rows[r]] = min(bounds[rows[r]], found)
        for v in range(live.shape[1]):
            for i in range(live.shape[2]):
                live[r, v, i] = part.unary[v, i] >= THRESHOLD
