"""Utilities as integers, in which bounds are exact.

Scale utilities to small integers, so that dual ascent can move them between tables without rounding errors.

The unit is a power of two. Integer utilities are multiplied where their range permits, to gain resolution, and divided
where they are too large. Entries are rounded up, so no entry becomes smaller, and a bound that is converted back to a
utility stays an upper bound.

A threshold is a utility that a row (an assignment of an agent's interface variables) has to reach; a cutoff is the same
as an integer in the scale.

Values that an int32 table entry of the dual ascent can have: an allowed number in a bounded range, or forbidden.

An allowed entry lies between ``-MAX_MAGNITUDE`` and ``MAX_MAGNITUDE``. A forbidden entry stands for minus infinity: a
combination of values that a hard constraint excludes or that pruning has removed.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import forbidden, magnitude
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import SMALL_STEP_CELLS

MAX_MAGNITUDE = 1 << 24  # largest |allowed entry|; a kernel that finds a larger one stops
FORBIDDEN = -(1 << 29)  # a forbidden entry (minus infinity); the sum of three does not overflow int32
# A sum below this contains a forbidden entry. A forbidden entry plus up to 10 allowed ones is at most -22 * 2^24, which
# is below it; the sum of up to 12 allowed entries is at least -12 * 2^24, which is not (-2^28 = -16 * 2^24).
FORBIDDEN_BELOW = -(1 << 28)


# Largest sum over the factors of max |entry| after scaling: an eighth of MAX_MAGNITUDE, so messages stay in range.
_MAX_SCALED_TOTAL = 1 << 21
MINUS_INFINITY = -(1 << 62)  # minus infinity: the bound of an infeasible row, and the cutoff that removes nothing


class Scale(NamedTuple):
    """Conversion between utilities and scaled integers: one integer unit is 2^-shift.

    Attributes
    ----------
    shift : int
        Entries were multiplied by 2^shift and rounded up.
    integral : bool
        Whether all utilities are integers, so that bounds may be rounded down to an integer.
    ceiling, floor : int or float
        Sum over the factors of the largest and of the smallest finite entry, rounded up and down: the range of all
        rows' utilities.
    """

    shift: int
    integral: bool
    ceiling: int | float
    floor: int | float

    @property
    def threshold_error(self) -> int:
        """Units by which the bound of a row that was closed by a threshold may lie below the row's utility.

        Thresholds are rounded down to a whole number of units, and a closed row has a bound one unit below that. Where
        all utilities are integers, so are thresholds, and the bound holds.
        """
        return 0 if self.integral else 2

    def decode(self, bound: int) -> int | float:
        """Convert a bound to a utility, rounded down to an integer where all utilities are integers.

        The result is -inf if the row is infeasible or the bound is below every possible sum, and at most ``ceiling``.
        """
        if bound <= MINUS_INFINITY:
            return -math.inf
        value: int | float
        if self.integral:
            value = bound >> self.shift if self.shift >= 0 else bound << -self.shift
        else:
            value = math.ldexp(bound, -self.shift)  # |bound| < 2^53
        if value < self.floor:
            return -math.inf
        return min(value, self.ceiling)

    def decode_up(self, part: int) -> int | float:
        """Convert a summand of a bound to a utility, rounded up to an integer where all utilities are integers."""
        if not self.integral:
            return math.ldexp(part, -self.shift)
        return -(-part >> self.shift) if self.shift >= 0 else part << -self.shift

    def encode_up(self, value: int | float) -> int:
        """Convert an upper bound that is given as a utility to the scale, rounded up."""
        if value == -math.inf:
            return MINUS_INFINITY
        if self.integral:
            integer = math.floor(value)
            return integer << self.shift if self.shift >= 0 else -(-integer >> -self.shift)
        return math.ceil(math.ldexp(value, self.shift))

    def encode(self, threshold: int | float) -> int:
        """Convert a threshold to a cutoff: the smallest bound of a row whose utility may reach the threshold.

        ``MINUS_INFINITY`` stands for minus infinity and ``-MINUS_INFINITY`` for infinity.
        """
        if threshold == -math.inf:
            return MINUS_INFINITY
        if threshold == math.inf:
            return -MINUS_INFINITY
        if self.integral:
            integer = math.ceil(threshold)
            cutoff = integer << self.shift if self.shift >= 0 else -(-integer >> -self.shift)
        else:
            try:
                cutoff = math.floor(math.ldexp(threshold, self.shift))
            except OverflowError:
                cutoff = MINUS_INFINITY if threshold < 0 else -MINUS_INFINITY
        return min(max(cutoff, MINUS_INFINITY), -MINUS_INFINITY)  # limited to the range of the two infinities

    def encode_all(self, thresholds: NDArray[Any]) -> NDArray[np.int64]:
        """Apply ``encode`` to an array of thresholds; in an int64 array, the largest int64 stands for infinity.

        ``thresholds`` is an array of floats, of integers, or of Python numbers (dtype object).
        """
        if thresholds.dtype.kind == "O":
            return np.array([self.encode(t) for t in thresholds.tolist()], dtype=np.int64)
        if not self.integral:
            with np.errstate(over="ignore"):
                scaled = np.floor(np.ldexp(thresholds.astype(np.float64), self.shift))
            cutoffs: NDArray[np.int64] = np.clip(scaled, MINUS_INFINITY, -MINUS_INFINITY).astype(np.int64)
            return cutoffs
        numbers = thresholds if thresholds.dtype.kind == "i" else np.ceil(thresholds)
        largest = -MINUS_INFINITY >> max(0, self.shift)
        integers = np.clip(numbers, -largest, largest).astype(np.int64)
        cutoffs = integers << self.shift if self.shift >= 0 else -(-integers >> -self.shift)
        cutoffs[numbers >= largest] = -MINUS_INFINITY
        cutoffs[numbers <= -largest] = MINUS_INFINITY
        return cutoffs


def quantise(factors: Sequence[Factor]) -> tuple[Scale, list[NDArray[np.int32]]]:
    """Choose a scale for the factors; return it and their tables as int32, with ``FORBIDDEN`` for minus infinity.

    The sum over the factors of the largest |entry| is at most ``_MAX_SCALED_TOTAL`` after scaling, up to rounding.
    """
    all_integers = all(f.table.dtype.kind == "i" for f in factors)
    total = sum(magnitude(f.table) for f in factors)
    if all_integers:
        shift = (_MAX_SCALED_TOTAL // int(total)).bit_length() - 1 if total <= _MAX_SCALED_TOTAL and total > 0 else 0
        while int(total) >> max(0, -shift) > _MAX_SCALED_TOTAL:
            shift -= 1
    else:
        # frexp gives total < 2^exponent, so that the scaled total is below 2^21 = _MAX_SCALED_TOTAL.
        shift = 21 - math.frexp(total)[1] if total > 0 else 0
    scaled = [_scaled(f.table, shift) for f in factors]
    maxima, minima = [], []
    for f in factors:
        finite = f.table[~forbidden(f.table)]
        maxima.append(finite.max().item() if finite.size else 0)
        minima.append(finite.min().item() if finite.size else 0)
    if all_integers:
        return Scale(shift, True, sum(maxima), sum(minima)), scaled
    # 2^-53 is the relative rounding error of a float64; four times that for each factor exceeds the error of a sum.
    margin = 4 * max(1, len(factors)) * 2.0**-53 * float(total)
    high, low = math.fsum(maxima) + margin, math.fsum(minima) - margin
    return Scale(shift, False, math.nextafter(high, math.inf), math.nextafter(low, -math.inf)), scaled


def _scaled(table: Array, shift: int) -> NDArray[np.int32]:
    """Return a table in the scale, rounded up, as int32."""
    is_forbidden = forbidden(table)
    finite = np.where(is_forbidden, 0, table)
    if table.dtype.kind == "f":
        number = np.ceil(np.ldexp(finite, shift))
    elif shift >= 0:
        number = finite.astype(np.int64) << shift
    else:
        number = -(-finite.astype(np.int64) >> -shift)
    return np.where(is_forbidden, FORBIDDEN, number).astype(np.int32)


def encode_bound(value: int | float, arithmetic: Arithmetic) -> int | float:
    """Convert an upper bound to a number of the arithmetic, rounded up; -inf becomes its ``lowest``."""
    if value == -math.inf:
        return arithmetic.lowest
    if arithmetic.exact:
        return math.ceil(value)
    number = float(value)
    return number if number >= value else math.nextafter(number, math.inf)


def encode_bounds(bounds: NDArray[np.int64], scale: Scale, arithmetic: Arithmetic) -> Array:
    """Convert scaled bounds to numbers of the arithmetic, as ``decode`` and ``encode_bound`` do one by one."""
    if not arithmetic.exact:
        encoded = np.empty(bounds.size, dtype=arithmetic.dtype)
        for first in range(0, bounds.size, SMALL_STEP_CELLS):
            chunk = bounds[first : first + SMALL_STEP_CELLS].tolist()
            encoded[first : first + SMALL_STEP_CELLS] = [encode_bound(scale.decode(b), arithmetic) for b in chunk]
        return encoded
    infeasible = bounds <= MINUS_INFINITY
    values = np.where(infeasible, 0, bounds)
    if scale.shift >= 0:
        values >>= scale.shift
    else:  # clip first, so that the shift cannot overflow; bounds outside the range stay outside
        lowest, highest = int(scale.floor) >> -scale.shift, int(scale.ceiling) >> -scale.shift
        values = np.clip(values, lowest - 1, highest + 1) << -scale.shift
    infeasible |= values < scale.floor
    np.minimum(values, scale.ceiling, out=values)
    values[infeasible] = arithmetic.lowest
    return values.astype(arithmetic.dtype)
