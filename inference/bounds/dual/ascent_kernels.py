# mypy: ignore-errors
"""Compiled dual ascent over the rows of an agent: pairs, triangles and higher orders.

Sweeps of dual ascent, and the bounds of interface assignments (rows), one row after another.

For each row the potentials are conditioned on the values of the interface (boundary) variables; then the ascent
continues on the hidden variables. ``row_ascent`` and ``dual_bound`` call the kernels; ``pair_kernels`` describes the
method.

In all kernels ``whole`` is the graph over hidden and interface variables, ``hidden`` the graph over the hidden
variables (both ``DualGraph``), and ``potentials`` belongs to ``whole`` unless stated otherwise. The hidden variables
have the lowest numbers. W is the number of columns of a table. Bounds and cutoffs are int64 in the integer scale. A
triangle is a triplet region of three variables with one table per pair, ab, ac and bc. Entries below
``FORBIDDEN_BELOW`` are forbidden; an allowed entry beyond ±``MAX_MAGNITUDE`` has left the range, and no further message
may be sent then. A temperature, in the integer scale, smooths the maxima of triangles; 0 means exact maxima.

Dual ascent between a factor of three or more variables and its variables; see ``pair_kernels`` for the method.

``ascent_kernels.sweep`` calls ``higher_order_pass``. A factor's entries are flat, in C order over the domains of its
scope, without padding. Entries below ``FORBIDDEN_BELOW`` are forbidden, and an allowed entry beyond ±``MAX_MAGNITUDE``
has left the range. W is the number of columns of a unary table.

Dual ascent between triangles and their pairs; see ``pair_kernels`` for the method.

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

from dmcmc.inference.bounds.contract.tuning import PRUNE_EVERY, RECENTRE_EVERY
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.message_kernels import (
    SHORT_TILE_ROWS,
    add_table,
    add_to_columns,
    add_to_rows,
    column_maxima,
    max_plus,
    row_maxima,
    send_to_pair,
    transpose,
)
from dmcmc.inference.bounds.dual.pair_kernels import (
    FORBIDDEN,
    FORBIDDEN_BELOW,
    MAX_MAGNITUDE,
    bound,
    magnitude_of,
    remove_values,
    variable_pass,
)
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import (
    annealed_temperature,
    padded_size,
    smoothed_max_plus,
    smoothed_max_plus_transposed,
)
from dmcmc.inference.model.copy_kernels import copy_entries
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


@njit(nogil=True, allocates=False)
def sweep(graph, potentials, forward, temperature, scratch, halt):
    """Make one sweep: the passes over triangles, higher-order factors and variables.

    Parameters
    ----------
    graph : DualGraph
    potentials : DualPotentials
        Changed in place.
    forward : bool
        Direction of the variable pass.
    temperature : float32
        Smooths the maxima of triangles; 0 for exact maxima.
    scratch : (6, W, W) int32
        Workspace.
    halt : (1,) uint8
        Ends the passes early once this is 1.

    Returns
    -------
    bool
        False if an entry left the range, which ends the sweep. If ``halt`` ended a pass early, the result is still
        True; the tables are valid.
    """
    if not triangle_pass(graph, potentials, temperature, scratch, halt):
        return False
    if not higher_order_pass(graph, potentials, scratch[0, 0], halt):
        return False
    return variable_pass(graph, potentials, forward, scratch[0, 0])


@njit(nogil=True)
def ascend(graph, potentials, first, last, initial_temperature, begin, sweeps, scratch, halt):
    """Make the sweeps ``first`` to ``last`` - 1, in alternating directions; return the number of the next sweep.

    The result is less than ``last`` if an entry left the range or ``halt`` became 1.

    Parameters
    ----------
    graph : DualGraph
    potentials : DualPotentials
        Changed in place.
    first, last : int
        Numbers of the sweeps.
    initial_temperature : float32
        Temperature at the start of annealing; 0 for exact maxima.
    begin, sweeps : int
        The annealing schedule has ``sweeps`` sweeps, and sweep ``first`` is number ``begin`` of them.
    scratch : (6, W, W) int32
        Workspace.
    halt : (1,) uint8
        Ends the ascent when it becomes 1.
    """
    for number in range(first, last):
        temperature = annealed_temperature(initial_temperature, begin + number - first, sweeps)
        if halt[0] != 0 or not sweep(graph, potentials, number % 2 == 0, temperature, scratch, halt):
            return number
        if number % RECENTRE_EVERY == RECENTRE_EVERY - 1:
            recentre(graph, potentials)
    return last


@njit(nogil=True)
def condition(graphs, potentials, conditioned, digits):
    """Condition the potentials on an interface assignment: add each fixed table to those of the hidden variables.

    Parameters
    ----------
    graphs : RowGraphs
    potentials : DualPotentials
        Potentials of the whole graph.
    conditioned : DualPotentials
        Potentials of the hidden graph; overwritten.
    digits : (interface,) int64
        The value of each interface variable.

    Returns
    -------
    constant : int64
        Utility of the tables over interface variables alone; ``MINUS_INFINITY`` if they forbid the assignment.
    fits : bool
        Whether all entries stayed in range. If not, ``conditioned`` must not be used.
    """
    whole, hidden, sliced_factors = graphs.whole, graphs.hidden, graphs.sliced_factors
    n = hidden.domains.size
    copy_entries(potentials.unary[:n].reshape(-1), conditioned.unary.reshape(-1))
    copy_entries(potentials.pair[: hidden.pairs.shape[0]].reshape(-1), conditioned.pair.reshape(-1))
    copy_entries(potentials.triangle[: hidden.triangles.shape[0]].reshape(-1), conditioned.triangle.reshape(-1))
    constant = np.int64(0)
    for x in range(n, whole.domains.size):
        unary_entry = potentials.unary[x, digits[x - n]]
        if unary_entry < FORBIDDEN_BELOW:
            return MINUS_INFINITY, True
        constant += unary_entry
    for e in range(hidden.pairs.shape[0], whole.pairs.shape[0]):
        entry, fits = _condition_pair(
            whole.pairs[e, 0], whole.pairs[e, 1], n, digits, potentials.pair[e], conditioned.unary
        )
        if entry < FORBIDDEN_BELOW:
            return MINUS_INFINITY, True
        if not fits:
            return MINUS_INFINITY, False
        constant += entry
    for t in range(hidden.triangles.shape[0], whole.triangles.shape[0]):
        a, b, c = whole.corners[t, 0], whole.corners[t, 1], whole.corners[t, 2]
        ab, ac, bc = potentials.triangle[t, 0], potentials.triangle[t, 1], potentials.triangle[t, 2]
        if b < n:
            target = conditioned.pair[whole.triangles[t, 0]]
            # Only c is an interface variable: the table ab stays and is added to the pair's.
            ab_entry, fits = np.int64(0), _add_table(target, ab)
        else:
            ab_entry, fits = _condition_pair(a, b, n, digits, ab, conditioned.unary)
        ac_entry, ac_fits = _condition_pair(a, c, n, digits, ac, conditioned.unary)
        bc_entry, bc_fits = _condition_pair(b, c, n, digits, bc, conditioned.unary)
        if min(ab_entry, ac_entry, bc_entry) < FORBIDDEN_BELOW:
            return MINUS_INFINITY, True
        if not (fits and ac_fits and bc_fits):
            return MINUS_INFINITY, False
        constant += ab_entry + ac_entry + bc_entry
    next_sliced = 0
    for s in range(whole.entry_start.size - 1):
        scope = whole.scope_variables[whole.scope_start[s] : whole.scope_start[s + 1]]
        table = potentials.higher_order[whole.entry_start[s] : whole.entry_start[s + 1]]
        if next_sliced < sliced_factors.size and sliced_factors[next_sliced] == s:
            _slice(
                whole.domains,
                scope,
                n,
                digits,
                table,
                conditioned.higher_order[hidden.entry_start[next_sliced] : hidden.entry_start[next_sliced + 1]],
            )
            next_sliced += 1
            continue
        position = 0  # all variables of the factor are interface variables, so one entry is selected
        for v in scope:
            position = position * whole.domains[v] + digits[v - n]
        if table[position] < FORBIDDEN_BELOW:
            return MINUS_INFINITY, True
        constant += table[position]
    return constant, True


@njit(nogil=True, allocates=False)
def _add_table(target, table):
    """Add a (W, W) int32 table to the pairwise table ``target``; return whether all entries stayed in range."""
    largest = np.int32(0)
    for i in range(target.shape[0]):
        for j in range(target.shape[1]):
            total = np.int32(target[i, j] + table[i, j])
            target[i, j] = FORBIDDEN if total < FORBIDDEN_BELOW else total
            largest = max(largest, magnitude_of(total))
    return largest <= MAX_MAGNITUDE


@njit(nogil=True, allocates=False)
def _condition_pair(a, b, n, digits, table, unary):
    """Condition a table over a and b on the value of b, an interface variable, and add the column to a's unary table.

    If a is an interface variable too, nothing is added and the selected entry is returned.

    Parameters
    ----------
    a, b : int
        Variables, a < b.
    n : int
        Number of hidden variables, which is the number of the first interface variable.
    digits : (interface,) int64
        The value of each interface variable.
    table : (W, W) int32
    unary : (n, W) int32
        Unary tables of the hidden variables; changed in place.

    Returns
    -------
    entry : int64
        The selected entry; 0 if a is hidden.
    fits : bool
        Whether all entries stayed in range.
    """
    y = digits[b - n]
    if a >= n:
        return np.int64(table[digits[a - n], y]), True
    largest = np.int32(0)
    for i in range(unary.shape[1]):
        total = np.int32(unary[a, i] + table[i, y])
        unary[a, i] = FORBIDDEN if total < FORBIDDEN_BELOW else total
        largest = max(largest, magnitude_of(total))
    return np.int64(0), largest <= MAX_MAGNITUDE


@njit(nogil=True)
def _slice(domains, scope, n, digits, table, out):
    """Copy the entries of a higher-order factor that agree with the interface assignment.

    Parameters
    ----------
    domains : (variables,) int64
        Domain sizes.
    scope : (arity,) int64
        Variables of the factor.
    n : int
        Number of hidden variables, which have the lowest numbers.
    digits : (interface,) int64
        The value of each interface variable.
    table : (entries,) int32
        Entries of the factor, in C order over its scope.
    out : (entries of the slice,) int32
        Receives the entries, in C order over the hidden variables of the scope.
    """
    counter = np.zeros(scope.size, dtype=np.int64)
    for k in range(scope.size):
        if scope[k] >= n:
            counter[k] = digits[scope[k] - n]
    for i in range(out.size):
        position = 0
        for k in range(scope.size):
            position = position * domains[scope[k]] + counter[k]
        out[i] = table[position]
        for k in range(scope.size - 1, -1, -1):
            if scope[k] < n:
                counter[k] += 1
                if counter[k] < domains[scope[k]]:
                    break
                counter[k] = 0


@njit(nogil=True, allocates=False)
def decode_row(row, shape, digits):
    """Write the value of each interface variable in a row, given the row's number, to ``digits``."""
    for k in range(shape.size - 1, -1, -1):
        digits[k] = row % shape[k]
        row //= shape[k]


