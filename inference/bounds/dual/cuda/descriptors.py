"""Describe a dual ascent's graph as one int32 array for the GPU.

The graph has a unary table per variable, a pairwise table per pair, triplet regions (triangles) of three pairwise
tables ab, ac, bc each, and higher-order factors over three or more variables. Tables are W columns wide: the largest
domain size, padded to a multiple of 8. Numbers and positions count int32 entries.

A GPU kernel takes few arguments, so all index arrays of all graphs are concatenated to a single array ``descriptors``.
The descriptor of a graph starts with a header of ``HEADER`` entries: the numbers of variables, pairs, triangles and
higher-order factors; the starts of the tables, relative to the first unary entry; and the positions of the index lists,
which follow the header. These positions are absolute: they count from the start of ``descriptors``. With ``graph`` the
position of a header, the domain size of variable v is ``descriptors[descriptors[graph + DOMAINS] + v]``, for instance.

Triangles are sorted into levels, and the triangles of a level are processed at the same time. They share no pair, and a
triangle comes after all earlier ones that it shares a pair with. So each table entry receives the same messages in the
same order as in sequential processing, and the results are identical. If sweeps are smoothed, triangles are sorted by a
colouring instead, which has fewer colours than there are levels and gives equally good bounds. The fields called levels
describe colours then.
"""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import DualGraph
from dmcmc.inference.runtime.types import Ints

# Fields of the header, first the numbers of variables, pairs, triangles and higher-order factors.
N, PAIRS, TRIANGLES, FACTORS = range(4)
# Starts of the pairs' tables, the triangles' tables, the factors' tables, and the maxima, all counted from the first
# unary entry; number of all entries.
PAIR_AT, TRIANGLE_TABLES_AT, FACTOR_TABLES_AT, MAXIMA_AT, ENTRIES = range(4, 9)
# Positions of index lists by variable or pair: domain sizes, padded domain sizes, the two variables of each pair,
# starts of each variable's incidence records, these records, number of each variable's pairs with a lower variable.
DOMAINS, WIDTHS, PAIR_VARIABLES, INCIDENT_START, INCIDENT, LOWER_COUNT = range(9, 15)
# Number of levels, then positions of index lists: first triangle of each level, records of the triangles in the order
# of their levels, starts of the factors' scopes, scopes, starts of the factors' tables, sliced factors.
LEVELS, LEVEL_START, TRIANGLE_LIST, SCOPE_START, SCOPES, ENTRY_START, SLICED_FACTORS = range(15, 22)
HEADER = 22  # entries of the header
# Fields of a triangle's record: starts of its tables and of its pairs' tables ab, ac, bc; padded domain sizes and
# numbers of its variables; length of the record.
TRIANGLE_TABLES = 0
TRIANGLE_PAIRS = 1
CORNER_WIDTH = 4  # and 5, 6: of the variables a, b, c
CORNER = 7  # and 8, 9: the variables a, b, c
TRIANGLE_RECORD = 10
# Fields of an incidence record, one per variable and pair: start of the pair's table, whether the variable indexes its
# rows, padded domain size and number of the other variable; length of the record.
TABLE = 0
IS_FIRST = 1
OTHER_WIDTH = 2
OTHER = 3
INCIDENCE_RECORD = 4


def triangle_levels(triangles: Ints) -> Ints:
    """Return each triangle's level, (t,) int64: one above the highest level of earlier triangles that share a pair.

    ``triangles`` (t, 3) holds the pairs ab, ac, bc of each triangle.
    """
    next_level: dict[int, int] = {}
    levels = np.zeros(len(triangles), dtype=np.int64)
    for t, pairs in enumerate(triangles.tolist()):
        levels[t] = max(next_level.get(p, 0) for p in pairs)
        for p in pairs:
            next_level[p] = int(levels[t]) + 1
    return levels


