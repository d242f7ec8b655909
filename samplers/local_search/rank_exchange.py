"""Communication between MPI ranks that search together."""

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Values = NDArray[np.int64]


class Exchange(Protocol):
    """Collective exchange of values between ranks; all ranks must make the same calls."""

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    def all(self, value: T) -> list[T]:
        """Gather the values of all ranks, in rank order, on every rank."""
        ...


class SingleProcess:
    """The exchange of a run with one process."""

    rank = 0
    size = 1

    def all(self, value: T) -> list[T]:
        """Return a list of the one value."""
        return [value]


SINGLE_PROCESS = SingleProcess()


def from_first_rank(exchange: Exchange, numbers: Values) -> Values:
    """Return the numbers of the first rank, on every rank."""
    if exchange.size == 1:
        return numbers
    return exchange.all(numbers if exchange.rank == 0 else numbers[:0])[0]


def first_rank_says(exchange: Exchange, over: bool) -> bool:
    """Return the first rank's decision to stop, on every rank."""
    return bool(from_first_rank(exchange, np.array([over], dtype=np.int64))[0])
