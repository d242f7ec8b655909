"""What has been worked out before in this process, by all that it depends on: plans of problems of the same shape."""

import hashlib
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_FACTS = 64  # of one thing
LARGEST = 1 << 12  # numbers that a key is of at most: what is larger takes longer to plan than to be worth keeping


def digest(*arrays: NDArray[Any]) -> bytes:
    """Return a few bytes that stand for the contents of arrays: of two lists of arrays that differ, they do."""
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(np.int64(array.size).tobytes())
        found.update(np.ascontiguousarray(array).data)
    return found.digest()


class Memo(Generic[T]):
    """Results by their keys; when there are too many, the oldest go. For any number of threads.

    Parameters
    ----------
    most
        How many are kept.
    """

    def __init__(self, most: int = 512) -> None:
        self._most, self._known = most, dict[Hashable, T]()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is known of a key; else make it."""
        found = self._known.get(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def find(self, key: Hashable) -> T | None:
        """Return what is known of a key, or None."""
        return self._known.get(key)

    def put(self, key: Hashable, value: T) -> None:
        """Keep a result."""
        while len(self._known) >= self._most:
            try:
                self._known.pop(next(iter(self._known)), None)
            except (StopIteration, RuntimeError):  # another thread was sooner
                break
        self._known[key] = value

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()


class Known:
    """What has been worked out of one thing, or of all things of one shape; when it is much, the oldest goes.

    Copies for other processes know nothing.
    """

    def __init__(self) -> None:
        self._found = Memo[Any](_FACTS)

    def once(self, what: Hashable, make: Callable[[], T]) -> T:
        """Return what is known of something; else make it."""
        found: T = self._found.get(what, make)
        return found

    def find(self, what: Hashable) -> Any:
        """Return what is known of something, or None."""
        return self._found.find(what)

    def put(self, what: Hashable, found: object) -> None:
        """Keep what has been worked out."""
        self._found.put(what, found)

    def __reduce__(self) -> tuple[type["Known"], tuple[()]]:
        return Known, ()