@njit(nogil=True)
def bound_rows(graphs, potentials, conditioned, rows, sweeps, initial_temperature, cutoffs, bounds, scratch, halt):
    """Lower the bounds of some rows.

    Parameters
    ----------
    graphs : RowGraphs
    potentials : DualPotentials
        Potentials of the whole graph, from which each row's ascent starts.
    conditioned : DualPotentials
        Potentials of the hidden graph; workspace of the caller's thread.
    rows : (k,) int64
        Row numbers.
    sweeps : int
        Sweeps per row.
    initial_temperature : float32
        Temperature of the first sweep of a row.
    cutoffs : (k,) int64
        Cutoffs in the integer scale: values with which a row stays below its cutoff are removed; ``MINUS_INFINITY``
        removes nothing.
    bounds : (rows of the interface,) int64
        Lowered where a better bound is found.
    scratch : (6, W, W) int32
        Workspace of the caller's thread.
    halt : (1,) uint8
        The remaining rows are left unchanged once this is 1.
    """
    hidden, digits = graphs.hidden, np.zeros(graphs.shape.size, dtype=np.int64)
    no_values = np.empty((0, potentials.unary.shape[1]), dtype=np.int16)
    for r in range(rows.size):
        if halt[0] != 0:
            return
        decode_row(rows[r], graphs.shape, digits)
        constant, fits = condition(graphs, potentials, conditioned, digits)
        if not fits:
            continue  # nothing is known about this row
        if constant == MINUS_INFINITY:
            bounds[rows[r]] = MINUS_INFINITY
            continue
        row_bound, _, _ = bound_by_ascent(
            hidden, conditioned, no_values, constant, 0, cutoffs[r], sweeps, initial_temperature, scratch, halt
        )
        if cutoffs[r] > MINUS_INFINITY:
            # removed values are only known to stay below the cutoff
            row_bound = max(row_bound, cutoffs[r] - 1)
        bounds[rows[r]] = min(bounds[rows[r]], row_bound)


