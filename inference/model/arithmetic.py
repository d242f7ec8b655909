"""The numbers that elimination works in: chosen from the data, exact for integers, −∞ never wraps.

The narrowest of int32, int64 and float64 is taken that holds every sum of entries. In integers −∞ is a sentinel; four
of them can be added before a clamp, and a sum with a sentinel in it stays below half of it, because the finite entries
of the whole problem together are smaller than that half. So no sum wraps and no −∞ turns into a number.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.model.exact_sum import Exact
from dmcmc.inference.model.flat_tables import FlatTables, flatten, magnitudes
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array

ADDENDS = 4  # sentinels that may be added before the sum is clamped
LARGEST = 2.0**1000  # Σ |utility|: differences, and the scales of bounds and chains, are finite up to there


class Table(NamedTuple):
    """Encoded utilities over a scope: ``values`` has one axis a variable of ``scope``, in that order."""

    scope: tuple[int, ...]
    values: Array


@dataclass(frozen=True)
class Arithmetic:
    """A number type and its −∞.

    Attributes
    ----------
    dtype : numpy dtype
        int32, int64 or float64.
    lowest : int or float
        Stands for −∞; every sum is clamped to it from below.
    total : int or float
        No sum of finite entries, one a factor, is larger in absolute value.
    whole : bool
        Whether all entries are integers, although float64 may have to hold their sums.
    """

    dtype: np.dtype[Any]
    lowest: int | float
    total: int | float
    whole: bool = False

    @cached_property
    def exact(self) -> bool:
        """Whether sums are free of rounding."""
        return self.dtype.kind == "i"

    @cached_property
    def name(self) -> str:
        """What the number type is called."""
        return self.dtype.name

    @cached_property
    def least(self) -> np.generic:
        """What stands for −∞ in the number type itself, as compiled code wants it."""
        number: np.generic = self.dtype.type(self.lowest)
        return number

    @property
    def threshold(self) -> int | float:
        """Sums below this are −∞."""
        return self.lowest // 2 if self.exact else -np.inf

    def encode(self, factor: Factor) -> Table:
        """Return a factor's table in these numbers."""
        return Table(factor.scope, self._encoded(factor.table))

    def encode_flat(self, flat: FlatTables) -> FlatTables:
        """Return tables in these numbers."""
        return flat._replace(data=self._encoded(flat.data))

    def _encoded(self, given: Array) -> Array:
        """Return entries in these numbers, in an array of their own."""
        if given.dtype == self.dtype and self.exact:  # −∞ is the least of all: no entry is below the lowest
            found: Array = np.maximum(given, self.least)
            return np.asarray(found)
        values = given.astype(self.dtype)
        values[forbidden(given)] = self.lowest
        return values

    def is_lowest(self, value: int | float) -> bool:
        """Return whether a sum stands for −∞."""
        return bool(value < self.threshold or value == self.lowest)

    def add(self, left: Array, right: Array, into: Array | None = None) -> Array:
        """Return the clamped, broadcast sum of two encoded arrays, ``into`` one of them where that may change."""
        total: Array = np.asarray(np.add(left, right, out=into))
        np.maximum(total, self.least, out=total)
        return total

    def outward(self, value: int | float, addends: int) -> int | float:
        """Return an upper bound on the exact sum whose floating-point value is ``value``.

        Exact numbers are returned as they are.
        """
        if self.exact or not math.isfinite(value):
            return value
        return math.nextafter(value + self.rounding(addends), math.inf)

    def rounding(self, addends: int) -> int | float:
        """Return more than what a sum of ``addends`` terms may be off by; 0 where sums are exact.

        A float sum is off by at most (addends − 1)·2⁻⁵³·Σ|term|, and integers that had to become floats by as much
        again; this is four times that.
        """
        return 0 if self.exact else 4 * max(1, addends) * 2.0**-53 * float(self.total)

    def same(self, attained: Exact, bound: Exact, addends: int, margin: float = 0.0) -> bool:
        """Return whether a bound says that nothing is better than what is attained: the proof behind ``optimal``.

        Integers have to be equal. Of floats both the bound and the choice that was made by it are as good as the
        rounding of their sums lets them be: they may be apart by twice that.

        Parameters
        ----------
        attained
            The exact utility of an assignment, without constants.
        bound
            An upper bound on all utilities, likewise, before it was rounded outward.
        addends
            Terms of the sum.
        margin
            Further rounding in ``bound``.
        """
        if self.exact and not margin:
            return attained >= math.floor(bound)
        if self.exact or self.whole:
            return attained >= math.floor(bound + Fraction(self.rounding(addends) + margin))
        return bound - attained <= 2 * (Fraction(self.rounding(addends)) + Fraction(margin))


def choose_arithmetic(factors: Iterable[Factor]) -> Arithmetic:
    """Return the narrowest exact arithmetic in which all sums over these factors fit.

    Constants are no part of such sums: they are added at the end, exactly (:func:`.exact_sum`).
    """
    factors = list(factors)
    return arithmetic_of(flatten([f.scope for f in factors], [f.table for f in factors]))


def arithmetic_of(flat: FlatTables, largest: Sequence[int | float] | None = None) -> Arithmetic:
    """Return the narrowest exact arithmetic in which all sums over these tables fit.

    Parameters
    ----------
    largest
        Each table's largest finite |entry|, where that is known.

    Raises
    ------
    ProblemError
        If they are beyond :data:`LARGEST` even for float64.
    """
    whole = flat.data.dtype.kind == "i"
    return narrowest(_sum(magnitudes(flat) if largest is None else largest, whole), whole)


def narrowest(total: int | float, whole: bool) -> Arithmetic:
    """Return the narrowest exact arithmetic for sums that are no larger than ``total``.

    Parameters
    ----------
    whole
        Whether all entries are integers.

    Raises
    ------
    ProblemError
        As :func:`arithmetic_of`.
    """
    if not total <= LARGEST:
        raise ProblemError(
            f"the utilities add up to {float(total):.3g}, more than {LARGEST:.3g}; scale them down: beyond it a float64"
            " has no room for sums of bounds and differences"
        )
    if whole:
        for dtype in (np.dtype(np.int32), np.dtype(np.int64)):
            lowest = int(np.iinfo(dtype).min) // ADDENDS
            if total < -(lowest // 2):
                return Arithmetic(dtype, lowest, total, True)
    return Arithmetic(np.dtype(np.float64), -np.inf, total, whole)


def _sum(numbers: Sequence[int | float], whole: bool) -> int | float:
    """Return a sum that is the same in any order: exact, rounded once."""
    if whole:
        return sum(numbers)
    try:
        return math.fsum(numbers)
    except OverflowError:
        return math.inf
