"""Sums without rounding, which proofs of optimality compare.

Integers may have any size; floats are summed as the fractions that they represent.
"""

import math
from collections.abc import Iterable
from fractions import Fraction

from dmcmc.inference.runtime.types import Number

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
