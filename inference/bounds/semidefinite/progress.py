"""Which rows of an agent have squares of their own, and which have been bounded by a further variable's values."""

from dataclasses import dataclass, field

from dmcmc.inference.bounds.semidefinite.descent import Point

# Whether a GPU makes rows squares of their own in runs. They have been seen with NumPy's arrays and under Numba's
# simulator only: `python -m benchmarks.bounds.own_squares` is to show on a card what they bring, and that they hold.
IN_RUNS = False


def progress() -> "Progress":
    """Return what a lift begins with."""
    return Progress(failed=not IN_RUNS)


@dataclass
class Progress:
    """How far the squares of an agent's rows are.

    Attributes
    ----------
    done : set of int
        Rows that have had one of their own.
    points : dict of Point
        Where those ended that may still have a further variable fixed: vectors of hidden values, then the row's.
    split : set of int
        Rows that have been bounded by each value of a further variable.
    alone : dict of int
        Rows' bounds by their own squares.
    nodes : dict of dict
        Bounds of rows that still have a point, by the further variable's values.
    pace : dict of float
        By the steps of a schedule: seconds of a step of one case, as measured last.
    exact : bool or None
        Whether the device's certificates are the CPU's; None before that has been looked at.
    failed : bool
        Whether the device could not, or is not asked to: there are none then.
    """

    done: set[int] = field(default_factory=set)
    points: dict[int, Point] = field(default_factory=dict)
    split: set[int] = field(default_factory=set)
    alone: dict[int, int] = field(default_factory=dict)
    nodes: dict[int, dict[int, int]] = field(default_factory=dict)
    pace: dict[int, float] = field(default_factory=dict)
    exact: bool | None = None
    failed: bool = False

    def end(self, row: int) -> None:
        """Forget what would be needed to lower a row further."""
        for known in (self.points, self.alone, self.nodes):
            known.pop(row, None)

    def fail(self) -> None:
        """Give up."""
        self.failed = True
        for row in list(self.points):
            self.end(row)
