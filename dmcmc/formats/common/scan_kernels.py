# mypy: ignore-errors
"""The passes of :mod:`.scan` over the bytes of a text."""

import numpy as np

from dmcmc.inference.runtime.compile import njit

_TENS = np.array([float(f"1e{i}") for i in range(23)])  # the powers of ten that a float64 holds exactly


@njit(nogil=True)
def integers(text, begin, numbers, noted):
    """Convert all words; returns how many there are and how many are noted (stops when there is no room)."""
    n, count, extra, i = text.size, 0, 0, begin
    while True:
        while i < n and (text[i] == 32 or 9 <= text[i] <= 13):
            i += 1
        if i == n:
            return count, extra
        first = i
        negative = text[i] == 45
        if negative or text[i] == 43:
            i += 1
        value, digits, good = np.int64(0), 0, True
        while i < n and not (text[i] == 32 or 9 <= text[i] <= 13):
            digit = np.int64(text[i]) - 48
            if digit < 0 or digit > 9:
                good = False
            elif good:
                if digits < 18:
                    value = 10 * value + digit
                elif value > (2**63 - 1 - digit) // 10:
                    good = False
                else:
                    value = 10 * value + digit
                digits += value > 0
            i += 1
        if not good or i - first - (text[first] == 45 or text[first] == 43) == 0:
            value = 0
            if extra == noted.shape[0]:
                return count, extra + 1
            noted[extra, 0], noted[extra, 1], noted[extra, 2] = count, first, i
            extra += 1
        numbers[count] = -value if negative else value
        count += 1


@njit(nogil=True)
def _divided(mantissa, power):
    """Return mantissa / power, and whether it surely is correctly rounded, for whole numbers up to 2^60 and 10^22.

    The quotient of the rounded mantissa is corrected by what is left over, computed exactly (Dekker's product). The sum
    of both is right to 2^-40 of its last place, so it rounds as the true quotient does, unless that lies as close to
    the middle between two numbers.
    """
    high = np.float64(mantissa)
    low = np.float64(mantissa - np.int64(high))
    first = high / power
    a = first * 134217729.0
    a = a - (a - first)
    b = power * 134217729.0
    b = b - (b - power)
    product = first * power
    error = ((a * b - product) + a * (power - b) + (first - a) * b) + (first - a) * (power - b)
    second = (((high - product) - error) + low) / power
    value = first + second
    missing = abs((first - value) + second)
    place = np.nextafter(value, np.inf) - value  # below a power of two numbers lie twice as close
    close = place * 2.0**-30
    return value, abs(missing - 0.5 * place) > close and abs(missing - 0.25 * place) > close


@njit(nogil=True)
def floats(text, begin, numbers, noted):
    """Convert the words m·10^e with m up to 2^53 and |e| up to 22 (rounded once), and quotients of longer m."""
    n, count, extra, i = text.size, 0, 0, begin
    while True:
        while i < n and (text[i] == 32 or 9 <= text[i] <= 13):
            i += 1
        if i == n:
            return count, extra
        first = i
        negative = text[i] == 45
        if negative or text[i] == 43:
            i += 1
        mantissa, digits, scale, good, point, mark = np.int64(0), 0, 0, True, False, -1
        while i < n and not (text[i] == 32 or 9 <= text[i] <= 13):
            digit = np.int64(text[i]) - 48
            if 0 <= digit <= 9:
                digits += 1
                if mantissa < 10**17:
                    mantissa = 10 * mantissa + digit
                else:
                    good = False
                scale -= point
            elif text[i] == 46 and not point:
                point = True
            elif (text[i] == 101 or text[i] == 69) and digits > 0:
                mark = i + 1
                break
            else:
                good = False
            i += 1
        if digits == 0:
            good = False
        if mark >= 0:
            i = mark
            down = i < n and text[i] == 45
            if i < n and (text[i] == 45 or text[i] == 43):
                i += 1
            exponent, digits = 0, 0
            while i < n and not (text[i] == 32 or 9 <= text[i] <= 13):
                digit = np.int64(text[i]) - 48
                if digit < 0 or digit > 9:
                    good = False
                elif exponent < 10000:
                    exponent = 10 * exponent + digit
                digits += 1
                i += 1
            if digits == 0:
                good = False
            scale += -exponent if down else exponent
        value, sure = 0.0, good
        if good and mantissa > 0:
            if mantissa <= 2**53 and -22 <= scale <= 22:
                value = mantissa * _TENS[scale] if scale >= 0 else mantissa / _TENS[-scale]
            elif -22 <= scale < 0:
                value, sure = _divided(mantissa, _TENS[-scale])
            else:
                sure = False
        if not sure:
            value = 0.0
            if extra == noted.shape[0]:
                return count, extra + 1
            noted[extra, 0], noted[extra, 1], noted[extra, 2] = count, first, i
            extra += 1
        numbers[count] = -value if negative else value
        count += 1


@njit(nogil=True)
def offset(text, begin, index):
    """Return where a word starts."""
    n, i = text.size, begin
    while True:
        while i < n and (text[i] == 32 or 9 <= text[i] <= 13):
            i += 1
        if i == n or index == 0:
            return i
        index -= 1
        while i < n and not (text[i] == 32 or 9 <= text[i] <= 13):
            i += 1
