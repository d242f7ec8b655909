"""Sequences for what every rank knows of all agents: a few bytes an entry, Python objects only when they are asked for.

A tuple of tuples of numbers takes some 100 bytes an entry, a record of numbers some 500: too much on each of many ranks
for 10^5 agents.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Ints

T = TypeVar("T")

Places = NDArray[np.int32] | NDArray[np.int64]


def narrow(numbers: Any) -> Places:
    """Return whole numbers in 32 bits where they fit."""
    wide = np.asarray(numbers, dtype=np.int64)
    fits = not wide.size or (int(wide.min()) >= -(1 << 31) and int(wide.max()) < 1 << 31)
    return wide.astype(np.int32) if fits else wide


class _Compact(Sequence[T], Generic[T]):
    """A sequence whose entries are made one by one by ``_entry``."""

    def _entry(self, number: int) -> T:
        raise NotImplementedError

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[T]: ...
    def __getitem__(self, number: int | slice) -> T | Sequence[T]:
        if isinstance(number, slice):
            return [self._entry(one) for one in range(*number.indices(len(self)))]
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


def _equal(one: object, other: object) -> bool:
    return one == other


class Groups(_Compact[tuple[int, ...]]):
    """Groups of whole numbers, in two arrays.

    Attributes
    ----------
    start : (groups + 1,) int
        Group g is ``flat[start[g]:start[g + 1]]``.
    flat : int

    Examples
    --------
    >>> groups = Groups.of([(1, 2), (), (7,)])
    >>> groups[0], groups[-1], groups == ((1, 2), (), (7,))
    ((1, 2), (7,), True)
    """

    def __init__(self, start: Any, flat: Any) -> None:
        self.start, self.flat = narrow(start), narrow(flat)

    @classmethod
    def of(cls, groups: Iterable[Sequence[int]]) -> "Groups":
        """Return groups, each in its order."""
        lengths, flat = array("q"), array("q")
        for group in groups:
            lengths.append(len(group))
            flat.extend(group)
        return cls(starts_of(np.array(lengths, dtype=np.int64)), flat)

    @classmethod
    def by(cls, group: Any, count: int, members: Any = None) -> "Groups":
        """Return ``count`` groups by the group of each member; members are 0, 1, ... in their order if not given."""
        group = np.asarray(group, dtype=np.int64)
        order = np.argsort(group, kind="stable")
        start = starts_of(np.bincount(group, minlength=count))
        return cls(start, order if members is None else np.asarray(members)[order])

    def __len__(self) -> int:
        return self.start.size - 1

    def _entry(self, number: int) -> tuple[int, ...]:
        return tuple(self.flat[self.start[number] : self.start[number + 1]].tolist())

    @property
    def lengths(self) -> Ints:
        """How many numbers each group has."""
        return np.diff(self.start).astype(np.int64)


def starts_of(lengths: Ints) -> Ints:
    """Return where things of some lengths start, one after another, and where the last one ends."""
    start = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=start[1:])
    return start


class Names(_Compact[str]):
    """Names, as one piece of UTF-8.

    Examples
    --------
    >>> names = Names(["a1", "β", ""])
    >>> names[1], len(names), names == ("a1", "β", "")
    ('β', 3, True)
    """

    def __init__(self, names: Iterable[str]) -> None:
        pieces = [name.encode("utf-8", "surrogatepass") for name in names]
        self._data = b"".join(pieces)
        self._start = narrow(starts_of(np.array([len(piece) for piece in pieces], dtype=np.int64)))

    def __len__(self) -> int:
        return self._start.size - 1

    def _entry(self, number: int) -> str:
        return self._data[self._start[number] : self._start[number + 1]].decode("utf-8", "surrogatepass")


class Repeated(_Compact[T]):
    """Records many of which are equal: each different one once, and which one is where.

    Attributes
    ----------
    kinds : list
        In the order in which they first come.
    which : (entries,) int32

    Examples
    --------
    >>> found = Repeated.of(["x", "y", "x"])
    >>> found.kinds, found[2], found == ("x", "y", "x")
    (['x', 'y'], 'x', True)
    """

    def __init__(self, kinds: list[T], which: Any) -> None:
        self.kinds, self.which = kinds, narrow(which)

    @classmethod
    def of(cls, records: Iterable[T]) -> "Repeated[T]":
        """Return records, which have to be hashable."""
        number: dict[T, int] = {}
        which = array("q", (number.setdefault(record, len(number)) for record in records))
        return cls(list(number), which)

    def __len__(self) -> int:
        return self.which.size

    def _entry(self, number: int) -> T:
        kind: int = self.which[number]
        return self.kinds[kind]

    def __iter__(self) -> Iterator[T]:
        return (self.kinds[kind] for kind in self.which)


class Made(_Compact[T]):
    """Entries that are made when they are asked for, but for some that are kept.

    Parameters
    ----------
    make
        By number.
    kept
        By number, too.
    """

    def __init__(self, count: int, make: Callable[[int], T], kept: Mapping[int, T]) -> None:
        self._count, self.make, self.kept = count, make, kept

    def __len__(self) -> int:
        return self._count

    def _entry(self, number: int) -> T:
        found = self.kept.get(number)
        return self.make(number) if found is None else found

    def mapped(self, change: Callable[[T], T]) -> "Made[T]":
        """Return the same with each entry changed, those that are kept at once."""
        return Made(self._count, lambda number: change(self.make(number)), {k: change(v) for k, v in self.kept.items()})


def flat_of(groups: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return where groups start, and all their numbers, as 64-bit arrays."""
    if isinstance(groups, Groups):
        return groups.start.astype(np.int64), groups.flat.astype(np.int64)
    start = starts_of(np.fromiter(map(len, groups), dtype=np.int64, count=len(groups)))
    return start, np.fromiter(chain.from_iterable(groups), dtype=np.int64, count=int(start[-1]))
