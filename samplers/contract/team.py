"""What a local solver sees of the ranks that work on the rows of one agent together."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from dmcmc.inference.runtime.types import Array

Parts = Sequence[Array]


class Team(Protocol):
    """The ranks that make one agent's table: its own, which is the first, and those that own no agent."""

    @property
    def rank(self) -> int:
        """Which of them this is; 0 keeps the table."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    @property
    def private(self) -> bool:
        """Whether the agent's utilities must not cross between them, even if all of them know these."""
        ...

    def together(self, work: Callable[[], Parts]) -> list[Parts]:
        """Return what each rank's work makes, in the order of ranks; all call it equally often.

        The work must not wait for others; what it raises on one of them is raised on all.
        """
        ...


class Alone:
    """A single rank."""

    rank, size, private = 0, 1, False

    def together(self, work: Callable[[], Parts]) -> list[Parts]:
        """Return what the work makes."""
        return [work()]


ALONE = Alone()


def said_by_first(team: Team, word: bool) -> bool:
    """Return what the first of a team's ranks says; called by all of them."""
    return bool(team.together(lambda: [np.array([word])])[0][0][0])


def share_of(rows: int, team: Team, rank: int | None = None) -> tuple[int, int]:
    """Return the first row of a rank's share, and the one after its last; the shares differ by one row at most.

    Examples
    --------
    >>> share_of(10, ALONE)
    (0, 10)
    """
    own = team.rank if rank is None else rank
    return own * rows // team.size, (own + 1) * rows // team.size
