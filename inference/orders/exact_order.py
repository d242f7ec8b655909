"""Find an optimal elimination order of few variables by dynamic programming over subsets (Held-Karp).

The bucket of v depends only on *which* variables were eliminated before: it holds v and the variables that v reaches
through them. So an optimal order of a set S ends with some v of S, after an optimal order of S without v (Bodlaender,
Fomin, Koster, Kratsch, Thilikos 2012). The module uses NumPy only: the kernels of ``order_search_kernels`` take seconds
to compile, and most problems of small agents do not need them.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.tuning import MAX_EXACT_VARIABLES

_MAX_CELLS = 1e300  # upper limit on the counted cells of a table
_MAX_VERTICES = 62  # vertices as bits of a positive int64
_CHUNK_BITS = 11  # vertices per lookup table of products: 2^11 entries


def exact_order(scopes: Sequence[Sequence[int]], sizes: Sequence[float], count: int) -> tuple[list[int], bool] | None:
    """Return an optimal order of 0..count−1, and whether there was any choice; None for too many variables.

    Parameters
    ----------
    scopes
        Scopes over 0..n−1; variables from ``count`` on remain, and count in every table that they end up in.
    sizes
        Domain sizes of 0..n−1.
    count
        The number of variables to eliminate.
    """
    neighbours = _neighbours(scopes, len(sizes), count)
    safe = _eliminate_safe(neighbours, sizes, count)
    remaining = [v for v in range(count) if v not in set(safe)]
    if not remaining:
        return safe, False
    kept = [v for v in range(count, len(sizes)) if any(neighbours[u] >> v & 1 for u in remaining)]
    if len(remaining) > MAX_EXACT_VARIABLES or len(remaining) + len(kept) > _MAX_VERTICES:
        return None
    vertices = [*remaining, *kept]
    graph = [[i for i, u in enumerate(vertices) if neighbours[v] >> u & 1] for v in remaining]
    rows = np.array([sum(1 << i for i in row) for row in graph], dtype=np.int64)
    cheapest = _cheapest(_joined_cells(rows, [sizes[v] for v in vertices]), len(remaining))
    return [*safe, *(remaining[i] for i in cheapest)], True


def order_cost(
    scopes: Sequence[Sequence[int]], sizes: Sequence[float], order: Sequence[int]
) -> tuple[float, float, int]:
    """Return the joined cells of all buckets and of the largest, and the induced width, of an order of 0..count−1."""
    neighbours, total, largest, width = _neighbours(scopes, len(sizes), len(order)), 0.0, 0.0, 0
    for v in order:
        bucket, cells = _members(neighbours[v]), sizes[v]
        for u in bucket:
            cells = min(cells * sizes[u], _MAX_CELLS)
            neighbours[u] = (neighbours[u] | neighbours[v]) & ~(1 << u | 1 << v)
        total, largest, width = total + cells, max(largest, cells), max(width, len(bucket))
    return total, largest, width


def _neighbours(scopes: Sequence[Sequence[int]], n: int, count: int) -> list[int]:
    """Return each vertex's neighbours as bits of an integer; the kept variables become a clique."""
    neighbours = [0] * n
    for scope in (range(count, n), *scopes):
        clique = 0
        for v in scope:
            clique |= 1 << v
        for v in scope:
            neighbours[v] |= clique
    return [row & ~(1 << v) for v, row in enumerate(neighbours)]


def _eliminate_safe(neighbours: list[int], sizes: Sequence[float], count: int) -> list[int]:
    """Eliminate simplicial variables that an optimal order may begin with, and return them.

    The criterion is that of ``order_search_kernels.eliminate_simplicial``. ``neighbours`` is changed in place.
    """
    ranked, order = sorted(range(count), key=lambda v: -sizes[v]), list[int]()
    changed = True
    while changed:
        changed = False
        for v in ranked:
            if sizes[v] < 2 or v in order:
                continue
            neighbours_of_v = _members(neighbours[v])
            if all(
                (u >= count or sizes[u] <= sizes[v]) and not neighbours[v] & ~neighbours[u] & ~(1 << u)
                for u in neighbours_of_v
            ):
                order.append(v)
                for u in neighbours_of_v:
                    neighbours[u] &= ~(1 << v)
                changed = True
                break
    return order


def _members(row: int) -> list[int]:
    """Return the positions of the bits set in an integer, ascending."""
    positions = []
    while row:
        positions.append((row & -row).bit_length() - 1)
        row &= row - 1
    return positions


def _joined_cells(rows: NDArray[np.int64], sizes: Sequence[float]) -> NDArray[np.float64]:
    """Return the cells of each vertex's bucket if exactly the vertices of a subset come before it: (2^k, k).

    Row T of the result is for the subset whose members are the bits set in T; column v is for vertex v.

    Parameters
    ----------
    rows : (k,) int64
        The neighbours of these vertices as bits, among all vertices.
    sizes
        Domain sizes of all vertices, the k to eliminate first.
    """
    count = rows.size
    reach = np.empty((1 << count, count), dtype=np.int64)
    reach[0] = rows
    own_bit = np.int64(1) << np.arange(count)
    for k in range(count):  # subsets with last member k: a neighbour of k now has the neighbours of k
        lower = reach[: 1 << k]
        through = np.where(lower >> k & 1 == 1, lower[:, k : k + 1], 0)
        reach[1 << k : 2 << k] = (lower | through) & ~(own_bit | 1 << k)
    cells = np.tile(np.array(sizes[:count]), (1 << count, 1))
    for start in range(0, len(sizes), _CHUNK_BITS):
        chunk_sizes = sizes[start : start + _CHUNK_BITS]
        product = np.ones(1)
        for size in chunk_sizes:
            product = np.concatenate([product, np.minimum(product * size, _MAX_CELLS)])
        cells = np.minimum(cells * product[reach >> start & (1 << len(chunk_sizes)) - 1], _MAX_CELLS)
    return cells


def _cheapest(joined: NDArray[np.float64], count: int) -> list[int]:
    """Return an optimal order of all vertices; among equals the one with the highest numbers first.

    Parameters
    ----------
    joined : (2^count, count) float64
        From :func:`_joined_cells`.
    count
        The number of vertices.
    """
    total = np.zeros(1 << count)
    last = np.zeros(1 << count, dtype=np.int64)
    for subsets, members, before in _levels(count):
        candidates = total[before] + joined[before, members]
        last[subsets] = members[np.arange(subsets.size), np.argmin(candidates, axis=1)]
        total[subsets] = candidates.min(axis=1)
    order, subset = list[int](), (1 << count) - 1
    while subset:
        order.append(int(last[subset]))
        subset ^= 1 << order[-1]
    return order[::-1]


@lru_cache
def _levels(count: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Return for each size the subsets of 0..count−1 as bits, their members, and the subsets without each member.

    The arrays have shapes (subsets,), (subsets, size) and (subsets, size), all int64.
    """
    levels = []
    for size in range(1, count + 1):
        members = np.array(list(combinations(range(count), size)), dtype=np.int64)
        bits = np.int64(1) << members
        subsets = bits.sum(axis=1)
        levels.append((subsets, members, subsets[:, None] ^ bits))
    return levels
