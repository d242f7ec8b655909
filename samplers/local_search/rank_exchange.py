"""Communication between MPI ranks that search together."""

from typing import Protocol, TypeVar

T = TypeVar("T")


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
