"""Results of the tasks ``pr`` and ``count``: one number about all assignments."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import Output


class Sums(Output, frozen=True, kw_only=True):
    """A partition function, or the number of solutions.

    Attributes
    ----------
    task : str
        ``pr``: Z = Σ exp(utility) over all assignments. ``count``: the number of assignments that break no hard
        constraint.
    status : str
        ``exact``; ``bound``: the number is an upper bound; ``infeasible``: it is 0, since every assignment breaks a
        hard constraint.
    value : int, float or None
        The number: an exact integer, or a float; None if it is outside the range of floats.
    ln, log10 : float or None
        Its natural and decimal logarithm; None if it is 0.
    time : float
        Wall-clock seconds after start-up.
    variables, width, cells : int
        Number of variables, induced width and table cells of the elimination.
    z : int or None
        Largest number of variables of a mini-bucket's message, if the number is a bound.
    provenance : dict
        Configuration, versions and hardware of the run.
    """

    task: Literal["pr", "count"]
    status: Literal["exact", "bound", "infeasible"]
    value: Number | None
    ln: float | None
    log10: float | None
    time: float
    variables: int
    width: int
    cells: int
    z: int | None = None
    provenance: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 3 if proven infeasible, otherwise 0."""
        return 3 if self.status == "infeasible" else 0
