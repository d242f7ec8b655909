"""What crosses between ranks that search together."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Exchange(Protocol):
    """Hands numbers between ranks. All ranks call it equally often."""

    @property
    def rank(self) -> int:
        """Which of the ranks this is."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    def all(self, mine: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return what each rank has given, in the order of ranks; the lengths may differ."""
        ...


class Alone:
    """A single process."""

    rank = 0
    size = 1

    def all(self, mine: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return what was given."""
        return [mine]


ALONE = Alone()
