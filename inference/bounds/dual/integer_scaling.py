"""Utilities as small whole numbers of a power of two, rounded up: what dual ascent shifts about without rounding.

Integers are multiplied where there is room, so that shares have resolution, and divided where they are too large;
either way an entry never gets smaller, and neither does a bound when it is turned back.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.tables.entry_values import DEAD
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.model.tables import forbidden, magnitude
from dmcmc.inference.runtime.types import Array

TOTAL = 1 << 21  # Σ over factors of the largest |entry|, after scaling
_PIECE = 1 << 14  # bounds that are Python numbers at the same time
NEVER = -(1 << 62)  # the bound of a row that is proven infeasible


class Scale(NamedTuple):
    """How utilities became whole numbers: one of these is 2^−shift.

    Attributes
    ----------
    shift : int
        Entries were multiplied by 2^shift and rounded up.
    whole : bool
        Whether all utilities are integers, so that bounds may be rounded down to one.
    ceiling, floor : int or float
        Σ over factors of the largest and of the smallest finite entry, ``ceiling`` rounded up and ``floor`` down: all
        that a row can be.
    """

    shift: int
    whole: bool
    ceiling: int | float
    floor: int | float

    def decode(self, bound: int) -> int | float:
        """Return a bound as a utility, rounded up; −inf if the row is infeasible or bounded below all sums."""
        if bound <= NEVER:
            return -math.inf
        value: int | float
        if self.whole:
            value = bound >> self.shift if self.shift >= 0 else bound << -self.shift
        else:
            value = math.ldexp(bound, -self.shift)  # |bound| < 2^53
        if value < self.floor:
            return -math.inf
        return min(value, self.ceiling)

    def decode_up(self, part: int) -> int | float:
        """Return a part of a bound as a utility, rounded up to a whole one where utilities are."""
        if not self.whole:
            return math.ldexp(part, -self.shift)
        return -(-part >> self.shift) if self.shift >= 0 else part << -self.shift

    def encode_up(self, value: int | float) -> int:
        """Return a bound that is known as a utility in this scale, rounded up."""
        if value == -math.inf:
            return NEVER
        if self.whole:
            whole = math.floor(value)
            return whole << self.shift if self.shift >= 0 else -(-whole >> -self.shift)
        return math.ceil(math.ldexp(value, self.shift))

    def encode(self, threshold: int | float) -> int:
        """Return the least bound that is not below a utility: what is under it may be left out."""
        if threshold == -math.inf:
            return NEVER
        if threshold == math.inf:
            return -NEVER
        if self.whole:
            whole = math.ceil(threshold)
            found = whole << self.shift if self.shift >= 0 else -(-whole >> -self.shift)
        else:
            try:
                found = math.floor(math.ldexp(threshold, self.shift))
            except OverflowError:
                found = NEVER if threshold < 0 else -NEVER
        return min(max(found, NEVER), -NEVER)

    def encode_all(self, thresholds: NDArray[Any]) -> NDArray[np.int64]:
        """Return :meth:`encode` of many; the largest int64 stands for infinity."""
        if thresholds.dtype.kind == "O":
            return np.array([self.encode(t) for t in thresholds.tolist()], dtype=np.int64)
        if not self.whole:
            with np.errstate(over="ignore"):
                found = np.floor(np.ldexp(thresholds.astype(np.float64), self.shift))
            limits: NDArray[np.int64] = np.clip(found, NEVER, -NEVER).astype(np.int64)
            return limits
        numbers = thresholds if thresholds.dtype.kind == "i" else np.ceil(thresholds)
        most = -NEVER >> max(0, self.shift)
        whole = np.clip(numbers, -most, most).astype(np.int64)
        limits = whole << self.shift if self.shift >= 0 else -(-whole >> -self.shift)
        limits[numbers >= most] = -NEVER
        limits[numbers <= -most] = NEVER
        return limits


def quantise(factors: Sequence[Factor]) -> tuple[Scale, list[NDArray[np.int32]]]:
    """Return the scale and the factors' tables in it, −∞ as :data:`DEAD`."""
    whole = all(f.table.dtype.kind == "i" for f in factors)
    total = sum(magnitude(f.table) for f in factors)
    if whole:
        shift = (TOTAL // int(total)).bit_length() - 1 if total <= TOTAL and total > 0 else 0
        while int(total) >> max(0, -shift) > TOTAL:
            shift -= 1
    else:
        shift = 21 - math.frexp(total)[1] if total > 0 else 0
    scaled = [_scaled(f.table, shift) for f in factors]
    highs, lows = [], []
    for f in factors:
        finite = f.table[~forbidden(f.table)]
        highs.append(finite.max().item() if finite.size else 0)
        lows.append(finite.min().item() if finite.size else 0)
    if whole:
        return Scale(shift, True, sum(highs), sum(lows)), scaled
    margin = 4 * max(1, len(factors)) * 2.0**-53 * float(total)
    high, low = math.fsum(highs) + margin, math.fsum(lows) - margin
    return Scale(shift, False, math.nextafter(high, math.inf), math.nextafter(low, -math.inf)), scaled


def _scaled(table: Array, shift: int) -> NDArray[np.int32]:
    hard = forbidden(table)
    finite = np.where(hard, 0, table)
    if table.dtype.kind == "f":
        number = np.ceil(np.ldexp(finite, shift))
    elif shift >= 0:
        number = finite.astype(np.int64) << shift
    else:
        number = -(-finite.astype(np.int64) >> -shift)
    return np.where(hard, DEAD, number).astype(np.int32)


def encode_bound(value: int | float, arithmetic: Arithmetic) -> int | float:
    """Return an upper bound in the numbers of an arithmetic, rounded up."""
    if value == -math.inf:
        return arithmetic.lowest
    if arithmetic.exact:
        return math.ceil(value)
    number = float(value)
    return number if number >= value else math.nextafter(number, math.inf)


def encode_bounds(bounds: NDArray[np.int64], scale: Scale, arithmetic: Arithmetic) -> Array:
    """Return bounds in a scale as upper bounds in the numbers of an arithmetic: :func:`encode_bound` of many."""
    if not arithmetic.exact:
        found = np.empty(bounds.size, dtype=arithmetic.dtype)
        for first in range(0, bounds.size, _PIECE):
            piece = bounds[first : first + _PIECE].tolist()
            found[first : first + _PIECE] = [encode_bound(scale.decode(b), arithmetic) for b in piece]
        return found
    never = bounds <= NEVER
    values = np.where(never, 0, bounds)
    if scale.shift >= 0:
        values >>= scale.shift
    else:  # what is beyond all sums stays so, but fits
        least, most = int(scale.floor) >> -scale.shift, int(scale.ceiling) >> -scale.shift
        values = np.clip(values, least - 1, most + 1) << -scale.shift
    never |= values < scale.floor
    np.minimum(values, scale.ceiling, out=values)
    values[never] = arithmetic.lowest
    return values.astype(arithmetic.dtype)