@njit(nogil=True)
def bound_by_ascent(graph, tables, value_of, constant, sweeps_made, threshold, sweeps, temperature, scratch, halt):
    """Alternate sweeps of dual ascent with the removal of values whose bound is below the threshold.

    Values are removed every ``PRUNE_EVERY`` sweeps. The loop ends as soon as the bound is below the threshold. The
    removed values of a search node also become forbidden in its pairwise tables, and its tables are compacted. A row
    keeps the size of its tables, and without a threshold it loses no values.

    Parameters
    ----------
    graph : DualGraph
        The hidden graph; of a node, with the domain sizes of the compacted tables.
    tables : DualPotentials
        Potentials of ``graph``; changed in place.
    value_of : (n, W) int16
        Original value of each position in the compacted tables of a node; (0, W) for a row.
    constant : int64
        Utility of the factors over interface variables alone, which is added to the bound of the tables.
    sweeps_made : int64
        Sweeps made since the row was fixed, including those of the node's ancestors; its parity gives the direction of
        the next sweep.
    threshold : int64
        Pruning threshold of the bound; ``MINUS_INFINITY`` if there is none.
    sweeps : int64
        Maximum number of sweeps.
    temperature : float32
        Smoothing temperature of the first of these sweeps.
    scratch : (6, W, W) int32
        Workspace.
    halt : (1,) uint8
        Ends the ascent when it becomes 1.

    Returns
    -------
    best : int64
        Upper bound, or ``MINUS_INFINITY`` if the row or node is infeasible.
    sweeps_made : int64
        Total number of sweeps, including those made before.
    in_range : bool
        Whether all entries are within the integer range.
    """
    is_node, sweeps_done, in_range = value_of.shape[0] > 0, 0, True
    prunes = is_node or threshold > MINUS_INFINITY
    if is_node:
        _propagate_removals(graph, tables, value_of)
    while True:
        best = bound(graph, tables)
        if best == MINUS_INFINITY or constant + best < threshold:
            break
        if prunes and remove_values(graph, tables, scratch[0, 0], constant, threshold) > 0 and is_node:
            _propagate_removals(graph, tables, value_of)
        if not in_range or halt[0] != 0 or sweeps_done >= sweeps:
            best = bound(graph, tables)
            break
        next_check = min(sweeps, sweeps_done + PRUNE_EVERY) if prunes else sweeps
        sweep_limit = sweeps_made + next_check - sweeps_done
        sweeps_reached = ascend(
            graph, tables, sweeps_made, sweep_limit, temperature, sweeps_done, sweeps, scratch, halt
        )
        in_range = sweeps_reached == sweep_limit or halt[0] != 0
        sweeps_made, sweeps_done = sweeps_reached, next_check
    return best if best == MINUS_INFINITY else best + constant, sweeps_made, in_range


