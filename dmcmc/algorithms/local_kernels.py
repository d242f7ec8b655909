# mypy: ignore-errors
"""Compiled CPU kernels for agents with one variable each.

Arguments that several kernels share:

layout : ColumnLayout
    Flat arrays of the problem; see :class:`dmcmc.algorithms.layout.ColumnLayout`.
z : (n,) int64
    Current assignment (value indices).
scores : (n, largest domain) int64
    ``scores[v, d]`` is the sum of the entries of the factors of v if v takes d and all others stay.
    :func:`set_value` keeps it up to date for the variables of this rank.
row : (largest domain,) int64
    Scratch space.

All sums are in the integer units of ``layout.data``.
"""

import numpy as np

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit


@njit(inline="always")
def column_of(layout, column, z):
    """Return where a column starts in ``layout.data`` for the values of the factor's other variables."""
    at = layout.column_at[column]
    for o in range(layout.other_start[column], layout.other_start[column + 1]):
        at += z[layout.other_variable[o]] * layout.other_stride[o]
    return at


@njit()
def fill_scores(layout, z, scores):
    """Compute all scores of an assignment from scratch."""
    for v in range(layout.domains.size):
        size = layout.domains[v] if layout.mine[v] else 0
        scores[v, :size] = 0
        for c in range(layout.column_start[v], layout.column_start[v + 1]):
            at = column_of(layout, c, z)
            for d in range(size):
                scores[v, d] += layout.data[at + d]


@njit()
def total_score(layout, z):
    """Return the sum of all entries of an assignment; the rank of a factor's first variable reads its entry."""
    total = np.int64(0)
    for v in range(layout.domains.size):
        if not layout.mine[v]:
            continue
        for c in range(layout.column_start[v], layout.column_start[v + 1]):
            first = True
            for o in range(layout.other_start[c], layout.other_start[c + 1]):
                first = first and layout.other_variable[o] > v
            if first:
                total += layout.data[column_of(layout, c, z) + z[v]]
    return total


@njit()
def set_value(layout, z, scores, v, value):
    """Set variable v to a value and update the scores; return the gain, which is valid if v belongs to this rank."""
    gain = scores[v, value] - scores[v, z[v]]
    step = value - z[v]
    for p in range(layout.pair_start[v], layout.pair_start[v + 1]):
        w = layout.neighbour[p]
        if not layout.mine[w]:
            continue
        for t in range(layout.touch_start[p], layout.touch_start[p + 1]):
            old = column_of(layout, layout.touch_column[t], z)
            new = old + step * layout.touch_stride[t]
            for d in range(layout.domains[w]):
                scores[w, d] += layout.data[new + d] - layout.data[old + d]
    z[v] = value
    return gain


@njit(inline="always")
def best_value(scores, v, size):
    """Return the best of the first ``size`` values of v, the lowest index at a tie."""
    best = 0
    for d in range(1, size):
        if scores[v, d] > scores[v, best]:
            best = d
    return best


@njit()
def in_conflict(layout, z, v):
    """Return whether a factor of v is below its largest entry."""
    for c in range(layout.column_start[v], layout.column_start[v + 1]):
        if layout.data[column_of(layout, c, z) + z[v]] < layout.column_top[c]:
            return True
    return False


@njit()
def best_pair(layout, z, scores, row, u, p):
    """Return the best joint move of u and its neighbour of pair p.

    Returns
    -------
    gain, value_u, value_v : int
        The gain, and both values (the lowest indices at a tie).
    """
    v = layout.neighbour[p]
    best_gain, best_u, best_v = np.int64(0), z[u], z[v]
    for a in range(layout.domains[u]):
        for d in range(layout.domains[v]):
            row[d] = scores[v, d]
        for t in range(layout.touch_start[p], layout.touch_start[p + 1]):
            old = column_of(layout, layout.touch_column[t], z)
            new = old + (a - z[u]) * layout.touch_stride[t]
            for d in range(layout.domains[v]):
                row[d] += layout.data[new + d] - layout.data[old + d]
        base = scores[u, a] - scores[u, z[u]] - row[z[v]]
        for d in range(layout.domains[v]):
            if base + row[d] > best_gain:
                best_gain, best_u, best_v = base + row[d], a, d
    return best_gain, best_u, best_v


