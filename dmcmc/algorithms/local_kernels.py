# mypy: ignore-errors
"""Compiled CPU kernels of the local algorithms (MGM, MGM2, DSA, DGLS, distributed Gibbs), run by one thread per rank.

``AgentNetwork`` and the algorithm files call them. All kernels read the flat tables of a ``ColumnLayout``:

* For each variable v and each factor of v there is one *column number* c, and a copy of the factor's table whose last
  axis is v. Column numbers of v are ``column_start[v]:column_start[v + 1]``.
* For fixed values of the factor's other variables, the entries for all values of v are contiguous in ``data``. They
  begin at ``column_at[c]`` plus, for each other variable, its value times its stride (``other_variable``,
  ``other_stride``).
* An ordered pair of neighbours (v, w) has a *pair number* p; ``neighbour[p]`` is w. ``touch_column`` and
  ``touch_stride`` list the columns of w whose position changes with v, and by how many entries per value of v.
* A rank keeps scores only for its own variables, those with ``mine``.

Arguments that several kernels share; n is the number of variables:

layout : ColumnLayout
    Flat arrays of the problem; all are defined in :class:`dmcmc.algorithms.layout.ColumnLayout`.
z : (n,) int64
    Current assignment (value indices).
scores : (n, largest domain) int64
    ``scores[v, d]`` is the sum of the entries of the factors of v if v takes value d and all other variables keep
    theirs. :func:`set_value` keeps it up to date for the variables of this rank.
row : (largest domain,) int64
    Scratch space.

All sums are in the integer units of ``layout.data``. A forbidden entry is ``-layout.violation``, which outweighs all
utilities together.
"""

import math

import numpy as np

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit


@njit(allocates=False)
def column_of(layout, column, z):
    """Return where a column starts in ``layout.data`` (its entry for value 0) when the others are as in ``z``."""
    start = layout.column_at[column]
    for i in range(layout.other_start[column], layout.other_start[column + 1]):
        start += z[layout.other_variable[i]] * layout.other_stride[i]
    return start


@njit()
def fill_scores(layout, z, scores):
    """Compute the scores of all variables of this rank from scratch, for the assignment ``z``."""
    for v in range(layout.domains.size):
        size = layout.domains[v] if layout.mine[v] else 0
        scores[v, :size] = 0
        for c in range(layout.column_start[v], layout.column_start[v + 1]):
            start = column_of(layout, c, z)
            for d in range(size):
                scores[v, d] += layout.data[start + d]


@njit(allocates=False)
def total_score(layout, z):
    """Return this rank's part of an assignment's total utility, in the units of ``layout.data``.

    Each factor is counted once over all ranks: by the rank of its variable with the lowest index.
    """
    total = np.int64(0)
    for v in range(layout.domains.size):
        if not layout.mine[v]:
            continue
        for c in range(layout.column_start[v], layout.column_start[v + 1]):
            is_lowest_variable = True
            for i in range(layout.other_start[c], layout.other_start[c + 1]):
                is_lowest_variable = is_lowest_variable and layout.other_variable[i] > v
            if is_lowest_variable:
                total += layout.data[column_of(layout, c, z) + z[v]]
    return total


@njit(allocates=False)
def set_value(layout, z, scores, v, value):
    """Set variable v to a value, and update the scores of its neighbours; return the gain of the move.

    The gain is valid only if v belongs to this rank. Only columns whose position depends on v are read.
    """
    gain = scores[v, value] - scores[v, z[v]]
    value_difference = value - z[v]
    for p in range(layout.pair_start[v], layout.pair_start[v + 1]):
        w = layout.neighbour[p]
        if not layout.mine[w]:
            continue
        for i in range(layout.touch_start[p], layout.touch_start[p + 1]):
            old = column_of(layout, layout.touch_column[i], z)
            new = old + value_difference * layout.touch_stride[i]
            for d in range(layout.domains[w]):
                scores[w, d] += layout.data[new + d] - layout.data[old + d]
    z[v] = value
    return gain


