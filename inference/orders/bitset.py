"""Convert adjacency matrices to rows of bits, the graph format of ``bitset_kernels``."""

import numpy as np
from numpy.typing import NDArray


def pack(adjacent: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return an (n, n) bool adjacency matrix as (n, words) uint64 rows of bits.

    Bit ``u & 63`` of word ``u >> 6`` in row v stands for edge v-u.
    """
    n = adjacent.shape[0]
    bits = np.zeros((n, (n + 63) // 64 * 64), dtype=np.bool_)
    bits[:, :n] = adjacent
    return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)
