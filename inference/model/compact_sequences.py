"""Compact sequences for the data that every rank holds about all agents.

They take a few bytes per entry and create Python objects only on access. A tuple of tuples of numbers takes about
100 bytes per entry and a record of numbers about 500 bytes, which is too much for 10^5 agents on each of many ranks.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Ints

T = TypeVar("T")

NarrowInts = NDArray[np.int32] | NDArray[np.int64]


def narrow(numbers: Any) -> NarrowInts:
    """Convert integers to int32 if all of them fit, otherwise to int64."""
    wide = np.asarray(numbers, dtype=np.int64)
    fits = not wide.size or (int(wide.min()) >= -(1 << 31) and int(wide.max()) < 1 << 31)
    return wide.astype(np.int32) if fits else wide


class _CompactSequence(Sequence[T], Generic[T]):
    """A sequence whose entries are created on access by ``_entry``."""

    def _entry(self, number: int) -> T:
        """Return the entry at a non-negative index."""
        raise NotImplementedError

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[T]: ...
    def __getitem__(self, number: int | slice) -> T | Sequence[T]:
        if isinstance(number, slice):
            return [self._entry(i) for i in range(*number.indices(len(self)))]
        count = len(self)
        if not -count <= number < count:
            raise IndexError(f"{number} of {count}")
        return self._entry(number % count)

    def __iter__(self) -> Iterator[T]:
        return map(self._entry, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_equal, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def _equal(a: object, b: object) -> bool:
    """Return whether two entries are equal."""
    return a == b


class IndexGroups(_CompactSequence[tuple[int, ...]]):
    """Groups of integers, stored in two arrays.

    Attributes
    ----------
    start : ndarray of int32 or int64, shape (groups + 1,)
        Offsets: group g is ``flat[start[g]:start[g + 1]]``.
    flat : ndarray of int32 or int64, shape (members,)
        The integers of all groups.

    Examples
    --------
    >>> groups = IndexGroups.of([(1, 2), (), (7,)])
    >>> groups[0], groups[-1], groups == ((1, 2), (), (7,))
    ((1, 2), (7,), True)
    """

    def __init__(self, start: Any, flat: Any) -> None:
        self.start, self.flat = narrow(start), narrow(flat)

    @classmethod
    def of(cls, groups: Iterable[Sequence[int]]) -> "IndexGroups":
        """Build groups from sequences of integers; the order inside each group is kept."""
        lengths, flat = array("q"), array("q")
        for group in groups:
            lengths.append(len(group))
            flat.extend(group)
        return cls(start_offsets(np.array(lengths, dtype=np.int64)), flat)

    @classmethod
    def by_group(cls, group: Any, count: int, members: Any = None) -> "IndexGroups":
        """Build ``count`` groups from the group number of each member.

        Parameters
        ----------
        group : array_like of int, shape (members,)
            The group of each member, in 0..count − 1.
        count : int
            Number of groups.
        members : array_like of int, shape (members,), or None
            The members; None stands for 0, 1, ... in this order.

        Returns
        -------
        IndexGroups
            The groups; members keep their order.
        """
        group = np.asarray(group, dtype=np.int64)
        order = np.argsort(group, kind="stable")
        start = start_offsets(np.bincount(group, minlength=count))
        return cls(start, order if members is None else np.asarray(members)[order])

    def __len__(self) -> int:
        return self.start.size - 1

    def _entry(self, number: int) -> tuple[int, ...]:
        """Return a group as a tuple."""
        return tuple(self.flat[self.start[number] : self.start[number + 1]].tolist())

    @property
    def lengths(self) -> Ints:
        """The number of members of each group."""
        return np.diff(self.start).astype(np.int64)


def start_offsets(lengths: Ints) -> Ints:
    """Return the offsets of consecutive pieces with these lengths, followed by the total length."""
    start = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=start[1:])
    return start


class CompactNames(_CompactSequence[str]):
    """Names, stored in one UTF-8 byte string.

    Parameters
    ----------
    names : iterable of str
        The names, in order.

    Examples
    --------
    >>> names = CompactNames(["a1", "β", ""])
    >>> names[1], len(names), names == ("a1", "β", "")
    ('β', 3, True)
    """

    def __init__(self, names: Iterable[str]) -> None:
        pieces = [name.encode("utf-8", "surrogatepass") for name in names]
        self._data = b"".join(pieces)
        self._start = narrow(start_offsets(np.array([len(piece) for piece in pieces], dtype=np.int64)))

    def __len__(self) -> int:
        return self._start.size - 1

    def _entry(self, number: int) -> str:
        """Return a name."""
        return self._data[self._start[number] : self._start[number + 1]].decode("utf-8", "surrogatepass")


class RepeatedRecords(_CompactSequence[T]):
    """Records with many repetitions: each distinct record is stored once, with an index array.

    Attributes
    ----------
    distinct : list
        The distinct records, in the order of their first occurrence.
    record_index : ndarray of int32 or int64, shape (entries,)
        The position in ``distinct`` of each entry's record.

    Examples
    --------
    >>> found = RepeatedRecords.of(["x", "y", "x"])
    >>> found.distinct, found[2], found == ("x", "y", "x")
    (['x', 'y'], 'x', True)
    """

    def __init__(self, distinct: list[T], record_index: Any) -> None:
        self.distinct, self.record_index = distinct, narrow(record_index)

    @classmethod
    def of(cls, records: Iterable[T]) -> "RepeatedRecords[T]":
        """Build the sequence from hashable records."""
        index_of: dict[T, int] = {}
        indices = array("q", (index_of.setdefault(record, len(index_of)) for record in records))
        return cls(list(index_of), indices)

    def __len__(self) -> int:
        return self.record_index.size

    def _entry(self, number: int) -> T:
        """Return the record at an index."""
        index: int = self.record_index[number]
        return self.distinct[index]

    def __iter__(self) -> Iterator[T]:
        return (self.distinct[index] for index in self.record_index)


class LazySequence(_CompactSequence[T]):
    """A sequence whose entries are computed on access, with explicit overrides for some of them.

    Parameters
    ----------
    count : int
        Length of the sequence.
    make : callable
        Computes the entry at an index.
    overrides : mapping from int to entry
        Entries that are stored instead of computed, by index.
    """

    def __init__(self, count: int, make: Callable[[int], T], overrides: Mapping[int, T]) -> None:
        self._count, self.make, self.overrides = count, make, overrides

    def __len__(self) -> int:
        return self._count

    def _entry(self, number: int) -> T:
        """Return the override at an index, or compute the entry."""
        override = self.overrides.get(number)
        return self.make(number) if override is None else override

    def with_entries(self, entries: Mapping[int, T]) -> "LazySequence[T]":
        """Return a sequence in which some entries are replaced."""
        return LazySequence(self._count, self.make, {**self.overrides, **entries})


def flatten_groups(groups: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return the offsets of the groups and the integers of all groups, as int64 arrays."""
    if isinstance(groups, IndexGroups):
        return groups.start.astype(np.int64), groups.flat.astype(np.int64)
    start = start_offsets(np.fromiter(map(len, groups), dtype=np.int64, count=len(groups)))
    return start, np.fromiter(chain.from_iterable(groups), dtype=np.int64, count=int(start[-1]))
