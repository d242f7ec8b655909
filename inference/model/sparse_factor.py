"""Sparse factors: a list of tuples with their utilities, and a default utility for all other tuples.

CUBE calls such tables incomplete tables.
"""

from collections.abc import Sequence
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import as_array, forbidden, normalise
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import MAX_EXPANDED_ENTRIES, MIN_COMPRESSION, SMALL_TABLE_ENTRIES

MAX_ARRAY_AXES = 64  # NumPy's limit on the number of dimensions


class SparseFactor(Factor):
    """A factor whose utility is a default, except for some listed tuples.

    It is evaluated without expansion; every access to ``table`` expands it again.

    Attributes
    ----------
    scope : tuple of int
        Variable indices without repetition.
    tuples : ndarray of int32, shape (t, arity)
        Value indices of the listed tuples, distinct and in lexicographic order.
    utilities : ndarray of int32, int64 or float64, shape (t + 1,)
        Utilities of the tuples, followed by the default, in the form that ``dmcmc.inference.model.tables.normalise``
        returns.
    name : str
        Name of the factor, used in messages only.
    """

    tuples: NDArray[np.int32]
    utilities: Array

    def __init__(
        self,
        scope: Sequence[int],
        shape: Sequence[int],
        tuples: NDArray[np.int32],
        utilities: Array,
        name: str = "",
    ) -> None:
        given = {"scope": tuple(scope), "_shape": tuple(shape), "tuples": tuples, "utilities": utilities, "name": name}
        for field, value in given.items():
            object.__setattr__(self, field, value)

    @property
    def shape(self) -> tuple[int, ...]:
        """The domain sizes of the scope."""
        shape: tuple[int, ...] = self._shape  # type: ignore[attr-defined]
        return shape

    @property
    def table(self) -> Array:
        """The dense table of all entries; raises ResourceError if it is too large."""
        check_expansion(self, 8 * MAX_EXPANDED_ENTRIES)
        table: Array = np.full(self.shape, self.utilities[-1], dtype=self.utilities.dtype)
        table[tuple(self.tuples.T)] = self.utilities[:-1]
        table.flags.writeable = False
        return table

    @property
    def default_is_forbidden(self) -> bool:
        """Whether the default is −∞, so that all allowed tuples are listed."""
        return bool(self._is_forbidden[-1])

    def allowed_tuples(self) -> tuple[NDArray[np.int32], Array]:
        """Return the listed tuples that are allowed, shape (a, arity), and their utilities, shape (a,)."""
        allowed = ~self._is_forbidden[:-1]
        return self.tuples[allowed], self.utilities[:-1][allowed]

    def __repr__(self) -> str:
        return f"SparseFactor(scope={self.scope}, tuples={len(self.tuples)}, name={self.name!r})"

    def renamed(self, scope: Sequence[int], name: str) -> "SparseFactor":
        """Return a factor with the same utilities, another scope and another name."""
        return SparseFactor(scope, self.shape, self.tuples, self.utilities, name)

    def entry(self, values: Sequence[int]) -> int | float | None:
        """Return the utility of one combination of values, or None if it is forbidden."""
        low, high = 0, len(self.tuples)
        for column, value in zip(self._columns, values, strict=True):
            candidates = column[low:high]
            low, high = low + int(candidates.searchsorted(value)), low + int(candidates.searchsorted(value, "right"))
        index = low if low < high else -1
        return None if self._is_forbidden[index] else self.utilities[index].item()

    def forbidden_entries(self) -> int:
        """Return the number of forbidden entries (−∞) of the expanded table."""
        listed = int(self._is_forbidden[:-1].sum())
        return listed + (prod(self.shape) - len(self.tuples) if self._is_forbidden[-1] else 0)

    def arrays(self) -> tuple[Array, ...]:
        """Return the tuples and their utilities."""
        return self.tuples, self.utilities

    @cached_property
    def _columns(self) -> list[NDArray[np.int32]]:
        """The columns of ``tuples``, each contiguous, for binary search."""
        return list(np.ascontiguousarray(self.tuples.T))

    @cached_property
    def _is_forbidden(self) -> NDArray[np.bool_]:
        """Whether each entry of ``utilities`` is −∞, shape (t + 1,)."""
        return forbidden(self.utilities)


