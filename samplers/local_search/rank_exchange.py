"""What crosses between ranks that search together."""

from typing import Protocol, TypeVar

T = TypeVar("T")


class Exchange(Protocol):
    """Hands values between ranks. All ranks call it equally often."""

    @property
    def rank(self) -> int:
        """Which of the ranks this is."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    def all(self, mine: T) -> list[T]:
        """Return what each rank has given, in the order of ranks."""
        ...


class Alone:
    """A single process."""

    rank = 0
    size = 1

    def all(self, mine: T) -> list[T]:
        """Return what was given."""
        return [mine]


ALONE = Alone()
