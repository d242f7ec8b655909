"""What is known of all assignments together: a partition function, or a count."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import Output


class Sums(Output, frozen=True, kw_only=True):
    """A number about all assignments.

    Attributes
    ----------
    task
        ``pr``: Z = Σ exp(utility) over all assignments; ``count``: how many break no hard constraint.
    status
        ``exact``; ``bound``: the number is no larger; ``infeasible``: it is 0, every assignment breaks a constraint.
    value
        The number: an exact integer, or a float; None where no float is large enough.
    ln, log10
        Its logarithms; None for those of 0.
    time
        Wall seconds after start-up.
    variables, width, cells
        Of the problem, and induced width and joined cells of the elimination.
    z
        Limit of the mini-buckets of a bound.
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
        """What the command line exits with: 3 when proven infeasible, else 0."""
        return 3 if self.status == "infeasible" else 0