@njit(allocates=False)
def best_value(scores, v, size):
    """Return the best of the first ``size`` values of v, the lowest index at a tie."""
    best = 0
    for d in range(1, size):
        if scores[v, d] > scores[v, best]:
            best = d
    return best


@njit(allocates=False)
def in_conflict(layout, z, v):
    """Return whether a factor of v is below its largest entry (for constraints: whether one of them is violated).

    Only the factors of v are read; v may be any variable.
    """
    for c in range(layout.column_start[v], layout.column_start[v + 1]):
        if layout.data[column_of(layout, c, z) + z[v]] < layout.column_top[c]:
            return True
    return False


@njit(allocates=False)
def best_pair(layout, z, scores, row, u, p):
    """Return the best joint move of variable u and its neighbour, the second variable of pair number p.

    The values of u are tried one after the other. For each, ``row`` holds the scores of the neighbour after u has
    moved.

    Parameters
    ----------
    u : int
        First variable of the pair.
    p : int
        Pair number, from ``layout.pair_start[u]:layout.pair_start[u + 1]``.

    Returns
    -------
    gain, value_u, value_v : int
        The joint gain (0 if staying is best), and both values (the lowest indices at a tie).
    """
    v = layout.neighbour[p]
    best_gain, best_u, best_v = np.int64(0), z[u], z[v]
    for a in range(layout.domains[u]):
        for d in range(layout.domains[v]):
            row[d] = scores[v, d]
        for i in range(layout.touch_start[p], layout.touch_start[p + 1]):
            old = column_of(layout, layout.touch_column[i], z)
            new = old + (a - z[u]) * layout.touch_stride[i]
            for d in range(layout.domains[v]):
                row[d] += layout.data[new + d] - layout.data[old + d]
        base = scores[u, a] - scores[u, z[u]] - row[z[v]]
        for d in range(layout.domains[v]):
            if base + row[d] > best_gain:
                best_gain, best_u, best_v = base + row[d], a, d
    return best_gain, best_u, best_v


@njit(allocates=False)
def is_2_optimal(layout, z, scores, row):
    """Return whether no variable and no pair of neighbours can gain anything; needs the scores of all variables."""
    for u in range(z.size):
        if scores[u, best_value(scores, u, layout.domains[u])] > scores[u, z[u]]:
            return False
        for p in range(layout.pair_start[u], layout.pair_start[u + 1]):
            if layout.neighbour[p] > u and best_pair(layout, z, scores, row, u, p)[0] > 0:
                return False
    return True


@njit(allocates=False)
def set_values(layout, z, scores, new):
    """Set all variables to the values ``new`` (n,), one after another, and update the scores."""
    for v in range(z.size):
        if new[v] != z[v]:
            set_value(layout, z, scores, v, new[v])


@njit(allocates=False)
def conflicts(layout, z, in_conflict_flags):
    """Write which variables of this rank have a factor below its largest entry.

    Parameters
    ----------
    in_conflict_flags : (n,) bool
        Written; False for variables of other ranks.
    """
    for v in range(z.size):
        in_conflict_flags[v] = layout.mine[v] and in_conflict(layout, z, v)


@njit()
def answer_offers(layout, z, scores, to, gain, partner, joint, values):
    """Let variables without an offer accept the joint move with the largest gain, if it exceeds their own gain (MGM2).

    Parameters
    ----------
    scores : (n, largest domain) int64
        Scores of the variables of all ranks.
    to : (n,) int64
        Number of the pair over which each variable makes an offer; -1 if it makes none.
    gain : (n,) int64
        Gain of each variable's own best move.
    partner, joint : (n,) int64
        Written: the variable whose offer each variable accepts (-1 for none), and the joint gain.
    values : (n, 2) int64
        Written for each acceptor: the values of the offering and of the accepting variable.
    """
    row = np.empty(layout.max_domain, dtype=np.int64)
    partner[:] = -1
    copy_entries(gain, joint)
    for u in range(z.size):
        if to[u] >= 0:
            v = layout.neighbour[to[u]]
            if to[v] < 0 and layout.mine[v]:
                joint_gain, a, b = best_pair(layout, z, scores, row, u, to[u])
                if joint_gain > joint[v]:
                    partner[v], joint[v] = u, joint_gain
                    values[v, 0], values[v, 1] = a, b