def check_expansion(factor: Factor, max_entries: int) -> None:
    """Raise ResourceError if a factor's table would exceed ``max_entries`` or NumPy's limit on axes."""
    cells = prod(factor.shape)
    if cells > max_entries or len(factor.shape) > MAX_ARRAY_AXES:
        what = f"factor {factor.name or list(factor.scope)}"
        raise ResourceError(f"{what}: a table of {format_count(cells)} entries does not fit the memory")


def format_count(number: int) -> str:
    """Format a number of entries for messages, however large it is.

    >>> format_count(1200), format_count(10**400)
    ('1200', 'about 10^400')
    """
    return str(number) if number < 10**6 else f"about 10^{len(str(number)) - 1}"


def tabulate(
    scope: Sequence[int],
    shape: Sequence[int],
    tuples: ArrayLike,
    values: ArrayLike,
    default: int | float,
    sense: str = "max",
    name: str = "",
) -> Factor:
    """Return a factor given by listed tuples and a default: dense if that is not much larger, otherwise sparse.

    Parameters
    ----------
    scope : sequence of int
        Variable indices without repetition.
    shape : sequence of int
        Domain sizes of the scope.
    tuples : array_like of int, shape (t, arity)
        Value indices; if a tuple is listed twice, the last one counts.
    values : array_like, shape (t,)
        One integer or float per tuple; −inf (for ``sense="min"``: +inf) forbids it. In int64 arrays the smallest number
        also forbids a tuple.
    default : int or float
        The value of all other tuples.
    sense : {"max", "min"}
        Whether the values are utilities ("max") or costs ("min").
    name : str
        Name of the factor, used in messages only.

    Returns
    -------
    Factor
        A dense ``Factor`` or a ``SparseFactor``.

    Raises
    ------
    ProblemError
        If a value index is outside its domain, or if ``dmcmc.inference.model.tables.normalise`` rejects a value.
    """
    what = f"factor {name or list(scope)}"
    utility_values = as_array(values, what)
    value_rows = np.asarray(tuples, dtype=np.int64).reshape(utility_values.size, len(shape))
    sizes = np.asarray(shape, dtype=np.int64)
    is_outside = (value_rows < 0) | (value_rows >= sizes)
    if np.count_nonzero(is_outside):
        raise ProblemError(f"{what}: tuple {is_outside.any(axis=1).argmax()} has a value outside its domain")
    all_values = _append_default(utility_values, as_array(default, what))
    cells = prod(int(size) for size in shape)
    if cells <= max(SMALL_TABLE_ENTRIES, MIN_COMPRESSION * utility_values.size) and len(shape) <= MAX_ARRAY_AXES:
        table = np.full(tuple(shape), all_values[-1], dtype=all_values.dtype)
        if shape:
            table[tuple(value_rows.T)] = all_values[:-1]
        elif utility_values.size:
            table[()] = all_values[-2]
        return Factor.of(scope, table, sense, name)
    utilities = normalise(all_values, sense, what)
    distinct_tuples, last_row = _distinct_rows(value_rows)
    distinct_utilities = utilities[np.append(last_row, utility_values.size)]
    distinct_utilities.flags.writeable = False
    return SparseFactor(
        tuple(int(v) for v in scope), tuple(int(s) for s in shape), distinct_tuples, distinct_utilities, name
    )


def _append_default(values: Array, default: Array) -> Array:
    """Return the values followed by the default, in a dtype that holds both exactly."""
    both = np.empty(values.size + 1, dtype=np.int64 if values.dtype.kind == default.dtype.kind == "i" else np.float64)
    both[:-1], both[-1] = values.reshape(-1), default
    return both


def _distinct_rows(rows: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the distinct rows in lexicographic order, and the index of the last occurrence of each."""
    if not rows.shape[1]:
        return rows[:1].astype(np.int32), np.arange(len(rows))[-1:]
    order = np.lexsort(rows.T[::-1])  # a stable sort: equal rows stay in their order
    ordered = rows[order]
    is_last = np.append((ordered[1:] != ordered[:-1]).any(axis=1), True)[: len(rows)]
    return np.ascontiguousarray(ordered[is_last].astype(np.int32)), order[is_last]
