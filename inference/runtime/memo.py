"""Caches of derived results in this process, such as plans of problems of the same shape.

A key contains everything that the result depends on.
"""

import hashlib
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.tuning import MAX_CACHED_PLANS, MAX_CACHED_SHAPES, MAX_KEY_SIZE

T = TypeVar("T")

_MEMOS: "weakref.WeakSet[Memo[Any]]" = weakref.WeakSet()  # the caches of this process


def is_short_key(numbers: int) -> bool:
    """Return whether a key of this many numbers is short enough for a cache.

    Parameters
    ----------
    numbers : int
        The number of numbers in the key. Larger problems take longer to plan than a cache saves.
    """
    return numbers <= MAX_KEY_SIZE


def digest(*arrays: NDArray[Any]) -> bytes:
    """Return a digest of arrays; lists of arrays that differ in sizes or contents have different digests."""
    hasher = hashlib.blake2b(digest_size=16)
    for array in arrays:
        hasher.update(np.int64(array.size).tobytes())
        hasher.update(np.ascontiguousarray(array).data)
    return hasher.digest()


class Memo(Generic[T]):
    """A thread-safe cache with a limited number of results; the oldest result is dropped first.

    :func:`clear_memos` drops the results of all caches of this process.

    Parameters
    ----------
    limit : int
        The maximum number of results; by default more than the agents of most problems, each of which may have its own
        structure.
    """

    def __init__(self, limit: int = MAX_CACHED_PLANS) -> None:
        self._limit, self._results = limit, dict[Hashable, T]()
        _MEMOS.add(self)

    @classmethod
    def for_shapes(cls) -> Self:
        """Return a cache of results for whole problems of one shape, which are larger than those of an agent."""
        return cls(MAX_CACHED_SHAPES)

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result for a key; compute and store it if it is missing."""
        result = self._results.get(key)
        if result is None:
            result = compute()
            self.put(key, result)
        return result

    def find(self, key: Hashable) -> T | None:
        """Return the result for a key, or None if it is missing."""
        return self._results.get(key)

    def put(self, key: Hashable, value: T) -> None:
        """Store a result."""
        while len(self._results) >= self._limit:
            try:
                self._results.pop(next(iter(self._results)), None)
            except (StopIteration, RuntimeError):  # another thread changed the cache
                break
        self._results[key] = value

    def clear(self) -> None:
        """Drop all results."""
        self._results.clear()


def clear_memos() -> None:
    """Drop the results of all caches of this process, so that it plans every problem anew."""
    for memo in list(_MEMOS):
        memo.clear()


class DerivedFacts(Memo[Any]):
    """A cache of facts derived from one object, or from all objects of one shape; the oldest facts are dropped first.

    Pickled copies for other processes are empty.
    """

    def __init__(self) -> None:  # not one of the caches of the process: there is one per object
        self._limit, self._results = MAX_CACHED_SHAPES, {}

    def get_or_compute(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the fact for a key; compute and store it if it is missing."""
        fact: T | None = self._results.get(key)
        if fact is None:
            fact = compute()
            self.put(key, fact)
        return fact

    def __reduce__(self) -> tuple[type["DerivedFacts"], tuple[()]]:
        return DerivedFacts, ()
