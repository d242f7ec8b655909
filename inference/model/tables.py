"""Utility tables: NumPy arrays in which −∞ marks a hard constraint, exact for integers.

A table is an array of dtype ``int32``, ``int64`` or ``float64``. −∞ is ``-inf`` in a float table and the smallest
number of the dtype in an integer table, so that integers stay integers although some entries are forbidden.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array

_SMALLEST = -(2**63)  # the smallest int64
_INT32_LIMIT = 2**31  # magnitude from which integers need int64
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
TABLE_DTYPES = frozenset({_INT32, _INT64, np.dtype(np.float64)})
"""The dtypes of tables."""
_EXACT_FLOAT = 2**53  # every integer up to this magnitude is exactly representable in float64


@cache  # np.iinfo builds a new object at every call
def forbidden_value(dtype: np.dtype[Any]) -> int | float:
    """Return the number that represents −∞ in tables of this dtype."""
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def forbidden(table: Array) -> NDArray[np.bool_]:
    """Return a boolean mask of the same shape, True where the table is −∞."""
    return np.asarray(table == forbidden_value(table.dtype))


def as_array(values: ArrayLike, where: str = "a table") -> Array:
    """Convert ``values`` to an array of numbers without rounding any integer.

    Parameters
    ----------
    values : array_like
        Integers or floats of any shape; booleans and unsigned integers become int64.
    where : str
        Name of the table's owner, for error messages.

    Returns
    -------
    ndarray
        An array of a signed integer or float dtype.

    Raises
    ------
    ProblemError
        If an integer needs more than 63 bits, rows have different lengths, or an entry is not a number.
    """
    try:
        given = np.asarray(values)
    except (ValueError, OverflowError):
        raise ProblemError(f"{where}: the rows have different lengths, or are no numbers") from None
    # NumPy converts Python integers beyond int64 to uint64, float64 or object, depending on the other entries.
    # Only floats of at least 2^53 can be rounded integers; lists with an infinity have floats among their entries.
    is_float_list = given.dtype.kind == "f" and not hasattr(values, "dtype")
    may_be_rounded = is_float_list and np.abs(given).max(initial=0.0, where=np.isfinite(given)) >= _EXACT_FLOAT
    if given.size and (given.dtype.kind in "uO" or may_be_rounded):
        exact = given if given.dtype.kind in "uO" else np.asarray(values, dtype=object)
        integers = [v for v in exact.reshape(-1).tolist() if isinstance(v, int)]
        # Integers among floats are rounded like these.
        all_integers = given.dtype.kind != "f" or len(integers) == given.size
        if all_integers and integers and not _SMALLEST <= min(integers) <= max(integers) <= -_SMALLEST - 1:
            raise ProblemError(f"{where}: integers beyond 63 bits; smaller ones are needed")
        if not all_integers and any(int(float(v)) != v for v in integers):
            raise ProblemError(
                f"{where}: an integer beyond 53 bits next to a float would be rounded; give integers only"
                ", in which the smallest int64 forbids an entry, or floats only"
            )
    if given.dtype.kind not in "iufb":
        raise ProblemError(f"{where}: entries must be integers or floats, not {given.dtype}")
    return given.astype(np.int64) if given.dtype.kind in "ub" else given


def normalise(values: ArrayLike, sense: str = "max", where: str = "a table") -> Array:
    """Convert ``values`` to a utility table: the narrowest exact dtype, C order, read-only.

    Parameters
    ----------
    values : array_like
        Integers or floats of any shape. For ``sense="max"`` −inf forbids an entry; for ``sense="min"`` (costs, negated
        here) +inf does. In an int32 or int64 array the smallest number of the dtype also forbids an entry.
    sense : {"max", "min"}
        Whether the values are utilities ("max") or costs ("min").
    where : str
        Name of the table's owner, for error messages.

    Returns
    -------
    ndarray of int32, int64 or float64
        The utilities; the array has the shape of ``values`` and cannot be written to.

    Raises
    ------
    ProblemError
        If an entry is NaN, an infinity of the wrong sign, not a number, or an integer beyond 63 bits.
    """
    array = as_array(values, where)
    if array.dtype.kind == "i":
        # 8-bit and 16-bit integers are ordinary numbers: tables have 32 bits at least.
        is_forbidden = forbidden(array) if array.dtype.itemsize >= _INT32.itemsize else None
        integers = array.astype(np.int64)
        if is_forbidden is not None and np.count_nonzero(is_forbidden):
            integers[is_forbidden] = 0
        else:
            is_forbidden = None
        integers = -integers if sense == "min" else integers
        return _integers(integers, integers.min(initial=0), integers.max(initial=0), is_forbidden)
    floats = array.astype(np.float64)
    floats = -floats if sense == "min" else floats
    finite, is_forbidden, finite_count = floats, None, np.count_nonzero(np.isfinite(floats))
    if finite_count < floats.size:
        is_forbidden = forbidden(floats)
        if finite_count + np.count_nonzero(is_forbidden) < floats.size:
            raise ProblemError(f"{where}: contains {_unusable(floats, sense)}")
        finite = np.where(is_forbidden, 0.0, floats)
    low, high = finite.min(initial=0.0), finite.max(initial=0.0)
    if max(-low, high) <= _EXACT_FLOAT and not np.count_nonzero(finite != np.rint(finite)):
        return _integers(finite, low, high, is_forbidden)
    return _frozen(floats)


def _unusable(floats: NDArray[np.float64], sense: str) -> str:
    """Return for an error message what a table contains that is neither finite nor forbidden."""
    if np.isnan(floats).any():
        return "NaN"
    sign, advice = ("+", "-inf") if sense == "max" else ("-", "+inf")
    return f"{sign}inf; only {advice} (a hard constraint) is allowed"


def _integers(entries: Array, low: float, high: float, is_forbidden: NDArray[np.bool_] | None) -> Array:
    """Return whole numbers from ``low`` to ``high`` as an int32 table if they fit, otherwise as int64.

    The entries of the mask become −∞; None stands for no such entry.
    """
    dtype = _INT32 if low > -_INT32_LIMIT and high < _INT32_LIMIT else _INT64
    table = np.array(entries, dtype=dtype)  # the negation of a 0-d array is a scalar
    if is_forbidden is not None:
        table[is_forbidden] = forbidden_value(dtype)
    return _frozen(table)


def _frozen(table: Array) -> Array:
    """Return the table in C order and read-only."""
    table = np.ascontiguousarray(table).reshape(table.shape)  # ascontiguousarray makes 0-d arrays 1-d
    table.flags.writeable = False
    return table


def spread(table: Array, scope: Sequence[int], over: Sequence[int]) -> Array:
    """Return a table with one axis per variable of ``over``, which contains its scope; an added axis has one entry."""
    axes = sorted(range(len(scope)), key=lambda axis: over.index(scope[axis]))
    return table.transpose(axes).reshape([table.shape[scope.index(v)] if v in scope else 1 for v in over])


def magnitude(table: Array) -> int | float:
    """Return the largest finite absolute entry of a table; a Python int for integer tables, so that sums never wrap."""
    finite = table[~forbidden(table)]
    if not finite.size:
        return 0
    low, high = finite.min(), finite.max()
    if table.dtype.kind == "f":
        return float(max(abs(low), abs(high)))
    return max(abs(int(low)), abs(int(high)))
