# mypy: ignore-errors
"""The DMCMC paper's proposal of Metropolis-Hastings (§3.2)."""

import math

from dmcmc.inference.runtime.compile import njit


@njit()
def propose(value, size, normal):
    """Return round(value + |D|^¼·normal), reflected into 0..size−1."""
    place = value + math.sqrt(math.sqrt(size)) * normal + 0.5  # the domain is [0, size) now
    turn = 2.0 * size
    place -= turn * math.floor(place / turn)
    if place >= size:
        place = turn - place
    return min(int(place), size - 1)
