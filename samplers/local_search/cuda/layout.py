"""A graph as the GPU reads it: for each variable its factors, one after the other, and which variables move at once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.local_search.cuda.colour_kernels import colour_variables
from dmcmc.samplers.local_search.factor_graph import Graph

WIDEST = 1024  # values of a variable
_MOST_ENTRIES = 2**31 - 1  # that 32 bits count
_LANES = (4, 8, 16, 32)  # threads of a variable: about one a value
_THREADS = 512  # of a chain, at most
_SHARED = 48 << 10  # bytes of a block's shared memory
_PIECE = 20_000  # reads one after the other between two moments at which a launch may end: some milliseconds

Ints = NDArray[np.int32]


class Layout(NamedTuple):
    """Arrays of a graph; places are words.

    Attributes
    ----------
    order : (n,) int32
        Variables in the order of a sweep.
    part_start : (parts + 1,) int32
        The variables ``order[part_start[p]:part_start[p + 1]]`` share no factor.
    pair_start : (n + 1,) int32
        The factors of variable v with one or two variables are ``pair_start[v]`` to ``pair_start[v + 1]`` - 1.
    pairs : (4 · pairs,) int32
        Where the table begins, the other variable, its stride, the stride of v.
    wide_start : (n + 1,) int32
        Likewise those of more variables.
    wide_at : (wide + 1,) int32
        Where each begins in ``wide``.
    wide : (words,) int32
        Where the table begins, the stride of v, then each other variable and its stride.
    long_start : (n + 1,) int32
        Likewise automata.
    long : (automata,) int32
        The factors.
    lanes, groups : int
        Threads of a variable; variables at once.
    """

    order: Ints
    part_start: Ints
    pair_start: Ints
    pairs: Ints
    wide_start: Ints
    wide_at: Ints
    wide: Ints
    long_start: Ints
    long: Ints
    lanes: int
    groups: int

    @property
    def parts(self) -> int:
        """How many there are."""
        return self.part_start.size - 1


def fits(graph: Graph) -> bool:
    """Return whether the GPU's chains can have a graph's variables."""
    return graph.domains.size > 0 and graph.data.size <= _MOST_ENTRIES and graph.widest <= WIDEST


def lay_out(graph: Graph, lanes: int | None = None, groups: int | None = None) -> Layout:
    """Lay out a graph for which :func:`fits` holds.

    Parameters
    ----------
    lanes, groups
        As threads are divided; None takes what suits the domains and colours.
    """
    n, factor, own = graph.domains.size, graph.factor, graph.slot
    arity = np.diff(graph.scope_start)[factor]
    variable = np.repeat(np.arange(n), np.diff(graph.start))
    dense = factor < graph.dense
    pair, wide, long = dense & (arity <= 2), dense & (arity > 2), ~dense
    wide_at, words = _wide(graph, factor[wide], own[wide])
    reads = np.bincount(variable, weights=np.where(pair, 0.5, arity), minlength=n)
    lanes = lanes or next((size for size in _LANES if size >= graph.widest), _LANES[-1])
    order = np.argsort(-np.diff(graph.start), kind="stable")
    colour = colour_variables(graph.start, graph.factor, graph.scope_start, graph.scope, order)
    groups = groups or _groups(n / (int(colour.max()) + 1), graph.widest, lanes)
    weight = 8 + reads * -(-graph.domains // lanes)
    order = np.lexsort((np.arange(n), -weight, colour))
    return Layout(
        order=order.astype(np.int32),
        part_start=_parts(colour[order], weight[order] / groups),
        pair_start=_starts(variable[pair], n),
        pairs=_pairs(graph, factor[pair], own[pair], arity[pair]),
        wide_start=_starts(variable[wide], n),
        wide_at=wide_at,
        wide=words,
        long_start=_starts(variable[long], n),
        long=factor[long].astype(np.int32),
        lanes=lanes,
        groups=groups,
    )


def _groups(at_once: float, widest: int, lanes: int) -> int:
    """Return how many variables a chain moves at once: a power of two, about as many as a colour has."""
    groups = 1
    while groups < at_once and 2 * groups * lanes <= _THREADS and bytes_shared(2 * groups, widest) <= _SHARED:
        groups *= 2
    return groups


def bytes_shared(groups: int, widest: int) -> int:
    """Return the bytes of shared memory of a chain: scores, violations and shares of values, and gains."""
    return groups * (16 * widest + 16)


def _starts(variable: NDArray[np.int64], n: int) -> Ints:
    return np.append(0, np.cumsum(np.bincount(variable, minlength=n))).astype(np.int32)


def _parts(colour: NDArray[np.int32], weight: NDArray[np.float64]) -> Ints:
    """Return where parts begin: with each colour, and where one has more than a part's work."""
    begins = np.flatnonzero(np.diff(colour, prepend=-1))
    before = np.cumsum(weight) - weight
    inside = before - np.repeat(before[begins], np.diff(np.append(begins, colour.size)))
    piece = (inside / _PIECE).astype(np.int64)
    cuts = np.flatnonzero((np.diff(colour, prepend=-1) != 0) | (np.diff(piece, prepend=0) > 0))
    return np.append(cuts, colour.size).astype(np.int32)


def _pairs(graph: Graph, factor: NDArray[np.int64], own: NDArray[np.int64], arity: NDArray[np.int64]) -> Ints:
    """Return the records of factors with one or two variables; one alone has itself as the other, of stride 0."""
    first = graph.scope_start[factor]
    other = np.where((own == first) & (arity == 2), first + 1, first)
    step = np.where(arity == 2, graph.stride[other], 0)
    return (
        np.stack([graph.at[factor], graph.scope[other], step, graph.stride[own]], axis=1).reshape(-1).astype(np.int32)
    )


def _wide(graph: Graph, factor: NDArray[np.int64], own: NDArray[np.int64]) -> tuple[Ints, Ints]:
    """Return where the records of factors with more variables begin, and their words."""
    first, last = graph.scope_start[factor], graph.scope_start[factor + 1]
    arity = last - first
    at = np.append(0, np.cumsum(2 * arity))
    words = np.zeros(int(at[-1]), dtype=np.int32)
    words[at[:-1]], words[at[:-1] + 1] = graph.at[factor], graph.stride[own]
    record = np.repeat(np.arange(factor.size), arity)
    place = np.arange(record.size) - (np.cumsum(arity) - arity)[record]
    slot, mine = first[record] + place, (own - first)[record]
    others = place != mine
    to = (at[record] + 2 * (1 + place - (place > mine)))[others]
    words[to], words[to + 1] = graph.scope[slot[others]], graph.stride[slot[others]]
    return at.astype(np.int32), words
