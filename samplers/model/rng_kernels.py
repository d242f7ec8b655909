# mypy: ignore-errors
"""Philox4x32-10 (Salmon et al., SC 2011): random bits by a key and a counter."""

import numpy as np

from dmcmc.inference.runtime.compile import njit

_MULTIPLY_0 = np.uint64(0xD2511F53)
_MULTIPLY_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
ROUNDS = 10


@njit(inline="always")
def philox(k0, k1, c0, c1, c2, c3):
    """Return four 32-bit words (as uint64) for a key of two words and a counter of four."""
    k0, k1 = np.uint64(k0), np.uint64(k1)
    c0, c1, c2, c3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    for _ in range(ROUNDS):
        left = _MULTIPLY_0 * c0
        right = _MULTIPLY_1 * c2
        c0 = (right >> _HALF) ^ c1 ^ k0
        c1 = right & _LOW
        c2 = (left >> _HALF) ^ c3 ^ k1
        c3 = left & _LOW
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


@njit(inline="always")
def uniform(word):
    """Return a word as a float64 strictly inside (0, 1)."""
    return (np.float64(word) + 0.5) * 2.0**-32
