"""Factors that list some entries and say what all others are (incomplete tables)."""

from collections.abc import Sequence
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmcmc.inference.model.problem import Factor
from dmcmc.inference.model.tables import as_array, forbidden, normalise
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.inference.runtime.types import Array

_SMALL = 2048  # entries that a table may always have
_EXPANSION = 16  # entries that it may have for each entry listed
_MOST_AXES = 64  # what a NumPy array can have
_MOST_CELLS = 2**31  # of a table that is expanded on demand


class SparseFactor(Factor):
    """A factor whose entries are ``default`` but for some tuples.

    Evaluated as it is; ``table`` expands it anew whenever it is asked for.

    Attributes
    ----------
    scope : tuple of int
    tuples : ndarray of int32, shape (t, arity)
        Value indices, no row twice, in lexicographic order.
    utilities : ndarray, shape (t + 1,)
        Utilities of the tuples, and last the default, as :func:`dmcmc.inference.model.tables.normalise` leaves them.
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
        """Domain sizes of the scope."""
        shape: tuple[int, ...] = self._shape  # type: ignore[attr-defined]
        return shape

    @property
    def table(self) -> Array:
        """All entries; ResourceError where they are too many."""
        check_expansion(self, _MOST_CELLS)
        table: Array = np.full(self.shape, self.utilities[-1], dtype=self.utilities.dtype)
        table[tuple(self.tuples.T)] = self.utilities[:-1]
        table.flags.writeable = False
        return table

    @property
    def lists_possible(self) -> bool:
        """Whether all that is possible is listed: every other entry is −∞."""
        return bool(self._hard[-1])

    def possible(self) -> tuple[NDArray[np.int32], Array]:
        """Return the tuples that are listed and not −∞, and their utilities."""
        free = ~self._hard[:-1]
        return self.tuples[free], self.utilities[:-1][free]

    def __repr__(self) -> str:
        return f"SparseFactor(scope={self.scope}, tuples={len(self.tuples)}, name={self.name!r})"

    def renamed(self, scope: Sequence[int], name: str) -> "SparseFactor":
        """Return the same utilities over another scope."""
        return SparseFactor(scope, self.shape, self.tuples, self.utilities, name)

    def entry(self, values: Sequence[int]) -> int | float | None:
        """Return the utility of one value a variable of the scope; None where it is forbidden."""
        low, high = 0, len(self.tuples)
        for column, value in zip(self._columns, values, strict=True):
            part = column[low:high]
            low, high = low + int(part.searchsorted(value)), low + int(part.searchsorted(value, "right"))
        at = low if low < high else -1
        return None if self._hard[at] else self.utilities[at].item()

    def forbidden_entries(self) -> int:
        """Return how many entries are −∞."""
        listed = int(self._hard[:-1].sum())
        return listed + (prod(self.shape) - len(self.tuples) if self._hard[-1] else 0)

    def arrays(self) -> tuple[Array, ...]:
        """Return the tuples and their utilities."""
        return self.tuples, self.utilities

    @cached_property
    def _columns(self) -> list[NDArray[np.int32]]:
        return list(np.ascontiguousarray(self.tuples.T))

    @cached_property
    def _hard(self) -> NDArray[np.bool_]:
        return forbidden(self.utilities)


def check_expansion(factor: Factor, most: int) -> None:
    """Raise ResourceError where a factor's table would have more entries than ``most``, or more axes than an array."""
    cells = prod(factor.shape)
    if cells > most or len(factor.shape) > _MOST_AXES:
        what = f"factor {factor.name or list(factor.scope)}"
        raise ResourceError(f"{what}: a table of {count(cells)} entries does not fit the memory")


def count(number: int) -> str:
    """Return a number of entries for the reader, however large.

    >>> count(1200), count(10**400)
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
    """Return the factor of listed entries and a default: dense where that is not much larger, sparse elsewhere.

    Parameters
    ----------
    scope, shape
        Variables and their domain sizes.
    tuples : (t, arity) integers
        Value indices; of a tuple that is listed twice the last counts.
    values : (t,) numbers
        Integers or floats, one a tuple; −inf (``sense="max"``) or +inf (``sense="min"``) forbids. In int64 the
        smallest number does.
    default
        What every other tuple has.
    sense, name
        As in :meth:`dmcmc.inference.model.problem.Factor.of`.

    Raises
    ------
    ProblemError
        For values outside their domains, and what :func:`dmcmc.inference.model.tables.normalise` refuses.
    """
    what = f"factor {name or list(scope)}"
    listed = as_array(values, what)
    rows = np.asarray(tuples, dtype=np.int64).reshape(listed.size, len(shape))
    sizes = np.asarray(shape, dtype=np.int64)
    for bad in np.flatnonzero(((rows < 0) | (rows >= sizes)).any(axis=1))[:1]:
        raise ProblemError(f"{what}: tuple {bad} has a value outside its domain")
    together = _joined(listed, as_array(default, what))
    cells = prod(int(size) for size in shape)
    if cells <= max(_SMALL, _EXPANSION * listed.size) and len(shape) <= _MOST_AXES:
        table = np.full(tuple(shape), together[-1], dtype=together.dtype)
        if shape:
            table[tuple(rows.T)] = together[:-1]
        elif listed.size:
            table[()] = together[-2]
        return Factor.of(scope, table, sense, name)
    utilities = normalise(together, sense, what)
    last, at = _distinct(rows)
    kept = utilities[np.append(at, listed.size)]
    kept.flags.writeable = False
    return SparseFactor(tuple(int(v) for v in scope), tuple(int(s) for s in shape), last, kept, name)


def _joined(values: Array, default: Array) -> Array:
    """Return values and the default in one array that holds both exactly."""
    kind = np.int64 if values.dtype.kind == default.dtype.kind == "i" else np.float64
    return np.append(values.reshape(-1).astype(kind), default.astype(kind))


def _distinct(rows: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the distinct rows in lexicographic order, and where each stands last."""
    if not rows.shape[1]:
        return rows[:1].astype(np.int32), np.arange(len(rows))[-1:]
    order = np.lexsort(rows.T[::-1])  # stable: equal rows stay in their order
    ordered = rows[order]
    last = np.append((ordered[1:] != ordered[:-1]).any(axis=1), True)[: len(rows)]
    return np.ascontiguousarray(ordered[last].astype(np.int32)), order[last]
