"""Results of the tasks ``mar`` and ``max-marginals``: one number for each value of each variable."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import Output


class ValueInterval(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on the best objective of an assignment with a value.

    Attributes
    ----------
    objective : int, float or None
        The best objective that was found with this value; None if no assignment was found.
    bound : int, float or None
        Proven: no assignment with this value is better. None without a bound, and for an impossible value.
    proven : bool
        Whether ``objective`` is the best one, or, if it is None, no allowed assignment has this value.
    """

    objective: Number | None
    bound: Number | None
    proven: bool


class Marginals(Output, frozen=True, kw_only=True):
    """Marginals or max-marginals of all variables.

    Attributes
    ----------
    task : str
        ``mar``: probabilities, proportional to Σ exp(utility) over all assignments with the value. ``max-marginals``:
        the best objective of an assignment with the value.
    status : str
        ``exact``; ``bounded`` if the time limit allowed only ``intervals`` (``max-marginals``); or ``infeasible`` if
        every assignment breaks a hard constraint.
    marginals : dict
        The number of each value, by variable name and label. With ``max-marginals``, None for a value that no allowed
        assignment has. Empty if infeasible or bounded.
    intervals : dict
        Bounds on the max-marginal of each value, by variable name and label, if ``status`` is ``bounded``.
    ln, log10 : float or None
        ln Z and its decimal logarithm (``mar``); None if infeasible.
    objective : int, float or None
        The best objective of all assignments (``max-marginals``), or of those found if bounded; None if infeasible.
    time, planning : float
        Wall-clock seconds after start-up, and the part of them for building the junction tree.
    variables, cliques, width, cells : int
        Number of variables and cliques, induced width, and entries of all cliques.
    tables : str
        ``dense``, or ``sparse`` if only allowed entries are stored; then ``cells`` counts these.
    provenance : dict
        Configuration, versions and hardware of the run.
    """

    task: Literal["mar", "max-marginals"]
    status: Literal["exact", "bounded", "infeasible"]
    marginals: Mapping[str, Mapping[Label, Number | None]]
    intervals: Mapping[str, Mapping[Label, ValueInterval]] = {}
    ln: float | None = None
    log10: float | None = None
    objective: Number | None = None
    time: float
    planning: float
    variables: int
    cliques: int
    width: int
    cells: int
    tables: Literal["dense", "sparse"] = "dense"
    provenance: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def only(self, variables: Iterable[str]) -> "Marginals":
        """Return the numbers of some variables, in the given order."""
        names = tuple(variables)
        return replace(
            self,
            marginals={name: self.marginals[name] for name in names if self.marginals},
            intervals={name: self.intervals[name] for name in names if self.intervals},
        )

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 3 if proven infeasible, otherwise 0."""
        return 3 if self.status == "infeasible" else 0
