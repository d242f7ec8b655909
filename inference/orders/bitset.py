"""Graphs as rows of bits, from adjacency matrices; :mod:`.bitset_kernels` works on them."""

import numpy as np
from numpy.typing import NDArray


def pack(adjacent: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return an (n, n) bool adjacency as (n, words) rows of bits."""
    n = adjacent.shape[0]
    bits = np.zeros((n, (n + 63) // 64 * 64), dtype=np.bool_)
    bits[:, :n] = adjacent
    return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)
