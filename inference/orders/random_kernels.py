# mypy: ignore-errors
"""Random numbers of searches that run one step after the other."""

import numpy as np

from dmcmc.inference.runtime.compile import njit


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
