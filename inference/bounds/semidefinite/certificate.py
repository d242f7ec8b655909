"""From a descent's numbers to a proof: they become whole numbers, and all that follows is exact.

For any vector l_a for each value a of a hidden variable, w_b for each row b and shifts φ, every assignment h has
Σ θ(b, h) ≤ Σ θ(b, h) + |w_b + Σ_u l_{h_u}|². The right-hand side is a sum of tables over single variables and over all
pairs; so the sum of their maxima bounds the row, whatever the vectors are. Nothing is left to show of eigenvalues.
"""

import math
from typing import NamedTuple

import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.bounds.semidefinite.pair_kernels import pair_maxima
from dmcmc.inference.bounds.semidefinite.utility_matrix import Network
from dmcmc.inference.runtime.types import Floats, Ints

_BITS = 12  # of a vector's entry behind the point; squares have twice as many
_LEAST = 2
_PRODUCTS, _SUMS = 50, 60  # bits: sums of products are exact in float64, sums of everything in int64
_AT_ONCE = 1 << 22  # entries of rows that are looked at together


def certified(network: Network, vectors: Floats, shifts: Floats, rows: Ints) -> Ints | None:
    """Return bounds of some rows in the network's scale, rounded up; None where the numbers are too large.

    Parameters
    ----------
    vectors : (n + values of the interface, r)
        l of the hidden values, then of the interface's; w_b is the sum of those of row b. In roots of the scale.
    shifts : (h, n)
        See :func:`.pair_kernels.smooth_pairs`; in the scale.
    rows : (k,) int64

    Returns
    -------
    (k,) int64 or None
        NEVER where a row is proven infeasible.
    """
    square = whole_square(network, vectors, shifts)
    return None if square is None else bounds_with(network, square, rows)


class Square(NamedTuple):
    """A square and shifts in whole numbers.

    Attributes
    ----------
    hidden (n, r), outer (values of the interface, r) : float64
        Whole multiples of 2^-bits.
    moved : (h, n) int64
        Shifts, whole multiples of 4^-bits.
    bits : int
        Behind the point.
    """

    hidden: Floats
    outer: Floats
    moved: Ints
    bits: int

    @property
    def own(self) -> Ints:
        """What is added to each hidden value by itself, (n,), in multiples of 4^-bits."""
        found: Ints = np.einsum("ar,ar->a", self.hidden, self.hidden).astype(np.int64) + self.moved.sum(axis=0)
        return found


def whole_square(network: Network, vectors: Floats, shifts: Floats) -> Square | None:
    """Return vectors and shifts in whole numbers whose sums are exact; None where they are too large."""
    bits = _bits(network, vectors, shifts)
    if bits is None:
        return None
    n = network.owner.size
    whole = np.rint(np.ldexp(vectors.astype(np.float64), bits))
    moved = np.rint(np.ldexp(shifts.astype(np.float64), 2 * bits)).astype(np.int64)
    moved[network.owner, np.arange(n)] = 0
    return Square(whole[:n], whole[n:], moved, bits)


def bounds_with(network: Network, square: Square, rows: Ints) -> Ints:
    """Return the bounds of some rows with a square, in the network's scale, rounded up."""
    hidden, outer, moved, bits = square
    n = network.owner.size
    total = _of_pairs(network, hidden, moved, 2 * bits)
    if total == NEVER:
        return np.full(rows.size, NEVER, dtype=np.int64)
    own = square.own
    found = np.empty(rows.size, dtype=np.int64)
    step = max(1, _AT_ONCE // n)
    for first in range(0, rows.size, step):
        digits = network.digits(rows[first : first + step])
        found[first : first + step] = _of_rows(network, digits, hidden, outer, own, total, 2 * bits)
    return found


def row_vectors(network: Network, outer: Floats, digits: Ints) -> Floats:
    """Return w of some rows: the sum of the vectors of their interface's values, (rows, r)."""
    found: Floats = outer[places(network, digits)].sum(axis=1)
    return found


def places(network: Network, digits: Ints) -> Ints:
    """Return where the interface's values are among all values of the interface, (rows, interface)."""
    return digits + np.cumsum([0, *network.shape[:-1]], dtype=np.int64)[: len(network.shape)]


def _bits(network: Network, vectors: Floats, shifts: Floats) -> int | None:
    """Return how many bits behind the point there is room for."""
    if not (np.isfinite(vectors).all() and np.isfinite(shifts).all()):
        return None
    n, h = network.owner.size, network.starts.size - 1
    norms = np.sqrt(np.einsum("ar,ar->a", vectors, vectors, dtype=np.float64))
    longest = max(float(norms.max(initial=0.0)), float(norms[n:].max(initial=0.0)) * len(network.shape))
    return bits_for(longest, float(np.abs(shifts).max(initial=0.0)), h)


def bits_for(longest: float, moved: float, h: int) -> int | None:
    """Return how many bits there is room for with vectors at most so long, shifts at most so large, h variables."""
    if not (math.isfinite(longest) and math.isfinite(moved)):
        return None
    longest = max(1.0, longest)
    square = 2 * math.ceil(math.log2(longest + 1))
    entries = math.ceil(math.log2(8 * longest**2 + 2 * h * moved + 2**22))
    bits = min(_BITS, (_PRODUCTS - square) // 2, (_SUMS - entries - 2 * math.ceil(math.log2(h + 1))) // 2)
    return bits if bits >= _LEAST else None


def _of_pairs(network: Network, hidden: Floats, moved: Ints, bits: int) -> int:
    """Return the sum of the maxima of all pairs' tables."""
    total, starts = 0, network.starts
    for u in range(starts.size - 2):
        products = hidden[starts[u] : starts[u + 1]] @ hidden[starts[u + 1] :].T
        here = int(pair_maxima(network.pairs, products, moved, bits, starts, u))
        if here == NEVER:
            return NEVER
        total += here
    return total


def _of_rows(network: Network, digits: Ints, hidden: Floats, outer: Floats, own: Ints, total: int, bits: int) -> Ints:
    """Return the bounds of some rows."""
    around = row_vectors(network, outer, digits)
    utilities, constants = network.values(digits), network.constants(digits)
    entries = (utilities << bits) + own + 2 * (around @ hidden.T).astype(np.int64)
    entries[utilities < THRESHOLD] = NEVER
    best = np.maximum.reduceat(entries, network.starts[:-1], axis=1)
    dead = (best == NEVER).any(axis=1) | (constants < THRESHOLD)
    squares = np.einsum("br,br->b", around, around).astype(np.int64)
    whole = (np.where(dead, 0, constants) << bits) + squares + np.where(dead[:, None], 0, best).sum(axis=1) + total
    bounds: Ints = np.where(dead, NEVER, -(-whole >> bits))
    return bounds
