# mypy: ignore-errors
"""Compiled loops over the bytes of a text, for :mod:`dmcmc.formats.common.tokens`.

Words are separated by white space (bytes 32 and 9 to 13). Other byte codes: 43 ``+``, 45 ``-``, 46 ``.``, 48 ``0``, 69
``E``, 101 ``e``. Arguments of the kernels:

text : (bytes,) uint8
    The text.
begin : int
    Byte at which to start.
numbers : (words,) int64 or float64
    Output: the value of each word; 0 for an unconverted word.
unconverted : (k, 3) int64
    Output: for each word that cannot be converted exactly, its index, its first byte and the byte after its last.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit

_EXACT_POWERS_OF_TEN = np.array(
    [float(f"1e{i}") for i in range(23)]
)  # the powers of ten that a float64 represents exactly


@njit(nogil=True, allocates=False)
def integers(text, begin, numbers, unconverted):
    """Convert all words to int64; return the number of words and the number of unconverted words.

    If the buffer ``unconverted`` is full, the kernel stops and returns its size plus 1.
    """
    n, count, unconverted_count, i = text.size, 0, 0, begin
    while True:
        while i < n and (text[i] == 32 or 9 <= text[i] <= 13):
            i += 1
        if i == n:
            return count, unconverted_count
        word_start = i
        negative = text[i] == 45
        if negative or text[i] == 43:
            i += 1
        value, digits, is_valid = np.int64(0), 0, True
        while i < n and not (text[i] == 32 or 9 <= text[i] <= 13):
            digit = np.int64(text[i]) - 48
            if digit < 0 or digit > 9:
                is_valid = False
            elif is_valid:
                if digits < 18:
                    value = 10 * value + digit
                elif value > (2**63 - 1 - digit) // 10:
                    is_valid = False
                else:
                    value = 10 * value + digit
                digits += value > 0
            i += 1
        if not is_valid or i - word_start - (text[word_start] == 45 or text[word_start] == 43) == 0:
            value = 0
            if unconverted_count == unconverted.shape[0]:
                return count, unconverted_count + 1
            unconverted[unconverted_count, 0], unconverted[unconverted_count, 1], unconverted[unconverted_count, 2] = (
                count,
                word_start,
                i,
            )
            unconverted_count += 1
        numbers[count] = -value if negative else value
        count += 1


@njit(nogil=True, allocates=False)
def _quotient(mantissa, power):
    """Return mantissa / power, and whether it is certainly correctly rounded.

    ``mantissa`` is an integer up to 2^60 and ``power`` a power of ten up to 10^22. The quotient of the rounded mantissa
    is corrected by the exactly computed remainder (Dekker's product; 134217729 = 2^27 + 1 is Veltkamp's constant, which
    splits a float64 into two halves of at most 26 bits). The sum of both is accurate to 2^-40 of a unit in the last
    place. It therefore rounds like the true quotient, unless the latter lies that close to the midpoint between two
    floating-point numbers. The test for this is stricter: 2^-30 of a unit.
    """
    high = np.float64(mantissa)
    low = np.float64(mantissa - np.int64(high))
    quotient = high / power
    a = quotient * 134217729.0
    a = a - (a - quotient)
    b = power * 134217729.0
    b = b - (b - power)
    product = quotient * power
    error = ((a * b - product) + a * (power - b) + (quotient - a) * b) + (quotient - a) * (power - b)
    correction = (((high - product) - error) + low) / power
    value = quotient + correction
    residual = abs((quotient - value) + correction)
    ulp = np.nextafter(value, np.inf) - value  # below a power of two, floating-point numbers lie twice as close
    tolerance = ulp * 2.0**-30
    return value, abs(residual - 0.5 * ulp) > tolerance and abs(residual - 0.25 * ulp) > tolerance


@njit(nogil=True, allocates=False)
def floats(text, begin, numbers, unconverted):
    """Convert words to float64; return the number of words and the number of unconverted words.

    The kernel converts words m·10^e with m up to 2^53 and |e| up to 22, where m and 10^|e| are exact and the result is
    rounded once. Quotients with a longer m are converted by ``_quotient``; all other words stay unconverted. If the
    buffer ``unconverted`` is full, the kernel stops and returns its size plus 1.
    """
    n, count, unconverted_count, i = text.size, 0, 0, begin
    while True:
        while i < n and (text[i] == 32 or 9 <= text[i] <= 13):
            i += 1
        if i == n:
            return count, unconverted_count
        word_start = i
        negative = text[i] == 45
        if negative or text[i] == 43:
            i += 1
        mantissa, digits, scale, is_valid, seen_point, exponent_start = np.int64(0), 0, 0, True, False, -1
        while i < n and not (text[i] == 32 or 9 <= text[i] <= 13):
            digit = np.int64(text[i]) - 48
            if 0 <= digit <= 9:
                digits += 1
                if mantissa < 10**17:
                    mantissa = 10 * mantissa + digit
                else:
                    is_valid = False
                scale -= seen_point
            elif text[i] == 46 and not seen_point:
                seen_point = True
            elif (text[i] == 101 or text[i] == 69) and digits > 0:
                exponent_start = i + 1
                break
            else:
                is_valid = False
            i += 1
        if digits == 0:
            is_valid = False
        if exponent_start >= 0:
            i = exponent_start
            is_negative_exponent = i < n and text[i] == 45
            if i < n and (text[i] == 45 or text[i] == 43):
                i += 1
            exponent, digits = 0, 0
            while i < n and not (text[i] == 32 or 9 <= text[i] <= 13):
                digit = np.int64(text[i]) - 48
                if digit < 0 or digit > 9:
                    is_valid = False
                elif exponent < 10000:
                    exponent = 10 * exponent + digit
                digits += 1
                i += 1
            if digits == 0:
                is_valid = False
            scale += -exponent if is_negative_exponent else exponent
        value, is_exact = 0.0, is_valid
        if is_valid and mantissa > 0:
            if mantissa <= 2**53 and -22 <= scale <= 22:
                value = (
                    mantissa * _EXACT_POWERS_OF_TEN[scale] if scale >= 0 else mantissa / _EXACT_POWERS_OF_TEN[-scale]
                )
            elif -22 <= scale < 0:
                value, is_exact = _quotient(mantissa, _EXACT_POWERS_OF_TEN[-scale])
            else:
                is_exact = False
        if not is_exact:
            value = 0.0
            if unconverted_count == unconverted.shape[0]:
                return count, unconverted_count + 1
            unconverted[unconverted_count, 0], unconverted[unconverted_count, 1], unconverted[unconverted_count, 2] = (
                count,
                word_start,
                i,
            )
            unconverted_count += 1
        numbers[count] = -value if negative else value
        count += 1


@njit(nogil=True, allocates=False)
def offset(text, begin, index):
    """Return the byte at which word number ``index`` starts, counting words from ``begin``."""
    n, i = text.size, begin
    while True:
        while i < n and (text[i] == 32 or 9 <= text[i] <= 13):
            i += 1
        if i == n or index == 0:
            return i
        index -= 1
        while i < n and not (text[i] == 32 or 9 <= text[i] <= 13):
            i += 1
