# mypy: ignore-errors
"""What agents of one variable each compute in a cycle, compiled; :class:`.Layout` is the problem.

``scores[v, d]`` is what the factors of v are worth if v took d and all others stayed; :func:`change` keeps it up to
date for the variables of this rank. A state's worth is its sum of entries.
"""

import numpy as np

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit


@njit(inline="always")
def column_of(layout, column, z):
    """Return where a column starts for the values of the factor's other variables."""
    at = layout.column_at[column]
    for o in range(layout.other_start[column], layout.other_start[column + 1]):
        at += z[layout.other_variable[o]] * layout.other_stride[o]
    return at


@njit()
def fill_scores(layout, z, scores):
    """Compute all scores of a state from nothing."""
    for v in range(layout.domains.size):
        size = layout.domains[v] if layout.mine[v] else 0
        scores[v, :size] = 0
        for c in range(layout.column_start[v], layout.column_start[v + 1]):
            at = column_of(layout, c, z)
            for d in range(size):
                scores[v, d] += layout.data[at + d]


@njit()
def worth(layout, z):
    """Return the sum of all entries of a state: that of a factor is read by the rank of its first variable."""
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
def change(layout, z, scores, v, value):
    """Let v take a value; return the gain, if v is of this rank."""
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
    """Return the lowest of the best values."""
    best = 0
    for d in range(1, size):
        if scores[v, d] > scores[v, best]:
            best = d
    return best


@njit()
def in_conflict(layout, z, v):
    """Return whether a factor of v is worth less than it could be."""
    for c in range(layout.column_start[v], layout.column_start[v + 1]):
        if layout.data[column_of(layout, c, z) + z[v]] < layout.column_top[c]:
            return True
    return False


@njit()
def best_pair(layout, z, scores, row, u, p):
    """Return the best joint move of u and its neighbour of pair p: the gain and both values (the lowest at a tie)."""
    v = layout.neighbour[p]
    most, best_u, best_v = np.int64(0), z[u], z[v]
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
            if base + row[d] > most:
                most, best_u, best_v = base + row[d], a, d
    return most, best_u, best_v


@njit()
def is_2_optimal(layout, z, scores, row):
    """Return whether no one and no two neighbours can gain anything."""
    for u in range(z.size):
        if scores[u, best_value(scores, u, layout.domains[u])] > scores[u, z[u]]:
            return False
        for p in range(layout.pair_start[u], layout.pair_start[u + 1]):
            if layout.neighbour[p] > u and best_pair(layout, z, scores, row, u, p)[0] > 0:
                return False
    return True


@njit()
def move(layout, z, scores, new):
    """Let all variables take new values, one after another."""
    for v in range(z.size):
        if new[v] != z[v]:
            change(layout, z, scores, v, new[v])


@njit()
def conflicts(layout, z, found):
    """Write which variables have a factor that is worth less than it could be."""
    for v in range(z.size):
        found[v] = layout.mine[v] and in_conflict(layout, z, v)


@njit()
def answer_offers(layout, z, scores, to, gain, partner, joint, values):
    """Let every variable that offers nothing accept the joint move that gains most, if it gains more than its own.

    Parameters
    ----------
    to : (n,) int64
        The pair over which each variable makes an offer, -1 for none.
    gain : (n,) int64
        Of each variable's own best move.
    partner, joint : (n,) int64
        Written: whose offer each variable accepts (-1 for none), and the joint gain.
    values : (n, 2) int64
        Written: the values of who offered and who accepted.
    """
    row = np.empty(layout.most, dtype=np.int64)
    partner[:] = -1
    copy_entries(gain, joint)
    for u in range(z.size):
        if to[u] >= 0:
            v = layout.neighbour[to[u]]
            if to[v] < 0 and layout.mine[v]:
                most, a, b = best_pair(layout, z, scores, row, u, to[u])
                if most > joint[v]:
                    partner[v], joint[v] = u, most
                    values[v, 0], values[v, 1] = a, b


@njit()
def penalise(layout, z, penalties, guided, stuck, weight, keep):
    """Let penalties fade, and raise those of current entries that lose more than is usual around a stuck variable.

    A factor is penalised once, in all of its columns, if one of its variables is stuck and it loses at least the mean
    of what that variable's factors lose (DGLS). ``keep`` is in 1/1024; ``guided`` is the data less penalties.
    """
    n = z.size
    chosen = np.zeros(layout.column_at.size, dtype=np.bool_)  # by factor: there are fewer
    for v in range(n):
        first, last = layout.column_start[v], layout.column_start[v + 1]
        if stuck[v] and last > first:
            lost = 0.0
            for c in range(first, last):
                lost += layout.column_top[c] - layout.data[column_of(layout, c, z) + z[v]]
            for c in range(first, last):
                loss = layout.column_top[c] - layout.data[column_of(layout, c, z) + z[v]]
                if loss > 0 and loss >= lost / (last - first):
                    chosen[layout.column_factor[c]] = True
    for i in range(penalties.size):
        penalties[i] = penalties[i] * keep // 1024
    for v in range(n):
        for c in range(layout.column_start[v], layout.column_start[v + 1]):
            if chosen[layout.column_factor[c]]:
                i = column_of(layout, c, z) + z[v]
                loss = min(layout.column_top[c] - layout.data[i], layout.violation)
                penalties[i] = min(penalties[i] + max(np.int64(1), np.int64(weight * loss)), layout.violation)
    for i in range(penalties.size):
        guided[i] = layout.data[i] - penalties[i]


@njit()
def gibbs_sweep(layout, z, scores, order, inverse_temperature, uniforms):
    """Draw each variable in turn from its distribution given all others; ``uniforms`` has a number in [0, 1) each."""
    weights = np.empty(layout.most, dtype=np.float64)
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
            change(layout, z, scores, v, value)
