"""Utility tables: NumPy arrays with −∞ for a hard constraint, exact for integers.

A table is an ``int32``, ``int64`` or ``float64`` array. −∞ is ``-inf`` in a float table and the smallest number of
the dtype in an integer one, so integers stay integers although some entries are forbidden.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array

_SMALLEST = -(2**63)
_EXACT_FLOAT = 2**53  # up to here every integer is a float64


@cache  # np.iinfo is made anew at every call
def forbidden_value(dtype: np.dtype[Any]) -> int | float:
    """Return what stands for −∞ in a table of this dtype."""
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def forbidden(table: Array) -> NDArray[np.bool_]:
    """Return where a table is −∞ (same shape)."""
    return np.asarray(table == forbidden_value(table.dtype))


def as_array(values: ArrayLike, where: str = "a table") -> Array:
    """Return ``values`` as an array of numbers; no integer is rounded on the way.

    Raises
    ------
    ProblemError
        For integers beyond 63 bits, rows of different lengths, and what is no number.
    """
    try:
        given = np.asarray(values)
    except (ValueError, OverflowError):
        raise ProblemError(f"{where}: the rows have different lengths, or are no numbers") from None
    # NumPy makes uint64, float64 or objects of Python's integers beyond int64, depending on their neighbours.
    if given.size and (given.dtype.kind in "uO" or (given.dtype.kind == "f" and not hasattr(values, "dtype"))):
        exact = given if given.dtype.kind in "uO" else np.asarray(values, dtype=object)
        whole = [v for v in exact.reshape(-1).tolist() if isinstance(v, int)]
        alone = given.dtype.kind != "f" or len(whole) == given.size  # beside floats they are rounded as these are
        if alone and whole and not _SMALLEST <= min(whole) <= max(whole) <= -_SMALLEST - 1:
            raise ProblemError(f"{where}: integers beyond 63 bits; smaller ones are needed")
    if given.dtype.kind not in "iufb":
        raise ProblemError(f"{where}: entries must be integers or floats, not {given.dtype}")
    return given.astype(np.int64) if given.dtype.kind in "ub" else given


def normalise(values: ArrayLike, sense: str = "max", where: str = "a table") -> Array:
    """Return ``values`` as a utility table: the narrowest exact dtype, C order, read-only.

    Parameters
    ----------
    values
        Integers or floats of any shape. For ``sense="max"`` −inf forbids an entry, for ``sense="min"`` (costs,
        negated here) +inf does. In a table that already is int32 or int64, the smallest number of the dtype does.
    sense
        ``"max"`` (utilities) or ``"min"`` (costs).
    where
        Named in errors.

    Raises
    ------
    ProblemError
        For NaN, an infinity of the wrong sign, entries that are no numbers, and integers beyond 63 bits.
    """
    given = as_array(values, where)
    if given.dtype.kind == "i":
        hard = forbidden(given) if given.dtype in (np.int32, np.int64) else np.zeros(given.shape, dtype=bool)
        whole = np.where(hard, 0, given.astype(np.int64))
        return _integers(-whole if sense == "min" else whole, hard)
    exact = given.astype(np.float64)
    exact = -exact if sense == "min" else exact
    if np.isnan(exact).any():
        raise ProblemError(f"{where}: contains NaN")
    if np.isposinf(exact).any():
        sign, advice = ("+", "-inf") if sense == "max" else ("-", "+inf")
        raise ProblemError(f"{where}: contains {sign}inf; only {advice} (a hard constraint) is allowed")
    hard = np.isneginf(exact)
    finite = np.where(hard, 0.0, exact)
    if np.abs(finite).max(initial=0.0) <= _EXACT_FLOAT and (finite == np.rint(finite)).all():
        return _integers(finite.astype(np.int64), hard)
    return _frozen(exact)


def _integers(whole: NDArray[np.int64], hard: NDArray[np.bool_]) -> Array:
    """Return int64 entries as int32 if they fit, with the forbidden ones put back."""
    low, high = int(whole.min(initial=0)), int(whole.max(initial=0))
    narrow = np.iinfo(np.int32)
    dtype = np.dtype(np.int32 if narrow.min < low and high <= narrow.max else np.int64)
    table = np.array(whole, dtype=dtype)  # negating a 0-d array has left a scalar
    table[hard] = forbidden_value(dtype)
    return _frozen(table)


def _frozen(table: Array) -> Array:
    """Return a C-ordered table nobody can write to."""
    table = np.ascontiguousarray(table).reshape(table.shape)  # ascontiguousarray lifts 0-d to 1-d
    table.flags.writeable = False
    return table


def magnitude(table: Array) -> int | float:
    """Return the largest finite |entry| of a table; a Python int for integer tables, so that sums never wrap."""
    finite = table[~forbidden(table)]
    if not finite.size:
        return 0
    low, high = finite.min(), finite.max()
    if table.dtype.kind == "f":
        return float(max(abs(low), abs(high)))
    return max(abs(int(low)), abs(int(high)))
