"""What is known of every variable's values: their probabilities, or the best that each allows."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import Output


class Marginals(Output, frozen=True, kw_only=True):
    """A table over each variable.

    Attributes
    ----------
    task
        ``mar``: probabilities, proportional to Σ exp(utility) over all assignments with a value. ``max-marginals``: the
        best objective of an assignment with it.
    status
        ``exact``; ``infeasible``: every assignment breaks a hard constraint.
    marginals
        By variable, by label; None for a value that no assignment can have (``max-marginals``). Empty if infeasible.
    ln, log10
        ln Z and its decimal logarithm (``mar``); None if infeasible.
    objective
        The best of all assignments (``max-marginals``); None if infeasible.
    time, planning
        Wall seconds after start-up, and what of them was needed once: new evidence would not need it again.
    variables, cliques, width, cells
        Of the problem and of the junction tree; entries of all cliques.
    tables
        ``dense``; ``incomplete``: only what is possible was listed, and cells are rows.
    """

    task: Literal["mar", "max-marginals"]
    status: Literal["exact", "infeasible"]
    marginals: Mapping[str, Mapping[Label, Number | None]]
    ln: float | None = None
    log10: float | None = None
    objective: Number | None = None
    time: float
    planning: float
    variables: int
    cliques: int
    width: int
    cells: int
    tables: Literal["dense", "incomplete"] = "dense"
    provenance: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """What the command line exits with: 3 when proven infeasible, else 0."""
        return 3 if self.status == "infeasible" else 0
