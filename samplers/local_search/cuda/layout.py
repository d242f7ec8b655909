"""A factor graph in the layout of the GPU kernel: the factors of each variable, and which variables move together."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.local_search.cuda.graph_chain_kernels import colour_variables

MAX_DOMAIN = 1024  # largest domain
_MAX_ENTRIES = 2**31 - 1  # 32-bit offsets
_LANES = (4, 8, 16, 32)  # threads per variable: about one per value
_MAX_THREADS = 512  # threads per chain
_MAX_SHARED_BYTES = 48 << 10  # bytes of shared memory per thread block

Ints = NDArray[np.int32]


class DeviceFactorGraph(NamedTuple):
    """Arrays of a graph in the kernel's layout; all offsets count int32 words.

    Attributes
    ----------
    order : (n,) int32
        Variables in the order of a sweep.
    part_start : (parts + 1,) int32
        The variables ``order[part_start[p]:part_start[p + 1]]`` share no factor.
    pair_start : (n + 1,) int32
        The records of v's factors with one or two variables are ``pair_start[v]`` to ``pair_start[v + 1]`` - 1.
    pairs : (4 · records,) int32
        Per record: offset of the table, the other variable, its stride, the stride of v.
    wide_start : (n + 1,) int32
        Likewise the records of v's dense factors with three or more variables, in ``wide_at``.
    wide_at : (wide records + 1,) int32
        Offset of each record in ``wide``.
    wide : (words,) int32
        Per record: offset of the table, the stride of v, then each other variable and its stride.
    automaton_start : (n + 1,) int32
        Likewise v's automata, in ``automata``.
    automata : (scope entries of automata,) int32
        Factor numbers of the automata.
    lanes : int
        Threads per variable, about one per value.
    groups : int
        Variables drawn simultaneously by a thread block.
    """

    order: Ints
    part_start: Ints
    pair_start: Ints
    pairs: Ints
    wide_start: Ints
    wide_at: Ints
    wide: Ints
    automaton_start: Ints
    automata: Ints
    lanes: int
    groups: int

    @property
    def parts(self) -> int:
        """Number of parts of a sweep."""
        return self.part_start.size - 1


def fits(graph: FactorGraph) -> bool:
    """Return whether a graph fits the kernel: domain sizes and 32-bit offsets."""
    return graph.domains.size > 0 and graph.data.size <= _MAX_ENTRIES and graph.widest <= MAX_DOMAIN


def lay_out(graph: FactorGraph, lanes: int | None = None, groups: int | None = None) -> DeviceFactorGraph:
    """Lay out a graph for which :func:`fits` returns True.

    Parameters
    ----------
    graph : FactorGraph
        The graph.
    lanes, groups : int, optional
        Threads per variable and variables per thread block; chosen by domains and colours if None.
    """
    n, factor, position = graph.domains.size, graph.factor, graph.position
    arity = np.diff(graph.scope_start)[factor]
    variable = np.repeat(np.arange(n), np.diff(graph.start))
    dense = factor < graph.dense
    pair, wide, automata = dense & (arity <= 2), dense & (arity > 2), ~dense
    wide_at, words = _wide(graph, factor[wide], position[wide])
    reads = np.bincount(variable, weights=np.where(pair, 0.5, arity), minlength=n)
    lanes = lanes or next((size for size in _LANES if size >= graph.widest), _LANES[-1])
    order = np.argsort(-np.diff(graph.start), kind="stable")
    colour = colour_variables(graph.start, graph.factor, graph.scope_start, graph.scope, order)
    groups = groups or _groups(n / (int(colour.max()) + 1), graph.widest, lanes)
    # Reads in sequence per draw of a variable; 8 stands for the rest of the draw (chosen by measurement).
    weight = 8 + reads * -(-graph.domains // lanes)
    order = np.lexsort((np.arange(n), -weight, colour))
    return DeviceFactorGraph(
        order=order.astype(np.int32),
        part_start=_parts(colour[order], weight[order] / groups),
        pair_start=_starts(variable[pair], n),
        pairs=_pairs(graph, factor[pair], position[pair], arity[pair]),
        wide_start=_starts(variable[wide], n),
        wide_at=wide_at,
        wide=words,
        automaton_start=_starts(variable[automata], n),
        automata=factor[automata].astype(np.int32),
        lanes=lanes,
        groups=groups,
    )


def _groups(at_once: float, widest: int, lanes: int) -> int:
    """Return how many variables a chain draws simultaneously: a power of two, about the mean size of a colour.

    It is limited by the threads and the shared memory of a thread block.
    """
    groups = 1
    while (
        groups < at_once
        and 2 * groups * lanes <= _MAX_THREADS
        and bytes_shared(2 * groups, widest) <= _MAX_SHARED_BYTES
    ):
        groups *= 2
    return groups


def bytes_shared(groups: int, widest: int) -> int:
    """Return the bytes of shared memory per chain, for a number of variables drawn simultaneously.

    Per value of a variable: score (8), violations (4) and weight (4); per variable: gains of violations and utility
    (16).
    """
    return groups * (16 * widest + 16)


def _starts(variable: NDArray[np.int64], n: int) -> Ints:
    """Return the offsets of each variable's records, (n + 1,) int32, from the variable of each record."""
    return np.append(0, np.cumsum(np.bincount(variable, minlength=n))).astype(np.int32)


