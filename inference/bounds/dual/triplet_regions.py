"""Triangles beyond those of the graph, chosen by what they gain: two for each cycle of four whose tables disagree.

A cycle a, b, c, d without chord has a fill pair ac, empty at first, and the triangles abc and acd. By itself it gains
what the sum of its tables' maxima is more than the best value of its four variables.
"""

from collections import defaultdict
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import Layout, Shares
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD

_MOST_CELLS = 1 << 28  # sums that are looked at in all: about a second
_MIDDLES = 8  # common neighbours of a fill pair that are paired with each other, those with the most to tell


def frustrated(layout: Layout, shares: Shares, most: int) -> list[tuple[int, int, int]]:
    """Return triangles of the cycles of four that gain most, two for each, at most so many; none where nothing gains.

    Cycles are looked at in the order of variables, about a second's worth.
    """
    whole, cells = layout.whole, _MOST_CELLS
    number = {(a, b): i for i, (a, b) in enumerate(whole.pairs.tolist())}
    around = defaultdict[int, list[int]](list)
    for a, b in number:
        around[a].append(b)
        around[b].append(a)
    through = defaultdict[tuple[int, int], list[int]](list)
    for v in sorted(around):
        for a, c in combinations(sorted(around[v]), 2):
            if (a, c) not in number:
                through[a, c].append(v)
    found: list[tuple[int, tuple[int, int, int, int]]] = []
    sizes = whole.domains.tolist()
    for (a, c), middles in through.items():
        if len(middles) < 2:
            continue
        some = middles[:_MIDDLES]
        cells -= sizes[a] * sizes[c] * (sum(sizes[v] for v in some) + len(some) ** 2)
        if cells < 0:
            break
        tables = [_through(layout, shares, number, a, v, c) for v in some]
        best = max((_gain(tables[i], tables[j]), i, j) for i, j in combinations(range(len(some)), 2))
        if best[0] > 0:
            found.append((best[0], (a, c, some[best[1]], some[best[2]])))
    found.sort(key=lambda one: (-one[0], one[1]))
    triples, closed = dict[tuple[int, int, int], None](), set[frozenset[int]]()
    for _, (a, c, b, d) in found:
        if frozenset((a, b, c, d)) in closed:
            continue  # by its other chord
        closed.add(frozenset((a, b, c, d)))
        for v in (b, d):
            first, second, third = sorted((a, v, c))
            triples[first, second, third] = None
        if len(triples) >= most:
            break
    return list(triples)


def _through(
    layout: Layout, shares: Shares, number: dict[tuple[int, int], int], a: int, v: int, c: int
) -> NDArray[np.int64]:
    """Return the best sum of the tables av and vc for each value of a and c: (|a|, |c|)."""
    left, right = _table(layout, shares, number, a, v), _table(layout, shares, number, v, c)
    through: NDArray[np.int64] = (left[:, :, None] + right[None]).max(axis=1)
    return through


def _table(layout: Layout, shares: Shares, number: dict[tuple[int, int], int], u: int, v: int) -> NDArray[np.int64]:
    """Return a pair's table over u and v, in this order."""
    a, b = min(u, v), max(u, v)
    domains = layout.whole.domains
    table: NDArray[np.int64] = shares.pair[number[a, b]][: domains[a], : domains[b]].astype(np.int64)
    return table if u == a else np.ascontiguousarray(table.T)


def _gain(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Return by how much less two tables are worth together than each by itself; 0 where something is dead."""
    apart, together = int(one.max()) + int(other.max()), int((one + other).max())
    return 0 if together < THRESHOLD else apart - together
