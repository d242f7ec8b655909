"""The limit on the work of presolve, in estimated seconds that are equal on all ranks."""

from dataclasses import dataclass

from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline

_SECONDS_PER_TABLE = 4e-5  # of one operation on a table, without its cells (measured)
_SECONDS_PER_CELL = 8e-9  # of one operation on a table, per cell (measured)


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
        self.spent += _SECONDS_PER_TABLE * tables + _SECONDS_PER_CELL * cells

    @property
    def over(self) -> bool:
        """Whether the limit is reached."""
        return self.spent >= self.seconds or self.stop.over
