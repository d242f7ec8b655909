"""The limit on the work of presolve, in estimated seconds that are equal on all ranks."""

from dataclasses import dataclass

from dmcmc.inference.presolve.tuning import SECONDS_PER_TABLE, SECONDS_PER_TABLE_CELL
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline


@dataclass
class PresolveLimit:
    """A limit on the work of presolve; when it is reached, presolve ends with the result so far.

    Attributes
    ----------
    seconds : float
        Limit on the estimated time. It is computed from the work done, not measured: equal on all ranks.
    stop : Deadline
        An additional deadline.
    spent : float
        Estimated seconds so far.
    """

    seconds: float = float("inf")
    stop: Deadline = NO_DEADLINE
    spent: float = 0.0

    def charge(self, tables: int, cells: int) -> None:
        """Add the estimated time of operations on some tables.

        Parameters
        ----------
        tables
            The number of operations on tables.
        cells
            The number of cells of these tables in total.
        """
        self.spent += SECONDS_PER_TABLE * tables + SECONDS_PER_TABLE_CELL * cells

    @property
    def over(self) -> bool:
        """Whether the limit is reached."""
        return self.spent >= self.seconds or self.stop.over
