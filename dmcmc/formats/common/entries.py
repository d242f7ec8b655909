"""From the numbers of a text to the entries of a table, exactly."""

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, FileError
from dmcmc.inference.runtime.memory import memory_limit, readable
from dmcmc.inference.runtime.types import Array

_MOST_MESSAGE = 640
_COPIES = 4  # of a table while its factor is built
_LARGEST, _HARD = 2**63 - 1, -(2**63)
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,9})?")
_INFINITY = re.compile(r"([+-]?)(?:inf|infinity)", re.IGNORECASE)


def number(word: str) -> int | float | None:
    """Return the number that a word stands for, whole ones exactly; None if it is none.

    >>> number("12"), number("-.5"), number("infinity"), number("nan")
    (12, -0.5, inf, None)
    """
    if _WHOLE.fullmatch(word):
        return int(word)
    if _DECIMAL.fullmatch(word):
        value = float(word)
        return value if math.isfinite(value) else None
    infinite = _INFINITY.fullmatch(word)
    return None if infinite is None else -math.inf if infinite[1] == "-" else math.inf


def entries(values: Sequence[int | float] | Array, sense: str) -> Array:
    """Return costs or utilities as an array that :meth:`Factor.of` takes: int64 where all are whole, else float64.

    In int64 the infinity that forbids (+ for ``min``, − for ``max``) is the smallest number.

    Raises
    ------
    OverflowError
        For whole numbers beyond 63 bits.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "if":
        return values
    forbidding = math.inf if sense == "min" else -math.inf
    if all(isinstance(v, int) or v == forbidding for v in values):
        if any(abs(v) > _LARGEST for v in values if v != forbidding):
            raise OverflowError("whole numbers beyond 63 bits; scale them down")
        return np.array([_HARD if v == forbidding else int(v) for v in values], dtype=np.int64)
    return np.array([float(v) for v in values], dtype=np.float64)


def clipped(error: DmcmcError) -> DmcmcError:
    """Return what a reader may raise for an error: one line, its middle left out where long names made it long."""
    message = " ".join(str(error).split())
    if len(message) > _MOST_MESSAGE:
        message = f"{message[:400]} ... {message[-200:]}"
    kind = FileError if isinstance(error, ConfigError) else type(error)
    return kind(message)


class Space:
    """The memory that the tables of one file may take, checked before each is made."""

    def __init__(self) -> None:
        self.cells = 0

    def take(self, shape: Sequence[int], place: Callable[[], str]) -> int:
        """Return the cells of a table of this shape.

        Raises
        ------
        FileError
            Where the tables would not fit; ``place`` says where, and is asked only then.
        """
        cells, limit = math.prod(shape), memory_limit()
        if 8 * (self.cells + _COPIES * cells) > limit:
            size = f"{cells:.3g}" if cells < 1e300 else "more than 1e300"
            raise FileError(f"{place()}: a table of {size} entries; tables may take {readable(limit)} in all")
        self.cells += cells
        return cells
