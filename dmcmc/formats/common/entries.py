"""Convert the numbers of a text exactly to the entries of a table; used by the readers of several formats."""

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, FileError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, format_bytes, memory_limit
from dmcmc.inference.runtime.types import Array

_MAX_MESSAGE_LENGTH = 640  # characters of an error message, so that it can be read in a terminal
_COPIES = 4  # arrays of a table's size that exist while its factor is built
_MAX_INT64 = 2**63 - 1
_BYTES_PER_VARIABLE = 200  # bytes of a name, of its entries in sets and of the variable's numbers; measured
_BYTES_PER_FACTOR = 500  # bytes of a factor with its name, scope and view of a table; measured
_FORBIDDEN = -(2**63)  # represents a forbidden entry in int64
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,9})?")
_INFINITY = re.compile(r"([+-]?)(?:inf|infinity)", re.IGNORECASE)


def number(word: str) -> int | float | None:
    """Return the number that a word stands for (integers exactly), or None if it is not a number.

    >>> number("12"), number("-.5"), number("infinity"), number("nan")
    (12, -0.5, inf, None)
    """
    if _INTEGER.fullmatch(word):
        return int(word)
    if _DECIMAL.fullmatch(word):
        value = float(word)
        return value if math.isfinite(value) else None
    infinite = _INFINITY.fullmatch(word)
    return None if infinite is None else -math.inf if infinite[1] == "-" else math.inf


def entries(values: Sequence[int | float] | Array, sense: str) -> Array:
    """Return costs or utilities as an array for ``Factor.of``: int64 if all are integers, else float64.

    In int64 the smallest number represents the forbidding infinity (+∞ for ``min``, −∞ for ``max``). An array of
    integers or floats is returned unchanged.

    Parameters
    ----------
    values
        Costs (``sense`` is ``min``) or utilities (``max``).
    sense
        ``min`` or ``max``.

    Raises
    ------
    OverflowError
        For integers that need more than 63 bits.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "if":
        return values
    forbidding = math.inf if sense == "min" else -math.inf
    if all(isinstance(v, int) or v == forbidding for v in values):
        if any(abs(v) > _MAX_INT64 for v in values if v != forbidding):
            raise OverflowError("whole numbers of more than 63 bits; scale them down")
        return np.array([_FORBIDDEN if v == forbidding else int(v) for v in values], dtype=np.int64)
    return np.array([float(v) for v in values], dtype=np.float64)


def clipped_error(error: DmcmcError) -> DmcmcError:
    """Return an error with a message of one line and at most about 640 characters, as readers may raise it.

    The middle of a longer message is left out. A ``ConfigError`` becomes a ``FileError``.
    """
    message = " ".join(str(error).split())
    if len(message) > _MAX_MESSAGE_LENGTH:
        message = f"{message[:400]} ... {message[-200:]}"
    error_type = FileError if isinstance(error, ConfigError) else type(error)
    return error_type(message)


def claim_structures(variables: int, factors: int) -> None:
    """Charge the names and objects of a problem to the memory, without its tables, before they are made.

    Raises
    ------
    OutOfMemory
        If they do not fit.
    """
    size = _BYTES_PER_VARIABLE * variables + _BYTES_PER_FACTOR * factors
    MEMORY_ACCOUNT.claim(size, f"{variables} variables and {factors} factors")


class TableBudget:
    """Check that all tables of one file together fit the memory, before each table is built.

    Attributes
    ----------
    entries : int
        Entries of all tables so far.
    """

    def __init__(self) -> None:
        """Start without tables."""
        self.entries = 0

    def reserve(self, shape: Sequence[int], place: Callable[[], str]) -> int:
        """Account for a table of this shape and return its number of entries.

        Raises
        ------
        FileError
            If the tables exceed the memory; ``place`` returns the place for the message and is called only then.
        """
        count, limit = math.prod(shape), memory_limit()
        if 8 * (self.entries + _COPIES * count) > limit:
            size = f"{count:.3g}" if count < 1e300 else "more than 1e300"
            raise FileError(f"{place()}: a table of {size} entries; tables may take {format_bytes(limit)} in all")
        self.entries += count
        return count
