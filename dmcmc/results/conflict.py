"""The result of the task ``conflict``: constraints that cannot hold together, and what relaxing one of them brings."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import Output


class RelaxedConstraint(msgspec.Struct, frozen=True, kw_only=True):
    """The objective of a problem in which one constraint of a conflict forbids nothing.

    Attributes
    ----------
    constraint : str
        The name of the constraint.
    objective : int, float or None
        The best objective that was found without it; None if nothing was found.
    status : str
        ``status`` of that run: with ``infeasible`` other constraints are in conflict, too.
    """

    constraint: str
    objective: Number | None
    status: str


class ConstraintConflict(Output, frozen=True, kw_only=True):
    """Hard constraints that cannot hold together.

    Attributes
    ----------
    status : str
        ``infeasible``: the constraints are a conflict, proven. ``feasible``: an assignment breaks no hard constraint.
        ``unknown``: neither was found out in time.
    constraints : tuple of str
        The names of the constraints; empty if there is no known conflict.
    minimal : bool
        Whether the constraints without any one of them can hold together; False also if a test took too long.
    relaxations : tuple of RelaxedConstraint
        For each constraint what relaxing it alone brings.
    time : float
        Wall-clock seconds.
    provenance : dict
        Configuration, versions and hardware of the run.
    """

    status: Literal["infeasible", "feasible", "unknown"]
    constraints: tuple[str, ...] = ()
    minimal: bool = False
    relaxations: tuple[RelaxedConstraint, ...] = ()
    time: float
    provenance: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 3 if proven infeasible, 1 if unknown, otherwise 0."""
        return {"infeasible": 3, "unknown": 1}.get(self.status, 0)
