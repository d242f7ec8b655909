"""The arithmetic of elimination: a number type chosen from the data, exact for integers, in which −∞ never wraps.

The narrowest of int32, int64 and float64 that can hold every sum of entries is used. In integers −∞ is represented by a
sentinel. Up to ``ADDENDS`` sentinels can be added before the sum is clamped. A sum that contains a sentinel is below
half of the sentinel, because the finite entries of the whole problem together are smaller in magnitude than that half.
Therefore no sum wraps, and −∞ never turns into a finite number.

Proofs of optimality compare sums without rounding (:func:`exact_sum`): integers may have any size there, and floats are
summed as the fractions that they represent.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array, Number

if TYPE_CHECKING:  # problems are compared by exact sums
    from dmcmc.inference.model.factor import Factor
    from dmcmc.inference.model.flat_tables import FlatTables

Exact = int | Fraction

_MIN_FLOAT_EXPONENT = 1074  # exponent: every float64 is a multiple of 2^−1074


def exact_sum(numbers: Iterable[Number]) -> Exact:
    """Return the exact sum of finite numbers; an int if all of them are ints.

    >>> exact_sum([1e16, 1.0, -1e16]), exact_sum([2**80, 1])
    (Fraction(1, 1), 1208925819614629174706177)
    """
    integer_sum, scaled_float_sum, has_floats = 0, 0, False
    for number in numbers:
        if isinstance(number, int):
            integer_sum += number
        else:
            has_floats = True
            numerator, denominator = number.as_integer_ratio()
            scaled_float_sum += numerator << (_MIN_FLOAT_EXPONENT + 1 - denominator.bit_length())
    return integer_sum + Fraction(scaled_float_sum, 1 << _MIN_FLOAT_EXPONENT) if has_floats else integer_sum


def nearest(value: Exact) -> Number:
    """Round an exact number to the nearest float; return ints unchanged, and ±inf outside the range of floats."""
    if isinstance(value, int):
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def round_up(value: Exact) -> Number:
    """Round an exact number up to the next float; return ints unchanged."""
    number = nearest(value)
    if isinstance(number, int) or number == math.inf:
        return number
    if number == -math.inf:
        return math.nextafter(-math.inf, 0.0)
    return number if Fraction(number) >= value else math.nextafter(number, math.inf)


ADDENDS = 4  # maximum number of sentinels that may be added before the sum is clamped
# Limit on Σ |utility|: differences, and the scales of bounds and chains, stay finite up to it.
MAX_TOTAL_UTILITY = 2.0**1000


class EncodedTable(NamedTuple):
    """Encoded utilities over a scope.

    Attributes
    ----------
    scope : tuple of int
        Variable indices.
    values : ndarray
        Encoded utilities with one axis per variable, in the order of ``scope``.
    """

    scope: tuple[int, ...]
    values: Array


@dataclass(frozen=True)
class Arithmetic:
    """A number type and its representation of −∞.

    Attributes
    ----------
    dtype : numpy dtype
        int32, int64 or float64.
    lowest : int or float
        The representation of −∞; every sum is clamped to at least this.
    total : int or float
        An upper bound on the magnitude of every sum of finite entries with one entry per factor.
    integral : bool
        Whether all entries are integers, even if their sums need float64.
    """

    dtype: np.dtype[Any]
    lowest: int | float
    total: int | float
    integral: bool = False

    @cached_property
    def exact(self) -> bool:
        """Whether sums are free of rounding errors."""
        return self.dtype.kind == "i"

    @cached_property
    def name(self) -> str:
        """The name of the number type, such as "int32"."""
        return self.dtype.name

    @cached_property
    def lowest_scalar(self) -> np.generic:
        """The representation of −∞ as a NumPy scalar of the dtype, the form that compiled kernels need."""
        number: np.generic = self.dtype.type(self.lowest)
        return number

    @property
    def forbidden_below(self) -> int | float:
        """The number below which a sum represents −∞."""
        return self.lowest // 2 if self.exact else -np.inf

    def encode(self, factor: "Factor") -> EncodedTable:
        """Return a factor's table in this arithmetic."""
        return EncodedTable(factor.scope, self.encoded(factor.table))

    def encode_flat(self, flat: "FlatTables") -> "FlatTables":
        """Return flat tables in this arithmetic."""
        return flat._replace(data=self.encoded(flat.data))

    def encoded(self, entries: Array) -> Array:
        """Return entries in this arithmetic, as a new array."""
        if entries.dtype == self.dtype and self.dtype.kind == "i":  # this raises −∞ to lowest
            raised: Array = np.maximum(entries, self.dtype.type(self.lowest))
            return np.asarray(raised)
        with np.errstate(invalid="ignore"):  # −∞ becomes any integer, which is replaced
            values = entries.astype(self.dtype)
        values[forbidden(entries)] = self.lowest
        return values

    def is_lowest(self, value: int | float) -> bool:
        """Return whether a sum represents −∞."""
        return bool(value < self.forbidden_below or value == self.lowest)

    def add(self, left: Array, right: Array, into: Array | None = None) -> Array:
        """Return the clamped, broadcast sum of two encoded arrays.

        Parameters
        ----------
        left : ndarray
            Encoded utilities.
        right : ndarray
            Encoded utilities that broadcast with ``left``.
        into : ndarray or None
            One of the two arrays if it may be overwritten with the sum; None allocates a new array.

        Returns
        -------
        ndarray
            The sum, at least ``lowest`` everywhere.
        """
        total: Array = np.asarray(np.add(left, right, out=into))
        np.maximum(total, self.lowest_scalar, out=total)
        return total

    def outward(self, value: int | float, addends: int) -> int | float:
        """Return an upper bound on the exact sum of ``addends`` terms whose computed sum is ``value``.

        Integers are returned unchanged because their sums are exact.
        """
        if self.exact or not math.isfinite(value):
            return value
        return math.nextafter(value + self.rounding(addends), math.inf)

    def rounding(self, addends: int) -> int | float:
        """Return an upper bound on the rounding error of a sum of ``addends`` terms; 0 if sums are exact.

        The error of a floating-point sum is at most (addends − 1)·2⁻⁵³·Σ|term|, and the conversion of integers to
        floats can add as much again. The returned bound is four times that error.
        """
        return 0 if self.exact else 4 * max(1, addends) * 2.0**-53 * float(self.total)

    def proves_optimal(self, attained: Exact, bound: Exact, addends: int, margin: float = 0.0) -> bool:
        """Return whether a bound proves that no assignment is better than the attained utility.

        This is the proof behind the status ``optimal``. Integers must be equal. For floats, both the bound and the
        choices that were made with it are only as accurate as their sums; they may differ by twice the rounding error.

        Parameters
        ----------
        attained : int or Fraction
            The exact utility of an assignment, without constants.
        bound : int or Fraction
            An upper bound on all utilities without constants, before it was rounded outward.
        addends : int
            Number of terms of the sum.
        margin : float
            Additional rounding error in ``bound``.

        Returns
        -------
        bool
            Whether the assignment is proven optimal.
        """
        if self.exact and not margin:
            return attained >= math.floor(bound)
        if self.exact or self.integral:
            return attained >= math.floor(bound + Fraction(self.rounding(addends) + margin))
        return bound - attained <= 2 * (Fraction(self.rounding(addends)) + Fraction(margin))


