# mypy: ignore-errors
"""Philox4x32-10 (Salmon et al., SC 2011): random bits from a key and a counter."""

import numpy as np

from dmcmc.inference.runtime.compile import njit

_MULTIPLY_0 = np.uint64(0xD2511F53)
_MULTIPLY_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_LOW_32_BITS = np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)
ROUNDS = 10


@njit(allocates=False)
def philox(k0, k1, c0, c1, c2, c3):
    """Return four 32-bit random words (as uint64) for a key of two words and a counter of four words.

    Parameters
    ----------
    k0, k1 : uint64
        The key, each below 2^32.
    c0, c1, c2, c3 : int
        The counter, each below 2^32; for chains: row, run, trial, block.
    """
    k0, k1 = np.uint64(k0), np.uint64(k1)
    c0, c1, c2, c3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    for _ in range(ROUNDS):
        left = _MULTIPLY_0 * c0
        right = _MULTIPLY_1 * c2
        c0 = (right >> _WORD_BITS) ^ c1 ^ k0
        c1 = right & _LOW_32_BITS
        c2 = (left >> _WORD_BITS) ^ c3 ^ k1
        c3 = left & _LOW_32_BITS
        k0 = (k0 + _WEYL_0) & _LOW_32_BITS
        k1 = (k1 + _WEYL_1) & _LOW_32_BITS
    return c0, c1, c2, c3


@njit(allocates=False)
def uniform(word):
    """Return a 32-bit random word as a float64 strictly inside (0, 1)."""
    return (np.float64(word) + 0.5) * 2.0**-32
