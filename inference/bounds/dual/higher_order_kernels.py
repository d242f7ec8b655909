# mypy: ignore-errors
"""Dual ascent between a factor of three or more variables and its variables; see ``pair_kernels`` for the method.

``ascent_kernels.sweep`` calls ``higher_order_pass``. A factor's entries are flat, in C order over the domains of its
scope, without padding. Entries below ``FORBIDDEN_BELOW`` are forbidden, and an allowed entry beyond ±``MAX_MAGNITUDE``
has left the range. W is the number of columns of a unary table.
"""

import numpy as np

from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True, allocates=False)
def higher_order_pass(graph, potentials, message, halt):
    """Add the unary tables to every higher-order factor and send its max-marginals back in equal portions.

    With k variables still to be served, a variable receives 1 / k of the factor's max-marginal over it, and this
    message is subtracted from the factor.

    Parameters
    ----------
    graph : DualGraph
    potentials : DualPotentials
        Changed in place.
    message : (W,) int32
        Workspace.
    halt : (1,) uint8
        The remaining factors are left unchanged once this is 1.

    Returns
    -------
    bool
        False if an entry left the range, which ends the pass.
    """
    for s in range(graph.entry_start.size - 1):
        if halt[0] != 0:
            break
        entries = potentials.higher_order[graph.entry_start[s] : graph.entry_start[s + 1]]
        scope = graph.scope_variables[graph.scope_start[s] : graph.scope_start[s + 1]]
        for axis in range(scope.size):
            unary = potentials.unary[scope[axis]]
            fits = _add_along_axis(graph.domains, scope, axis, entries, unary, np.int32(1))
            # The factor holds the unary table now, so the allowed unary entries become 0.
            for i in range(unary.size):
                unary[i] = np.int32(0) if unary[i] >= FORBIDDEN_BELOW else FORBIDDEN
            if not fits:
                return False
        for axis in range(scope.size):
            unary = potentials.unary[scope[axis]]
            _max_marginal(graph.domains, scope, axis, entries, message)
            weight = np.float64(1 / (scope.size - axis))
            for i in range(graph.domains[scope[axis]]):
                portion = np.int32(np.float64(message[i]) * weight)
                message[i] = FORBIDDEN if message[i] < FORBIDDEN_BELOW else portion
                unary[i] = (
                    FORBIDDEN
                    if message[i] < FORBIDDEN_BELOW or unary[i] < FORBIDDEN_BELOW
                    else np.int32(unary[i] + message[i])
                )
            if not _add_along_axis(graph.domains, scope, axis, entries, message, np.int32(-1)):
                return False
    return True


@njit(nogil=True, allocates=False)
def _add_along_axis(domains, scope, axis, entries, vector, sign):
    """Add ``sign * vector`` along one axis of a factor's entries; return whether all stayed in range.

    An entry becomes forbidden where the vector is.

    Parameters
    ----------
    domains : (n,) int64
        Domain sizes of all variables.
    scope : (arity,) int64
        Variables of the factor.
    axis : int
        The vector is indexed by the value of ``scope[axis]``.
    entries : (product of the domain sizes,) int32
        Changed in place.
    vector : (W,) int32
    sign : int32
        1 or -1.
    """
    inner = 1  # distance between two entries that differ by one along the axis
    for k in range(axis + 1, scope.size):
        inner *= domains[scope[k]]
    d = domains[scope[axis]]
    largest = np.int32(0)
    for begin in range(0, entries.size, inner):
        x = vector[(begin // inner) % d]
        for i in range(begin, begin + inner):
            if x < FORBIDDEN_BELOW or entries[i] < FORBIDDEN_BELOW:
                entries[i] = FORBIDDEN
            else:
                entries[i] = np.int32(entries[i] + sign * x)
                largest = max(largest, max(entries[i], np.int32(-entries[i])))
    return largest <= MAX_MAGNITUDE


@njit(nogil=True, allocates=False)
def _max_marginal(domains, scope, axis, entries, message):
    """Write a factor's max-marginal over one axis of its scope to ``message`` (arguments as in ``_add_along_axis``)."""
    inner = 1
    for k in range(axis + 1, scope.size):
        inner *= domains[scope[k]]
    d = domains[scope[axis]]
    for i in range(d):
        message[i] = FORBIDDEN
    for begin in range(0, entries.size, inner):
        digit = (begin // inner) % d
        for i in range(begin, begin + inner):
            message[digit] = max(message[digit], entries[i])
