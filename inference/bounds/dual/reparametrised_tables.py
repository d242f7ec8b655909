"""A reparametrisation as tables: what mini-buckets are made of after a dual ascent."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import Graph, Shares
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.model.arithmetic import Table


def tables_of(graph: Graph, shares: Shares, names: Sequence[int], lowest: int, clusters: bool) -> list[Table]:
    """Return tables whose sum is that of the factors which were laid out.

    Parameters
    ----------
    names
        The variables of the graph, as their tables shall call them.
    lowest
        What stands for −∞.
    clusters
        Whether a triangle is a table over three variables; else its shares are added to those of its pairs.

    Returns
    -------
    list of Table
        int64.
    """
    domains = graph.domains.tolist()

    def encoded(values: NDArray[np.int32]) -> NDArray[np.int64]:
        return np.where(values < THRESHOLD, lowest, values.astype(np.int64))

    def added(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where((left == lowest) | (right == lowest), lowest, left + right)

    pairs = encoded(shares.pair) if clusters else _with_clusters(graph, shares, lowest)
    found = [Table((names[v],), encoded(shares.unary[v, :d])) for v, d in enumerate(domains)]
    for e, (a, b) in enumerate(graph.pairs.tolist()):
        found.append(Table((names[a], names[b]), pairs[e, : domains[a], : domains[b]]))
    for t, (a, b, c) in enumerate(graph.corners.tolist() if clusters else ()):
        ab, ac, bc = encoded(shares.cluster[t])
        ab, ac, bc = ab[: domains[a], : domains[b]], ac[: domains[a], : domains[c]], bc[: domains[b], : domains[c]]
        whole = added(added(ab[:, :, None], ac[:, None, :]), bc[None])
        found.append(Table((names[a], names[b], names[c]), whole))
    for s in range(graph.star_at.size - 1):
        scope = graph.star_scope[graph.star_start[s] : graph.star_start[s + 1]].tolist()
        entries = shares.star[graph.star_at[s] : graph.star_at[s + 1]]
        values = encoded(entries).reshape([domains[v] for v in scope])
        found.append(Table(tuple(names[v] for v in scope), values))
    return found


def _with_clusters(graph: Graph, shares: Shares, lowest: int) -> NDArray[np.int64]:
    """Return the tables of pairs, the shares of triangles added to them."""
    pairs, dead = shares.pair.astype(np.int64), shares.pair < THRESHOLD
    for k in range(3):
        np.add.at(pairs, graph.triangles[:, k], shares.cluster[:, k])
        np.logical_or.at(dead, graph.triangles[:, k], shares.cluster[:, k] < THRESHOLD)
    pairs[dead] = lowest
    return pairs
