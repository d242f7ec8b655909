# mypy: ignore-errors
"""Nodes of a search in rows: inherit the parent's shares, leave values out, ascend, remove values, choose a branch.

Every node's bound is that of its own shares. Values that are gone are dead in the tables of pairs too, and tables are
packed where that makes them narrower: neither changes what the passes do to the values that are left.
"""

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.node_buffers import (
    FAR,
    JOB_ROW,
    JOB_SOURCE,
    JOB_SWEEPS,
    JOB_TARGET,
    JOB_THRESHOLD,
    LEAF,
    PART,
    STUCK,
    UNFIT,
)
from dmcmc.inference.bounds.branch_and_bound.node_storage_kernels import fetch, store
from dmcmc.inference.bounds.dual.graph import Graph, Shares
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, THRESHOLD, bound, remove_values
from dmcmc.inference.bounds.dual.row_kernels import PRUNE_EVERY, ascend, fix
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import padded
from dmcmc.inference.bounds.dual.tables.maxima_kernels import column_maxima, row_maxima
from dmcmc.inference.runtime.compile import njit


# long: what happens at a node, step by step
@njit(nogil=True)
def run_nodes(
    whole, shares, hidden, slices, shape, pool, area, jobs, masks, found, variables, firsts, warmth, scratch, halt
):
    """Bound some nodes, one after the other, and say where to branch.

    jobs (k, JOB) int64, see :mod:`dmcmc.inference.bounds.branch_and_bound.node_buffers`; masks (k, hidden, W) bool: values that may be
    live, in the end those that are; found (k,) int64: bounds, or UNFIT where nothing is known; variables (k,) int64:
    where to branch, LEAF or STUCK; firsts (k, W) bool: the best of that variable's values; warmth float32: the
    temperature of a node's first sweep. Tables are kept of what has a variable to branch on, or is inherited next. When
    ``halt`` (1,) uint8 becomes 1, the other nodes stay as they are. Where a row has no tables, those that would inherit
    them are worth the same.
    """
    lost = np.int64(0)
    digits = np.zeros(shape.size, dtype=np.int64)
    marginals = np.zeros(shares.unary.shape[1], dtype=np.int64)
    part, names = Shares(area.unary, area.pair, area.cluster, area.star), area.names
    graph = Graph(
        area.domains,
        area.widths,
        hidden.pairs,
        hidden.incident_at,
        hidden.incident,
        hidden.triangles,
        hidden.corners,
        hidden.star_start,
        hidden.star_scope,
        hidden.star_at,
    )
    for k in range(jobs.shape[0]):
        if halt[0] != 0:
            return
        source, target, threshold = jobs[k, JOB_SOURCE], jobs[k, JOB_TARGET], jobs[k, JOB_THRESHOLD]
        if source < 0:
            number = jobs[k, JOB_ROW]
            for q in range(shape.size - 1, -1, -1):
                digits[q] = number % shape[q]
                number //= shape[q]
            constant, fits = fix(whole, shares, hidden, part, slices, digits)
            if constant == NEVER:
                lost = NEVER if fits else UNFIT
                found[k], variables[k] = lost, STUCK
                continue
            made = np.int64(0)
            for v in range(names.shape[0]):
                graph.domains[v] = hidden.domains[v]
                for i in range(names.shape[1]):
                    names[v, i] = i
        elif lost != 0:
            found[k], variables[k] = lost, STUCK
            continue
        else:
            fetch(pool, source, area)
            constant, made = pool.constants[source], pool.made[source]
        for v in range(names.shape[0]):
            graph.widths[v] = padded(graph.domains[v])
            for i in range(graph.domains[v]):
                if not masks[k, v, names[v, i]]:
                    part.unary[v, i] = DEAD
        best, made, fits = _bound_node(
            graph, part, names, constant, made, threshold, jobs[k, JOB_SWEEPS], warmth, scratch, halt
        )
        found[k] = best
        for v in range(names.shape[0]):
            for i in range(masks.shape[2]):
                masks[k, v, i] = False
            for i in range(graph.domains[v]):
                masks[k, v, names[v, i]] = part.unary[v, i] >= THRESHOLD
        variables[k] = STUCK
        if fits and best != NEVER and best >= threshold:
            variables[k] = _choose(graph, part, names, marginals, scratch[0, 0], best - threshold, firsts[k])
        inherited = k + 1 < jobs.shape[0] and jobs[k + 1, JOB_SOURCE] == target and source != target
        if variables[k] >= 0 or inherited:
            store(pool, target, area, graph)
            pool.constants[target], pool.made[target] = constant, made


@njit(nogil=True)
def _bound_node(graph, part, names, constant, made, threshold, sweeps, warmth, scratch, halt):
    """Ascend, and remove values with which the node stays below its threshold.

    Return its bound, how many sweeps have been made in all, ``made`` of them before, and whether it fits. A node below
    its threshold is not worked on any further.
    """
    done, fits = 0, True
    _take_out(graph, part, names)
    while True:
        best = bound(graph, part)
        if best == NEVER or constant + best < threshold:
            break
        if remove_values(graph, part, scratch[0, 0], constant, threshold) > 0:
            _take_out(graph, part, names)
        if not fits or halt[0] != 0 or done >= sweeps:
            best = bound(graph, part)
            break
        until = min(sweeps, done + PRUNE_EVERY)
        last = made + until - done
        reached = ascend(graph, part, made, last, warmth, done, sweeps, scratch, halt)
        fits = reached == last or halt[0] != 0
        made, done = reached, until
    return best if best == NEVER else best + constant, made, fits


