# mypy: ignore-errors
"""Dual ascent between variables and their pairs: messages that lower the sum of the tables' maxima.

The upper bound is the sum of the maxima of all tables. Messages reparametrise the tables (equivalence-preserving
transformations of soft arc consistency): the sum of the entries that an assignment selects never changes. One sweep of
block-coordinate ascent consists of three passes, each of which leaves the tables that send messages with a maximum of
0:

    triangles     a triangle adds its three pairwise tables to its own and sends its max-marginals back to them one
                  after another: a third, half of the remainder, all of the remainder (the order of generalised TRW-S,
                  one triangle at a time); see ``triangle_kernels``
    higher-order  the same between a factor of three or more variables and its variables; see ``higher_order_kernels``
    variables     a variable receives the max-marginals of its pairs and sends equal messages on to the pairs with
                  later variables, or with earlier ones in a backward sweep (Kolmogorov, "A new look at reweighted
                  message passing", TPAMI 2015); see ``variable_pass``

Messages are integers, and a message is subtracted where it comes from, so rounding loses nothing. A forbidden entry
(below ``FORBIDDEN_BELOW``) stays forbidden and sends nothing. If an allowed entry leaves ±``MAX_MAGNITUDE``, the pass
stops and returns False: the tables still bound the utility, but they must not be changed any further. Tables are padded
with forbidden entries to whole vectors of eight.

In all kernels ``graph`` is a ``DualGraph`` and ``potentials`` its ``DualPotentials``, W columns wide.
``ascent_kernels`` combines the passes to sweeps.
"""

import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN as _FORBIDDEN
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW as _FORBIDDEN_BELOW
from dmcmc.inference.bounds.dual.integer_scaling import MAX_MAGNITUDE as _MAX_MAGNITUDE
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.message_kernels import (
    add_to_columns,
    add_to_rows,
    column_maxima,
    row_maxima,
    subtract_column_maxima,
    subtract_row_maxima,
)
from dmcmc.inference.runtime.compile import njit

# The values of ``entry_values`` as int32, so that arithmetic with them stays in 32 bits.
FORBIDDEN = np.int32(_FORBIDDEN)
MAX_MAGNITUDE = np.int32(_MAX_MAGNITUDE)
FORBIDDEN_BELOW = np.int32(_FORBIDDEN_BELOW)


@njit(nogil=True, allocates=False)
def variable_pass(graph, potentials, forward, message):
    """Make the variable pass of one sweep: visit the variables in order and equalise the max-marginals of their pairs.

    A pair is behind the visited variable if its other variable has been visited already, else ahead of it.

    Parameters
    ----------
    graph : DualGraph
    potentials : DualPotentials
        Changed in place.
    forward : bool
        True visits the variables in ascending order, False in descending order.
    message : (W,) int32
        Workspace.

    Returns
    -------
    bool
        False if an entry left the range, which ends the pass.
    """
    n = graph.domains.size
    for step in range(n):
        v = step if forward else n - 1 - step
        unary, d, width = potentials.unary[v], graph.domains[v], graph.widths[v]
        first, last = graph.incident_start[v], graph.incident_start[v + 1]
        n_behind = 0
        for position in range(first, last):
            e = graph.incident[position]
            a, b = graph.pairs[e, 0], graph.pairs[e, 1]
            other = a + b - v
            n_behind += (other < v) == forward
            if not _receive_max_marginal(potentials.pair[e], unary, message, v == a, graph.widths[other], d, width):
                return False
        n_ahead = last - first - n_behind
        # One over the larger of the numbers of pairs behind and ahead.
        weight = np.float32(1 / max(1, n_behind, n_ahead))
        for i in range(width):
            message[i] = FORBIDDEN if unary[i] < FORBIDDEN_BELOW else np.int32(np.float32(unary[i]) * weight)
            unary[i] = FORBIDDEN if unary[i] < FORBIDDEN_BELOW else np.int32(unary[i] - n_ahead * message[i])
        fits = True
        for position in range(first, last):
            e = graph.incident[position]
            a, b = graph.pairs[e, 0], graph.pairs[e, 1]
            if (a + b - v < v) != forward:
                if v == a:
                    fits &= add_to_rows(potentials.pair[e], width, graph.widths[b], message)
                else:
                    fits &= add_to_columns(potentials.pair[e], graph.widths[a], width, message)
        if not fits:
            return False
    return True


@njit(nogil=True, allocates=False)
def magnitude_of(x):
    """Return the magnitude |x| of an entry, 0 for a forbidden one."""
    return np.int32(0) if x < FORBIDDEN_BELOW else max(x, np.int32(-x))


