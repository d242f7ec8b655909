# mypy: ignore-errors
"""Dual ascent between a factor over three or more variables and those variables; see the kernels of pairs."""

import numpy as np

from dmcmc.inference.bounds.dual.pair_kernels import DEAD, LIMIT, THRESHOLD
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def star_pass(graph, shares, message, halt):
    """Level every large factor with its variables; ``message`` is (W,) int32. False if an entry left the limits.

    When ``halt`` (1,) uint8 becomes 1, the other factors stay as they are.
    """
    for s in range(graph.star_at.size - 1):
        if halt[0] != 0:
            break
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


@njit(nogil=True)
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


@njit(nogil=True)
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