def _parts(colour: NDArray[np.int32], weight: NDArray[np.float64]) -> Ints:
    """Return the offsets of the parts: one per colour, split if a colour has more than ``READS_PER_LAUNCH`` reads."""
    colour_start = np.flatnonzero(np.diff(colour, prepend=-1))
    before = np.cumsum(weight) - weight
    inside = before - np.repeat(before[colour_start], np.diff(np.append(colour_start, colour.size)))
    chunk = (inside / tuning.READS_PER_LAUNCH).astype(np.int64)
    cuts = np.flatnonzero((np.diff(colour, prepend=-1) != 0) | (np.diff(chunk, prepend=0) > 0))
    return np.append(cuts, colour.size).astype(np.int32)


def _pairs(
    graph: FactorGraph, factor: NDArray[np.int64], position: NDArray[np.int64], arity: NDArray[np.int64]
) -> Ints:
    """Return the records of factors with one or two variables, as ``DeviceFactorGraph.pairs`` describes them.

    A unary factor has itself as the other variable, with stride 0.
    """
    first = graph.scope_start[factor]
    other = np.where((position == first) & (arity == 2), first + 1, first)
    step = np.where(arity == 2, graph.stride[other], 0)
    return (
        np.stack([graph.table_start[factor], graph.scope[other], step, graph.stride[position]], axis=1)
        .reshape(-1)
        .astype(np.int32)
    )


def _wide(graph: FactorGraph, factor: NDArray[np.int64], position: NDArray[np.int64]) -> tuple[Ints, Ints]:
    """Return the offsets of the records of factors with three or more variables, and their words."""
    first, last = graph.scope_start[factor], graph.scope_start[factor + 1]
    arity = last - first
    at = np.append(0, np.cumsum(2 * arity))
    words = np.zeros(int(at[-1]), dtype=np.int32)
    words[at[:-1]], words[at[:-1] + 1] = graph.table_start[factor], graph.stride[position]
    record = np.repeat(np.arange(factor.size), arity)
    axis = np.arange(record.size) - (np.cumsum(arity) - arity)[record]
    entry, variable_axis = first[record] + axis, (position - first)[record]
    others = axis != variable_axis
    target = (at[record] + 2 * (1 + axis - (axis > variable_axis)))[others]
    words[target], words[target + 1] = graph.scope[entry[others]], graph.stride[entry[others]]
    return at.astype(np.int32), words