@njit(nogil=True)
def _propagate_removals(graph, tables, value_of):
    """Forbid the removed values in the pairwise tables, and compact the tables of variables that lost values.

    Higher-order tables are not padded, so nothing is compacted if the graph has any.
    """
    n, width = value_of.shape
    kept_positions = np.empty((n, width), dtype=np.int64)
    kept_counts, shrinks, old_domains = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_), graph.domains.copy()
    any_shrinks = False
    for v in range(n):
        for i in range(graph.domains[v]):
            if tables.unary[v, i] >= FORBIDDEN_BELOW:
                kept_positions[v, kept_counts[v]] = i
                kept_counts[v] += 1
                continue
            for position in range(graph.incident_start[v], graph.incident_start[v + 1]):
                e = graph.incident[position]
                if graph.pairs[e, 0] == v:
                    tables.pair[e, i, :] = FORBIDDEN
                else:
                    tables.pair[e, :, i] = FORBIDDEN
        shrinks[v] = 0 < kept_counts[v] < graph.domains[v]
        any_shrinks |= shrinks[v]
    if not any_shrinks or graph.entry_start.size > 1:  # higher-order tables are not padded
        return
    for v in range(n):
        if not shrinks[v]:
            kept_counts[v] = old_domains[v]
            for i in range(old_domains[v]):
                kept_positions[v, i] = i
            continue
        for i in range(kept_counts[v]):
            tables.unary[v, i] = tables.unary[v, kept_positions[v, i]]
            value_of[v, i] = value_of[v, kept_positions[v, i]]
        tables.unary[v, kept_counts[v] :] = FORBIDDEN
        graph.domains[v], graph.widths[v] = kept_counts[v], padded_size(kept_counts[v])
    for e in range(graph.pairs.shape[0]):
        _compact(
            tables.pair[e], graph.pairs[e, 0], graph.pairs[e, 1], kept_positions, kept_counts, shrinks, old_domains
        )
    for t in range(graph.triangles.shape[0]):
        a, b, c = graph.corners[t, 0], graph.corners[t, 1], graph.corners[t, 2]
        _compact(tables.triangle[t, 0], a, b, kept_positions, kept_counts, shrinks, old_domains)
        _compact(tables.triangle[t, 1], a, c, kept_positions, kept_counts, shrinks, old_domains)
        _compact(tables.triangle[t, 2], b, c, kept_positions, kept_counts, shrinks, old_domains)


@njit(nogil=True)
def _compact(table, u, v, kept_positions, kept_counts, shrinks, old_domains):
    """Move the retained entries of a table over u and v to its front; all other entries become forbidden.

    Parameters
    ----------
    table : (W, W) int32
        The table; rows are values of u.
    kept_positions : (n, W) int64
        For each variable, the old positions of its retained values, in ascending order.
    kept_counts, old_domains : (n,) int64
        Number of retained values, and domain size before.
    shrinks : (n,) bool
        Whether the variable loses values.
    """
    if not (shrinks[u] or shrinks[v]):
        return
    for i in range(kept_counts[u]):
        for j in range(kept_counts[v]):
            table[i, j] = table[kept_positions[u, i], kept_positions[v, j]]
        table[i, kept_counts[v] : old_domains[v]] = FORBIDDEN
    table[kept_counts[u] : old_domains[u], : old_domains[v]] = FORBIDDEN