def arithmetic_of(largest: Sequence[int | float], integral: bool) -> Arithmetic:
    """Return the narrowest exact arithmetic in which all sums over some tables fit.

    Parameters
    ----------
    largest : sequence of int or float
        The largest finite absolute entry of each table.
    integral : bool
        Whether all entries are integers.

    Returns
    -------
    Arithmetic
        The arithmetic.

    Raises
    ------
    ProblemError
        If the sums exceed ``MAX_TOTAL_UTILITY``, the limit for float64.
    """
    return narrowest(_sum(largest, integral), integral)


def narrowest(total: int | float, integral: bool) -> Arithmetic:
    """Return the narrowest exact arithmetic for sums whose magnitude is at most ``total``.

    −∞ is the smallest integer of the dtype divided by ``ADDENDS``; the dtype is wide enough if ``total`` is smaller
    than half of that in magnitude.

    Parameters
    ----------
    total : int or float
        An upper bound on the magnitude of all sums.
    integral : bool
        Whether all entries are integers.

    Returns
    -------
    Arithmetic
        The arithmetic.

    Raises
    ------
    ProblemError
        If ``total`` exceeds ``MAX_TOTAL_UTILITY``, the limit for float64.
    """
    if not total <= MAX_TOTAL_UTILITY:
        raise ProblemError(
            f"the utilities add up to {float(total):.3g}; scale them down to at most {MAX_TOTAL_UTILITY:.3g}:"
            " larger sums could overflow a float64"
        )
    if integral:
        for dtype in (np.dtype(np.int32), np.dtype(np.int64)):
            lowest = int(np.iinfo(dtype).min) // ADDENDS
            if total < -(lowest // 2):
                return Arithmetic(dtype, lowest, total, True)
    return Arithmetic(np.dtype(np.float64), -np.inf, total, integral)


def is_allowed(encoded: Array) -> NDArray[np.bool_]:
    """Return which encoded entries are not −∞, from the dtype alone."""
    if encoded.dtype.kind == "f":
        return np.asarray(encoded > -np.inf)
    return np.asarray(encoded >= int(np.iinfo(encoded.dtype).min) // ADDENDS // 2)


def scaling_exponent(limit: float, total: float) -> int:
    """Return the exponent of the largest power of two by which a total can be multiplied within a limit.

    The exponent may exceed 1023, the largest one of a float64: ``math.ldexp`` and ``np.ldexp`` multiply by such a
    power, while the power itself overflows.

    Parameters
    ----------
    limit : float
        A positive, finite limit.
    total : float
        A nonnegative, finite number, perhaps subnormal.

    Returns
    -------
    int
        The largest e such that ``total`` · 2^e ≤ ``limit``; 0 if ``total`` is 0.

    Examples
    --------
    >>> scaling_exponent(8.0, 1.0), scaling_exponent(8.0, 5.0), scaling_exponent(1.0, 5e-324)
    (3, 0, 1074)
    """
    if not total:
        return 0
    (limit_mantissa, limit_exponent), (mantissa, exponent) = math.frexp(limit), math.frexp(total)
    return limit_exponent - exponent - (mantissa > limit_mantissa)


def _sum(numbers: Sequence[int | float], integral: bool) -> int | float:
    """Return a sum that does not depend on the order of the numbers: exact for integers, rounded once for floats."""
    if integral:
        return sum(numbers)
    try:
        return math.fsum(numbers)
    except OverflowError:
        return math.inf
