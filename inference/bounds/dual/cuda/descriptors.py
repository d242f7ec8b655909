"""A graph of dual ascent as words for the GPU, its triangles in levels that a block works on at once.

Triangles of one level share no pair, and a triangle comes after all earlier ones that it shares a pair with: level by
level, each entry of each table goes through the same shifts, in the same order, as triangle by triangle. Where sweeps
are warm, triangles come by colours instead, of which there are fewer than levels: the bounds are as good.
"""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import Graph
from dmcmc.inference.runtime.types import Ints

# Words of a header: counts; where tables begin, from the first entry of the unary ones; where lists begin.
N, PAIRS, TRIANGLES, STARS = range(4)
PAIR_AT, CLUSTER_AT, STAR_AT, MAXIMA_AT, ENTRIES = range(4, 9)
DOMAINS, WIDTHS, ENDS, INCIDENT_AT, INCIDENT, LOWER = range(9, 15)
LEVELS, LEVEL_AT, CLIQUES, SCOPE_AT, SCOPES, ENTRY_AT, SLICES = range(15, 22)
HEADER = 22
# Words of a triangle: where its tables and those of its pairs ab, ac, bc begin; widths and numbers of its corners.
CLUSTER, PAIR, CORNER_WIDTH, CORNER, CLIQUE = 0, 1, 4, 7, 10
# Words of a variable's pair: where its table begins, whether the variable is its first, the other's width and number.
TABLE, IS_FIRST, AROUND, OTHER, SIDE = 0, 1, 2, 3, 4


def triangle_levels(triangles: Ints) -> Ints:
    """Return each triangle's level, (t,): one more than the highest of earlier triangles with a pair of it."""
    height: dict[int, int] = {}
    levels = np.zeros(len(triangles), dtype=np.int64)
    for t, pairs in enumerate(triangles.tolist()):
        levels[t] = max(height.get(p, 0) for p in pairs)
        for p in pairs:
            height[p] = int(levels[t]) + 1
    return levels


def triangle_colours(triangles: Ints, at_once: int) -> Ints:
    """Return each triangle's colour, (t,): triangles of one share no pair, and there are few, nearly all equally large.

    The triangles whose pairs are in most others come first; a colour has a multiple of ``at_once`` at most.
    """
    many = np.bincount(triangles.ravel(), minlength=1)
    least = max(1, int(many.max()))
    most = -(-len(triangles) // (least * at_once)) * at_once
    of_pair = defaultdict[int, set[int]](set)
    colours, sizes = np.zeros(len(triangles), dtype=np.int64), list[int]()
    for t in np.argsort(-many[triangles].sum(axis=1), kind="stable").tolist():
        pairs = triangles[t].tolist()
        taken = set[int]().union(*(of_pair[p] for p in pairs))
        colour = next((c for c, size in enumerate(sizes) if size < most and c not in taken), len(sizes))
        if colour == len(sizes):
            sizes.append(0)
        colours[t], sizes[colour] = colour, sizes[colour] + 1
        for p in pairs:
            of_pair[p].add(colour)
    return colours


# long: one list of words after the other, in the order in which they lie
def graph_words(graph: Graph, width: int, slices: Ints, begin: int, levels: Ints) -> tuple[NDArray[np.int32], int]:
    """Return a graph's words, and how many entries its tables have.

    Tables lie one after the other: unary (n, width), pairs (m, width, width), triangles (t, 3, width, width), stars;
    then a number for each unary and pair table, where the GPU keeps their maxima.

    Parameters
    ----------
    width
        W of the tables, for the hidden part of a graph the same as for the whole.
    slices
        For the hidden part: which star of the whole each of its stars is a part of.
    begin
        Where the words will be.
    levels
        Of the triangles, or their colours.
    """
    n, m, t, s = graph.domains.size, len(graph.pairs), len(graph.triangles), graph.star_at.size - 1
    square = width * width
    header = np.zeros(HEADER, dtype=np.int64)
    header[[N, PAIRS, TRIANGLES, STARS]] = n, m, t, s
    header[PAIR_AT] = n * width
    header[CLUSTER_AT] = header[PAIR_AT] + m * square
    header[STAR_AT] = header[CLUSTER_AT] + 3 * t * square
    header[MAXIMA_AT] = header[STAR_AT] + int(graph.star_at[-1])
    header[ENTRIES] = header[MAXIMA_AT] + n + m
    order = np.argsort(levels, kind="stable")
    level_at = np.searchsorted(levels[order], np.arange(levels.max(initial=-1) + 2))
    header[LEVELS] = level_at.size - 1
    corners = graph.corners[order]
    cliques = np.concatenate(
        [
            header[CLUSTER_AT] + 3 * square * order[:, None],
            header[PAIR_AT] + square * graph.triangles[order],
            graph.widths[corners],
            corners,
        ],
        axis=1,
    )
    owner = np.repeat(np.arange(n), np.diff(graph.incident_at))
    other = graph.pairs[graph.incident].sum(axis=1) - owner
    first = graph.pairs[graph.incident, 0] == owner
    sides = np.stack([header[PAIR_AT] + square * graph.incident, first, graph.widths[other], other], axis=1)
    lists = {
        DOMAINS: graph.domains,
        WIDTHS: graph.widths,
        ENDS: graph.pairs,
        INCIDENT_AT: graph.incident_at,
        INCIDENT: sides,
        LOWER: np.bincount(owner[other < owner], minlength=n),
        LEVEL_AT: level_at,
        CLIQUES: cliques,
        SCOPE_AT: graph.star_start,
        SCOPES: graph.star_scope,
        ENTRY_AT: graph.star_at,
        SLICES: slices,
    }
    at = begin + HEADER
    for word, values in lists.items():
        header[word] = at
        at += values.size
    words = np.concatenate([header, *(values.ravel() for values in lists.values())])
    return words.astype(np.int32), int(header[ENTRIES])


def largest_level(words: NDArray[np.int32], begin: int) -> int:
    """Return how many triangles the largest level of a graph has, from the words that begin at ``begin``."""
    at, levels = int(words[LEVEL_AT]) - begin, int(words[LEVELS])
    return int(np.diff(words[at : at + levels + 1]).max(initial=0))