def triangle_colours(triangles: Ints, at_once: int) -> Ints:
    """Return a colouring of the triangles, (t,) int64: triangles of one colour share no pair, and few colours are used.

    The colouring is greedy, and triangles whose pairs occur in most other triangles come first. The size limit of a
    colour is a multiple of ``at_once``, the number of triangles that a block processes at the same time. ``triangles``
    (t, 3) holds the pairs of each triangle.
    """
    occurrences = np.bincount(triangles.ravel(), minlength=1)
    min_colours = max(1, int(occurrences.max()))
    max_size = -(-len(triangles) // (min_colours * at_once)) * at_once
    colours_of_pair = defaultdict[int, set[int]](set)
    colours, sizes = np.zeros(len(triangles), dtype=np.int64), list[int]()
    for t in np.argsort(-occurrences[triangles].sum(axis=1), kind="stable").tolist():
        pairs = triangles[t].tolist()
        taken = set[int]().union(*(colours_of_pair[p] for p in pairs))
        colour = next((c for c, size in enumerate(sizes) if size < max_size and c not in taken), len(sizes))
        if colour == len(sizes):
            sizes.append(0)
        colours[t], sizes[colour] = colour, sizes[colour] + 1
        for p in pairs:
            colours_of_pair[p].add(colour)
    return colours


# long, since it lists the index arrays in the order in which they are stored
def graph_descriptor(
    graph: DualGraph, width: int, sliced_factors: Ints, begin: int, levels: Ints
) -> tuple[NDArray[np.int32], int]:
    """Return a graph's descriptor (int32) and the number of its table entries.

    The tables lie one after the other: unary (n, width), pairs (m, width, width), triangles (t, 3, width, width), and
    higher-order factors. One entry per unary and pair table follows, where the GPU stores their maxima.

    Parameters
    ----------
    graph : DualGraph
    width : int
        Columns W of the tables; the same for the hidden part of a graph as for the whole.
    sliced_factors : (higher-order factors of the hidden graph,) int64
        For the hidden part: the higher-order factor of the whole graph that each one is a slice of.
    begin : int
        Position of the descriptor in the array of all descriptors.
    levels : (t,) int64
        Level or colour of each triangle.
    """
    n, m, t, s = graph.domains.size, len(graph.pairs), len(graph.triangles), graph.entry_start.size - 1
    table_size = width * width
    header = np.zeros(HEADER, dtype=np.int64)
    header[[N, PAIRS, TRIANGLES, FACTORS]] = n, m, t, s
    header[PAIR_AT] = n * width
    header[TRIANGLE_TABLES_AT] = header[PAIR_AT] + m * table_size
    header[FACTOR_TABLES_AT] = header[TRIANGLE_TABLES_AT] + 3 * t * table_size
    header[MAXIMA_AT] = header[FACTOR_TABLES_AT] + int(graph.entry_start[-1])
    header[ENTRIES] = header[MAXIMA_AT] + n + m
    order = np.argsort(levels, kind="stable")
    level_start = np.searchsorted(levels[order], np.arange(levels.max(initial=-1) + 2))
    header[LEVELS] = level_start.size - 1
    corners = graph.corners[order]
    triangle_records = np.concatenate(
        [
            header[TRIANGLE_TABLES_AT] + 3 * table_size * order[:, None],
            header[PAIR_AT] + table_size * graph.triangles[order],
            graph.widths[corners],
            corners,
        ],
        axis=1,
    )
    incident_variable = np.repeat(np.arange(n), np.diff(graph.incident_start))
    other_variable = graph.pairs[graph.incident].sum(axis=1) - incident_variable
    is_first = graph.pairs[graph.incident, 0] == incident_variable
    incidence_records = np.stack(
        [header[PAIR_AT] + table_size * graph.incident, is_first, graph.widths[other_variable], other_variable], axis=1
    )
    lists = {
        DOMAINS: graph.domains,
        WIDTHS: graph.widths,
        PAIR_VARIABLES: graph.pairs,
        INCIDENT_START: graph.incident_start,
        INCIDENT: incidence_records,
        LOWER_COUNT: np.bincount(incident_variable[other_variable < incident_variable], minlength=n),
        LEVEL_START: level_start,
        TRIANGLE_LIST: triangle_records,
        SCOPE_START: graph.scope_start,
        SCOPES: graph.scope_variables,
        ENTRY_START: graph.entry_start,
        SLICED_FACTORS: sliced_factors,
    }
    position = begin + HEADER
    for field, values in lists.items():
        header[field] = position
        position += values.size
    descriptor = np.concatenate([header, *(values.ravel() for values in lists.values())])
    return descriptor.astype(np.int32), int(header[ENTRIES])


def largest_level(descriptor: NDArray[np.int32], begin: int) -> int:
    """Return the number of triangles of a graph's largest level or colour, 0 without triangles.

    ``descriptor`` is the graph's descriptor, and ``begin`` its position in the array of all descriptors.
    """
    position, levels = int(descriptor[LEVEL_START]) - begin, int(descriptor[LEVELS])
    return int(np.diff(descriptor[position : position + levels + 1]).max(initial=0))
