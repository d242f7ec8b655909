"""Sums without rounding: what proofs compare. Integers of any size, floats as the fractions that they are."""

import math
from collections.abc import Iterable
from fractions import Fraction

from dmcmc.inference.runtime.types import Number

Exact = int | Fraction

_SMALLEST = 1074  # every float64 is a multiple of 2^−1074


def exact_sum(numbers: Iterable[Number]) -> Exact:
    """Return the sum of finite numbers; an int where all of them are.

    >>> exact_sum([1e16, 1.0, -1e16]), exact_sum([2**80, 1])
    (Fraction(1, 1), 1208925819614629174706177)
    """
    whole, scaled, floats = 0, 0, False
    for number in numbers:
        if isinstance(number, int):
            whole += number
        else:
            floats = True
            numerator, denominator = number.as_integer_ratio()
            scaled += numerator << (_SMALLEST + 1 - denominator.bit_length())
    return whole + Fraction(scaled, 1 << _SMALLEST) if floats else whole


def nearest(value: Exact) -> Number:
    """Return the number nearest to an exact one: itself, or the closest float; ±inf beyond all floats."""
    if isinstance(value, int):
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def not_below(value: Exact) -> Number:
    """Return the least number that is not below an exact one: itself, or a float."""
    number = nearest(value)
    if isinstance(number, int) or number == math.inf:
        return number
    if number == -math.inf:
        return math.nextafter(-math.inf, 0.0)
    return number if Fraction(number) >= value else math.nextafter(number, math.inf)