@njit()
def penalise(layout, z, penalties, guided, stuck, weight, keep, limit):
    """Decay all penalties, and penalise current entries with an above-average loss around stuck variables (DGLS).

    The loss of a factor is its largest entry less its current one. A factor is chosen if one of its variables is stuck,
    and the factor loses at least the mean loss of that variable's factors. The current entry of a chosen factor is
    penalised in the table copies of all of its variables.

    Parameters
    ----------
    penalties : (entries,) int64
        Penalty of each entry of ``layout.data``; updated.
    guided : (entries,) int64
        Written: ``layout.data`` less the penalties.
    stuck : (n,) bool
        Variables that cannot gain, and whose neighbours cannot gain either.
    weight : float
        Penalty per unit of loss.
    keep : int
        Share of a penalty that remains after the decay, in units of 1/1024.
    limit : int
        Largest penalty, and the largest loss that counts.
    """
    n = z.size
    factor_chosen = np.zeros(layout.column_at.size, dtype=np.bool_)  # by factor; there are at least as many columns
    for v in range(n):
        first_column, end_column = layout.column_start[v], layout.column_start[v + 1]
        if stuck[v] and end_column > first_column:
            total_loss = 0.0
            for c in range(first_column, end_column):
                total_loss += layout.column_top[c] - layout.data[column_of(layout, c, z) + z[v]]
            for c in range(first_column, end_column):
                loss = layout.column_top[c] - layout.data[column_of(layout, c, z) + z[v]]
                if loss > 0 and loss >= total_loss / (end_column - first_column):
                    factor_chosen[layout.column_factor[c]] = True
    for i in range(penalties.size):
        penalties[i] = penalties[i] * keep // 1024
    for v in range(n):
        for c in range(layout.column_start[v], layout.column_start[v + 1]):
            if factor_chosen[layout.column_factor[c]]:
                i = column_of(layout, c, z) + z[v]
                loss = min(layout.column_top[c] - layout.data[i], limit)
                # at least one unit, so that every penalty has an effect
                penalties[i] = min(penalties[i] + max(np.int64(1), np.int64(weight * loss)), limit)
    for i in range(penalties.size):
        guided[i] = layout.data[i] - penalties[i]


@njit()
def gibbs_sweep(layout, z, scores, order, inverse_temperature, uniforms):
    """Draw each variable in turn from its conditional distribution given all others (one sweep of a Gibbs sampler).

    A value is drawn by inversion of the cumulative weights exp(score * inverse_temperature).

    Parameters
    ----------
    order : (n,) int64
        Order of the variables.
    inverse_temperature : float
        1 / temperature, per unit of ``layout.data``.
    uniforms : (n,) float64
        One random number in [0, 1) per variable.
    """
    cumulative_weights = np.empty(layout.max_domain, dtype=np.float64)
    for i in range(order.size):
        v = order[i]
        top = scores[v, best_value(scores, v, layout.domains[v])]  # subtracted, so that exp does not overflow
        total = 0.0
        for d in range(layout.domains[v]):
            total += math.exp((scores[v, d] - top) * inverse_temperature)
            cumulative_weights[d] = total
        value = 0
        while value + 1 < layout.domains[v] and cumulative_weights[value] <= uniforms[i] * total:
            value += 1
        if value != z[v]:
            set_value(layout, z, scores, v, value)
