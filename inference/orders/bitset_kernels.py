# mypy: ignore-errors
"""Sets of variables as bits, and random numbers, in compiled loops.

Graphs as rows of bits: the neighbours of vertex v are the bits set in ``graph[v]``, 64 per word.

Set operations on whole neighbourhoods take a few machine words each; that makes thousands of elimination orders
affordable. Argument meanings in this file:

* ``graph`` (n, words) uint64: a graph, with words = ⌈n / 64⌉; ``row`` (words,) uint64: a set of vertices;
* ``v``: a vertex, 0 to n − 1.

Convert adjacency matrices to rows of bits, the graph format of ``bitset_kernels``.

Random numbers of searches that run one step after the other.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.runtime.interpreted import intrinsic

ONE = np.uint64(1)
MAX_CELLS = 1e300  # upper limit on a table's cells: a sum of a few million of them is still finite


def _naive_popcount(word):
    """Return the number of bits set in a uint64."""
    return int(word).bit_count()


def _naive_lowest(word):
    """Return the index of the lowest bit set in a uint64 that is not zero."""
    return (int(word) & -int(word)).bit_length() - 1


@intrinsic(_naive_popcount)
def popcount(context, word):
    """Return the number of bits set in a uint64."""
    return types.int64(types.uint64), lambda context, builder, signature, args: builder.ctpop(args[0])


@intrinsic(_naive_lowest)
def lowest(context, word):
    """Return the index of the lowest bit set in a uint64 that is not zero."""
    zero_is_defined = ir.Constant(ir.IntType(1), 0)
    return types.int64(types.uint64), lambda context, builder, signature, args: builder.cttz(args[0], zero_is_defined)


@njit(nogil=True, allocates=False)
def bit(v):
    """Return the word in which only the bit of v is set; it belongs to word ``v >> 6`` of a row."""
    return ONE << np.uint64(v & 63)


@njit(nogil=True, allocates=False)
def has(row, v):
    """Return whether v is in the set ``row``."""
    return (row[v >> 6] >> np.uint64(v & 63)) & ONE != 0


@njit(nogil=True, allocates=False)
def members(row, out):
    """Write the members of the set ``row`` to ``out`` (n,) int64, ascending; return their number."""
    count = 0
    for k in range(row.size):
        word = row[k]
        while word:
            out[count] = k * 64 + lowest(word)
            count += 1
            word &= word - ONE
    return count


@njit(nogil=True)
def graph_of_scopes(flat, offsets, n, eliminate):
    """Return the (n, words) graph of variables that share a scope, with the kept variables as a clique.

    Edges among the kept variables change no bucket, and as a clique they do not count as fill. The outer loop treats
    the kept variables as an additional scope, number 0; scope s − 1 of the arguments is its number s.

    Parameters
    ----------
    flat : (entries,) int64
        The scopes, one after another.
    offsets : (scopes + 1,) int64
        Start of each scope in ``flat``, and the end of the last one.
    n : int
        The number of variables.
    eliminate : int
        The number of variables to eliminate; variables from here on are kept.
    """
    words = (n + 63) // 64
    graph = np.zeros((n, words), dtype=np.uint64)
    row = np.zeros(words, dtype=np.uint64)
    for s in range(offsets.size):
        start = eliminate if s == 0 else offsets[s - 1]
        end = n if s == 0 else offsets[s]
        for i in range(start, end):
            v = i if s == 0 else flat[i]
            row[v >> 6] |= bit(v)
        for i in range(start, end):
            v = i if s == 0 else flat[i]
            for k in range(words):
                graph[v, k] |= row[k]
        for i in range(start, end):
            row[(i if s == 0 else flat[i]) >> 6] = 0
    for v in range(n):
        graph[v, v >> 6] &= ~bit(v)
    return graph


@njit(nogil=True)
def subgraph(graph, chosen):
    """Return the induced subgraph of the vertices ``chosen`` (k,) int64, numbered by their positions there."""
    position = np.full(graph.shape[0], -1, dtype=np.int64)
    for i in range(chosen.size):
        position[chosen[i]] = i
    induced = np.zeros((chosen.size, (chosen.size + 63) // 64), dtype=np.uint64)
    for i in range(chosen.size):
        for k in range(graph.shape[1]):
            word = graph[chosen[i], k]
            while word:
                j = position[k * 64 + lowest(word)]
                word &= word - ONE
                if j >= 0:
                    induced[i, j >> 6] |= bit(j)
    return induced


def pack(adjacent: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return an (n, n) bool adjacency matrix as (n, words) uint64 rows of bits.

    Bit ``u & 63`` of word ``u >> 6`` in row v stands for edge v-u.
    """
    n = adjacent.shape[0]
    bits = np.zeros((n, (n + 63) // 64 * 64), dtype=np.bool_)
    bits[:, :n] = adjacent
    return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)


@njit(nogil=True, allocates=False)
def random_word(state):
    """Return the next 64-bit word of a xorshift generator (Marsaglia 2003); ``state`` (1,) uint64 is never zero."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return x


@njit(nogil=True, allocates=False)
def random_unit(state):
    """Return a float in [0, 1) with 31 random bits; ``state`` (1,) uint64 is the generator's."""
    return np.int64(random_word(state) >> np.uint64(33)) * (1.0 / 2147483648.0)


@njit(nogil=True)
def seeded(seed):
    """Return a random generator's state (1,) uint64 for a seed.

    The state is (seed + 1) · 2^64 / golden ratio, made odd so that it is not zero; eight numbers are then discarded.
    """
    state = np.empty(1, dtype=np.uint64)
    state[0] = (np.uint64(seed) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
    for _ in range(8):
        random_word(state)
    return state