@njit()
def is_2_optimal(layout, z, scores, row):
    """Return whether no variable and no pair of neighbours can gain anything."""
    for u in range(z.size):
        if scores[u, best_value(scores, u, layout.domains[u])] > scores[u, z[u]]:
            return False
        for p in range(layout.pair_start[u], layout.pair_start[u + 1]):
            if layout.neighbour[p] > u and best_pair(layout, z, scores, row, u, p)[0] > 0:
                return False
    return True


@njit()
def set_values(layout, z, scores, new):
    """Set all variables to the values ``new`` (n,), one after another, and update the scores."""
    for v in range(z.size):
        if new[v] != z[v]:
            set_value(layout, z, scores, v, new[v])


@njit()
def conflicts(layout, z, in_conflict_flags):
    """Write to ``found`` (n,) bool which variables have a factor below its largest entry."""
    for v in range(z.size):
        in_conflict_flags[v] = layout.mine[v] and in_conflict(layout, z, v)


@njit()
def answer_offers(layout, z, scores, to, gain, partner, joint, values):
    """Let variables without an offer accept the joint move with the largest gain, if it exceeds their own gain (MGM2).

    Parameters
    ----------
    to : (n,) int64
        Pair over which each variable makes an offer; -1 for none.
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
def penalise(layout, z, penalties, guided, stuck, weight, keep):
    """Decay all penalties, and penalise current entries with an above-average loss around stuck variables (DGLS).

    A factor is penalised once, in all of its columns, if one of its variables is stuck and the factor loses at least
    the mean loss of that variable's factors. The loss of a factor is its largest entry less its current one.

    Parameters
    ----------
    penalties : (entries,) int64
        Penalty of each entry of ``layout.data``; updated.
    guided : (entries,) int64
        Written: ``layout.data`` less the penalties.
    stuck : (n,) bool
        Variables without a gain in their neighbourhood.
    weight : float
        Penalty per unit of loss.
    keep : int
        Share of a penalty that remains, in units of 1/1024.
    """
    n = z.size
    factor_chosen = np.zeros(layout.column_at.size, dtype=np.bool_)  # by factor index, below the number of columns
    for v in range(n):
        first, last = layout.column_start[v], layout.column_start[v + 1]
        if stuck[v] and last > first:
            total_loss = 0.0
            for c in range(first, last):
                total_loss += layout.column_top[c] - layout.data[column_of(layout, c, z) + z[v]]
            for c in range(first, last):
                loss = layout.column_top[c] - layout.data[column_of(layout, c, z) + z[v]]
                if loss > 0 and loss >= total_loss / (last - first):
                    factor_chosen[layout.column_factor[c]] = True
    for i in range(penalties.size):
        penalties[i] = penalties[i] * keep // 1024
    for v in range(n):
        for c in range(layout.column_start[v], layout.column_start[v + 1]):
            if factor_chosen[layout.column_factor[c]]:
                i = column_of(layout, c, z) + z[v]
                loss = min(layout.column_top[c] - layout.data[i], layout.violation)
                penalties[i] = min(penalties[i] + max(np.int64(1), np.int64(weight * loss)), layout.violation)
    for i in range(penalties.size):
        guided[i] = layout.data[i] - penalties[i]


@njit()
def gibbs_sweep(layout, z, scores, order, inverse_temperature, uniforms):
    """Draw each variable in turn from its conditional distribution given all others.

    Parameters
    ----------
    order : (n,) int64
        Order of the variables.
    inverse_temperature : float
        Factor on the scores in the exponent, per unit of ``layout.data``.
    uniforms : (n,) float64
        One number in [0, 1) per variable.
    """
    weights = np.empty(layout.max_domain, dtype=np.float64)
    for i in range(order.size):
        v = order[i]
        top = scores[v, best_value(scores, v, layout.domains[v])]
        total = 0.0
        for d in range(layout.domains[v]):
            total += np.exp((scores[v, d] - top) * inverse_temperature)
            weights[d] = total
        value = 0
        while value + 1 < layout.domains[v] and weights[value] <= uniforms[i] * total:
            value += 1
        if value != z[v]:
            set_value(layout, z, scores, v, value)