@njit(nogil=True, allocates=False)
def _receive_max_marginal(table, unary, message, is_first, other_width, d, width):
    """Subtract a pair's max-marginal over one of its variables from the pair and add it to the variable's table.

    Parameters
    ----------
    table : (W, W) int32
        The pair's table.
    unary : (W,) int32
        The variable's table.
    message : (W,) int32
        Receives the max-marginal.
    is_first : bool
        Whether the variable indexes the rows of the pair's table.
    other_width : int
        Padded domain size of the other variable.
    d, width : int
        Domain size of the variable, and the same padded.

    Returns
    -------
    bool
        Whether all entries stayed in range.
    """
    fits = (
        subtract_row_maxima(table, d, other_width, message)
        if is_first
        else subtract_column_maxima(table, other_width, width, message)
    )
    largest = np.int32(0)
    for i in range(d):
        total = np.int32(unary[i] + message[i])
        unary[i] = FORBIDDEN if total < FORBIDDEN_BELOW else total
        largest = max(largest, magnitude_of(total))
    return fits and largest <= MAX_MAGNITUDE


@njit(nogil=True)
def bound(graph, potentials):
    """Return the sum of the maxima of all tables, an upper bound in the integer scale (int64).

    ``MINUS_INFINITY`` is returned if all entries of a table are forbidden. Triangles are not counted: their tables
    start at 0, and every pass leaves a triangle with a maximum of 0.
    """
    total = np.int64(0)
    for v in range(graph.domains.size):
        best = potentials.unary[v].max()
        if best < FORBIDDEN_BELOW:
            return MINUS_INFINITY
        total += best
    for e in range(graph.pairs.shape[0]):
        best = potentials.pair[e].max()
        if best < FORBIDDEN_BELOW:
            return MINUS_INFINITY
        total += best
    for s in range(graph.entry_start.size - 1):
        best = potentials.higher_order[graph.entry_start[s] : graph.entry_start[s + 1]].max()
        if best < FORBIDDEN_BELOW:
            return MINUS_INFINITY
        total += best
    return total


@njit(nogil=True)
def remove_values(graph, potentials, message, constant, threshold):
    """Forbid every value whose bound is below ``threshold``; return the number of removed values.

    The bound of value i of variable v is: the bound without v and its pairs, plus v's own entry at i, plus the
    max-marginal at i of each of its pairs.

    Parameters
    ----------
    graph : DualGraph
    potentials : DualPotentials
        The unary tables are changed in place.
    message : (W,) int32
        Workspace.
    constant : int64
        Utility that is added to the bound.
    threshold : int64
        The utility to reach, in the integer scale.
    """
    total_bound = bound(graph, potentials)
    if total_bound == MINUS_INFINITY:
        return 0
    removed = 0
    max_marginals = np.empty(potentials.unary.shape[1], dtype=np.int64)
    for v in range(graph.domains.size):
        unary, d = potentials.unary[v], graph.domains[v]
        total, n_allowed = max_marginals_of(graph, potentials, v, max_marginals, message)
        bound_without_v = constant + total_bound - total
        for i in range(d):
            # A value is forbidden itself if one of its pairs has no allowed entry for it.
            if unary[i] >= FORBIDDEN_BELOW and (
                max_marginals[i] < FORBIDDEN_BELOW or bound_without_v + max_marginals[i] < threshold
            ):
                unary[i] = FORBIDDEN
                removed += 1
                n_allowed -= 1
        if n_allowed == 0:  # no value is left: the graph is infeasible at this threshold
            return removed
    return removed


@njit(nogil=True)
def max_marginals_of(graph, potentials, v, max_marginals, maxima):
    """Compute the max-marginal of each value of v in its unary and pairwise tables.

    The max-marginal of a value is its unary entry plus, for each pairwise table over v, the largest entry with this
    value.

    Parameters
    ----------
    graph : DualGraph
    potentials : DualPotentials
    v : int
        The variable.
    max_marginals : (W,) int64
        Output; ``MINUS_INFINITY`` for a removed value.
    maxima : (W,) int32
        Workspace: the largest entry of each value in one table.

    Returns
    -------
    total : int64
        Sum of the maxima of these tables.
    n_allowed : int64
        Number of remaining values.
    """
    unary, d, n_allowed = potentials.unary[v], graph.domains[v], 0
    total = np.int64(unary[:d].max())
    for i in range(d):
        max_marginals[i] = unary[i]
    for position in range(graph.incident_start[v], graph.incident_start[v + 1]):
        e = graph.incident[position]
        # padded domain size of the pair's other variable
        width = graph.widths[graph.pairs[e, 0] + graph.pairs[e, 1] - v]
        if v == graph.pairs[e, 0]:
            row_maxima(potentials.pair[e], d, width, maxima)
        else:
            column_maxima(potentials.pair[e], width, graph.widths[v], maxima)
        highest = FORBIDDEN
        for i in range(d):
            max_marginals[i] += maxima[i]
            highest = max(highest, maxima[i])
        total += highest
    for i in range(d):
        if unary[i] < FORBIDDEN_BELOW:
            max_marginals[i] = MINUS_INFINITY
        else:
            n_allowed += 1
    return total, n_allowed