@njit(nogil=True)
def _take_out(graph, part, names):
    """Make the dead values of variables dead in pairs too; pack the tables of variables that have less."""
    n, width = names.shape
    keep = np.empty((n, width), dtype=np.int64)
    counts, packed, olds = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_), graph.domains.copy()
    some = False
    for v in range(n):
        for i in range(graph.domains[v]):
            if part.unary[v, i] >= THRESHOLD:
                keep[v, counts[v]] = i
                counts[v] += 1
                continue
            for position in range(graph.incident_at[v], graph.incident_at[v + 1]):
                e = graph.incident[position]
                if graph.pairs[e, 0] == v:
                    part.pair[e, i, :] = DEAD
                else:
                    part.pair[e, :, i] = DEAD
        packed[v] = 0 < counts[v] < graph.domains[v]
        some |= packed[v]
    if not some or graph.star_at.size > 1:  # stars are not padded
        return
    for v in range(n):
        if not packed[v]:
            counts[v] = olds[v]
            for i in range(olds[v]):
                keep[v, i] = i
            continue
        for i in range(counts[v]):
            part.unary[v, i] = part.unary[v, keep[v, i]]
            names[v, i] = names[v, keep[v, i]]
        part.unary[v, counts[v] :] = DEAD
        graph.domains[v], graph.widths[v] = counts[v], padded(counts[v])
    for e in range(graph.pairs.shape[0]):
        _pack(part.pair[e], graph.pairs[e, 0], graph.pairs[e, 1], keep, counts, packed, olds)
    for t in range(graph.triangles.shape[0]):
        a, b, c = graph.corners[t, 0], graph.corners[t, 1], graph.corners[t, 2]
        _pack(part.cluster[t, 0], a, b, keep, counts, packed, olds)
        _pack(part.cluster[t, 1], a, c, keep, counts, packed, olds)
        _pack(part.cluster[t, 2], b, c, keep, counts, packed, olds)


@njit(nogil=True)
def _pack(table, u, v, keep, counts, packed, olds):
    """Move the kept entries of a table over u and v to its front; what is behind them is dead."""
    if not (packed[u] or packed[v]):
        return
    for i in range(counts[u]):
        for j in range(counts[v]):
            table[i, j] = table[keep[u, i], keep[v, j]]
        table[i, counts[v] : olds[v]] = DEAD
    table[counts[u] : olds[u], : olds[v]] = DEAD


@njit(nogil=True)
def _choose(graph, part, names, marginals, tops, slack, first):
    """Return the variable to branch on, LEAF if every variable has one value; set ``first`` to its best values.

    Of all variables the one whose values' max-marginals, in the tables over it and its pairs, are together most below
    the sum of these tables' maxima: many values, or maxima that disagree. ``slack`` is what the node has to fall by to
    be closed.
    """
    chosen, score = LEAF, np.int64(-1)
    for v in range(names.shape[0]):
        total, live = _marginals(graph, part, v, marginals, tops)
        if live < 2:
            continue
        here = np.int64(0)
        for i in range(graph.domains[v]):
            if marginals[i] != NEVER:
                here += total - marginals[i]
        if here > score:
            chosen, score = v, here
    for i in range(first.size):
        first[i] = False
    if chosen >= 0:
        _, live = _marginals(graph, part, chosen, marginals, tops)
        for _ in range(1 if score // live >= slack >> FAR else max(1, live // PART)):
            best = -1
            for i in range(graph.domains[chosen]):
                if marginals[i] != NEVER and (best < 0 or marginals[i] > marginals[best]):
                    best = i
            first[names[chosen, best]] = True
            marginals[best] = NEVER
    return chosen


@njit(nogil=True)
def _marginals(graph, part, v, marginals, tops):
    """Set what each value of v is worth in the tables over it and its pairs; return the sum of their maxima, and how
    many values are live. Values that are not live have NEVER. ``tops`` is (W,) int32."""
    d, live = graph.domains[v], 0
    total = np.int64(part.unary[v, :d].max())
    for i in range(d):
        marginals[i] = part.unary[v, i]
    for position in range(graph.incident_at[v], graph.incident_at[v + 1]):
        e = graph.incident[position]
        around = graph.widths[graph.pairs[e, 0] + graph.pairs[e, 1] - v]
        if v == graph.pairs[e, 0]:
            row_maxima(part.pair[e], d, around, tops)
        else:
            column_maxima(part.pair[e], around, graph.widths[v], tops)
        highest = DEAD
        for i in range(d):
            marginals[i] += tops[i]
            highest = max(highest, tops[i])
        total += highest
    for i in range(d):
        if part.unary[v, i] < THRESHOLD:
            marginals[i] = NEVER
        else:
            live += 1
    return total, live
