"""The ranks that work on the rows of one agent together, as a local solver sees them."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from dmcmc.inference.runtime.types import Array

RankArrays = Sequence[Array]


class RankTeam(Protocol):
    """The ranks that make one agent's table: first the rank that owns the agent, then ranks that own no agent."""

    @property
    def rank(self) -> int:
        """The number of this rank in the team; rank 0 keeps the table."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    @property
    def private(self) -> bool:
        """Whether the agent's utilities must not be sent between the ranks, even if all of them know the utilities."""
        ...

    def allgather(self, work: Callable[[], RankArrays]) -> list[RankArrays]:
        """Return the arrays that ``work`` makes on each rank, in the order of ranks; a collective call.

        Parameters
        ----------
        work : callable
            Returns this rank's arrays. It must not wait for other ranks; an exception on one rank is raised on all.
        """
        ...


class SingleRankTeam:
    """A team of one rank."""

    rank, size, private = 0, 1, False

    def allgather(self, work: Callable[[], RankArrays]) -> list[RankArrays]:
        """Return the arrays that ``work`` makes."""
        return [work()]


SINGLE_RANK = SingleRankTeam()


def broadcast_from_first(team: RankTeam, value: bool) -> bool:
    """Return the value that the first rank of a team passes; a collective call."""
    return bool(team.allgather(lambda: [np.array([value])])[0][0][0])


def rows_of_rank(rows: int, team: RankTeam, rank: int | None = None) -> tuple[int, int]:
    """Return the range of rows that a rank works on; ranges differ in size by at most one row.

    Parameters
    ----------
    rows : int
        Number of rows to divide.
    team : RankTeam
        The ranks.
    rank : int, optional
        Number of the rank in the team; this rank by default.

    Returns
    -------
    (int, int)
        The first row, and the row after the last.

    Examples
    --------
    >>> rows_of_rank(10, SINGLE_RANK)
    (0, 10)
    """
    number = team.rank if rank is None else rank
    return number * rows // team.size, (number + 1) * rows // team.size
