"""The cheapest order of few variables, exactly: dynamic programming over the subsets that are eliminated first.

The bucket of v depends only on *which* variables went before it: it holds v, and what v reaches through them. So the
cheapest way to eliminate a set S ends with some v of S, after the cheapest way to eliminate S less v (Bodlaender,
Fomin, Koster, Kratsch, Thilikos 2012). All of it is NumPy: the kernels of :mod:`.search_kernels` take ten seconds to
compile, and most problems of small agents never need them.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

FEW = 12  # variables with an exact order, of those that are not best eliminated first anyway: 2 ms
_CAP = 1e300  # cells that a table counts at most
_BITS, _CHUNK = 62, 11  # vertices in a word; how many of them a table of products has


def exact_order(scopes: Sequence[Sequence[int]], sizes: Sequence[float], count: int) -> tuple[list[int], bool] | None:
    """Return the cheapest order of 0..count−1, and whether there was any choice; None where they are too many.

    Parameters
    ----------
    scopes
        Over 0..n−1; what is not eliminated stays, and counts in every table that it ends up in.
    sizes
        Domain sizes of 0..n−1.
    """
    near = _neighbours(scopes, len(sizes), count)
    first = _safe(near, sizes, count)
    left = [v for v in range(count) if v not in set(first)]
    if not left:
        return first, False
    kept = [v for v in range(count, len(sizes)) if any(near[u] >> v & 1 for u in left)]
    if len(left) > FEW or len(left) + len(kept) > _BITS:
        return None
    vertices = [*left, *kept]
    graph = [[i for i, u in enumerate(vertices) if near[v] >> u & 1] for v in left]
    rows = np.array([sum(1 << i for i in row) for row in graph], dtype=np.int64)
    found = _cheapest(_joined(rows, [sizes[v] for v in vertices]), len(left))
    return [*first, *(left[i] for i in found)], True


def cost_of(scopes: Sequence[Sequence[int]], sizes: Sequence[float], order: Sequence[int]) -> tuple[float, float, int]:
    """Return the joined cells of all buckets and of the largest, and the width, of an order of 0..count−1."""
    near, total, largest, width = _neighbours(scopes, len(sizes), len(order)), 0.0, 0.0, 0
    for v in order:
        around, cells = _members(near[v]), sizes[v]
        for u in around:
            cells = min(cells * sizes[u], _CAP)
            near[u] = (near[u] | near[v]) & ~(1 << u | 1 << v)
        total, largest, width = total + cells, max(largest, cells), max(width, len(around))
    return total, largest, width


def _neighbours(scopes: Sequence[Sequence[int]], n: int, count: int) -> list[int]:
    """Return each vertex's neighbours as bits; what stays is a clique: edges among it change no bucket."""
    near = [0] * n
    for scope in (range(count, n), *scopes):
        clique = 0
        for v in scope:
            clique |= 1 << v
        for v in scope:
            near[v] |= clique
    return [row & ~(1 << v) for v, row in enumerate(near)]


def _safe(near: list[int], sizes: Sequence[float], count: int) -> list[int]:
    """Take out what is best eliminated first, as long as there is any: see :func:`.search_kernels.peel`; return it."""
    ranked, order = sorted(range(count), key=lambda v: -sizes[v]), list[int]()
    again = True
    while again:
        again = False
        for v in ranked:
            if sizes[v] < 2 or v in order:
                continue
            around = _members(near[v])
            if all((u >= count or sizes[u] <= sizes[v]) and not near[v] & ~near[u] & ~(1 << u) for u in around):
                order.append(v)
                for u in around:
                    near[u] &= ~(1 << v)
                again = True
                break
    return order


def _members(row: int) -> list[int]:
    found = []
    while row:
        found.append((row & -row).bit_length() - 1)
        row &= row - 1
    return found


def _joined(rows: NDArray[np.int64], sizes: Sequence[float]) -> NDArray[np.float64]:
    """Return the (2^k, k) cells of eliminating each vertex after each subset of the k to eliminate.

    Parameters
    ----------
    rows : (k,) int64
        Their neighbours as bits, of all vertices.
    sizes
        Domain sizes of all vertices, those k first.
    """
    count = rows.size
    reach = np.empty((1 << count, count), dtype=np.int64)
    reach[0] = rows
    own = np.int64(1) << np.arange(count)
    for k in range(count):  # subsets whose last member is k: what was a neighbour of k has k's neighbours now
        lower = reach[: 1 << k]
        through = np.where(lower >> k & 1 == 1, lower[:, k : k + 1], 0)
        reach[1 << k : 2 << k] = (lower | through) & ~(own | 1 << k)
    cells = np.tile(np.array(sizes[:count]), (1 << count, 1))
    for start in range(0, len(sizes), _CHUNK):
        part = sizes[start : start + _CHUNK]
        product = np.ones(1)
        for size in part:
            product = np.concatenate([product, np.minimum(product * size, _CAP)])
        cells = np.minimum(cells * product[reach >> start & (1 << len(part)) - 1], _CAP)
    return cells


def _cheapest(joined: NDArray[np.float64], count: int) -> list[int]:
    """Return the order of the cheapest way to eliminate all; of several, what has the highest numbers first."""
    total = np.zeros(1 << count)
    last = np.zeros(1 << count, dtype=np.int64)
    for subsets, members, before in _levels(count):
        ways = total[before] + joined[before, members]
        last[subsets] = members[np.arange(subsets.size), np.argmin(ways, axis=1)]
        total[subsets] = ways.min(axis=1)
    order, subset = list[int](), (1 << count) - 1
    while subset:
        order.append(int(last[subset]))
        subset ^= 1 << order[-1]
    return order[::-1]


@lru_cache
def _levels(count: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Return, for each size, the subsets of 0..count−1 as bits, their members, and what each leaves without it."""
    levels = []
    for size in range(1, count + 1):
        members = np.array(list(combinations(range(count), size)), dtype=np.int64)
        bits = np.int64(1) << members
        subsets = bits.sum(axis=1)
        levels.append((subsets, members, subsets[:, None] ^ bits))
    return levels
