"""Describe global constraints by plain numbers, as an engine in another process takes them.

Constraints that the engine knows have a description by their parameters. All others that are functions of loads of
cells (``dmcmc.inference.constraints.cell_loads``) are described as such.
"""

from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.constraints.cell_loads import CellLoads
from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.constraints.no_overlap import NoOverlapConstraint
from dmcmc.inference.model.factor import Factor

# Kinds that are described by their parameters, if hard, and if soft.
_HARD_KINDS = ("no_overlap", "cumulative", "adjacency", "place_changes", "precedence", "element")
_SOFT_KINDS = ("adjacency", "place_changes", "precedence", "element")


class ConstraintCosts(NamedTuple):
    """A global constraint with its cost per unit of violation.

    Attributes
    ----------
    constraint : GlobalConstraint
        The constraint.
    cost : int or None
        The cost; None for a hard constraint.
    by_loads : bool
        Whether it is described by the loads of cells even if it could be by its parameters.
    """

    constraint: GlobalConstraint
    cost: int | None
    by_loads: bool = False

    def described(self) -> dict[str, Any]:
        """Return the constraint as numbers and lists: ``kind``, ``scope``, ``cost`` and the parameters."""
        constraint = self.constraint
        kinds = _HARD_KINDS if self.cost is None else _SOFT_KINDS
        common = {"scope": list(constraint.scope), "cost": self.cost}
        by_parameters = isinstance(constraint, NoOverlapConstraint) and _has_few_pairs(constraint)
        if not self.by_loads and (constraint.kind in kinds or by_parameters):
            return {"kind": constraint.kind, **common, **_plain(constraint.parameters())}
        loads = constraint.cell_loads()
        assert loads is not None
        codes = _plain({name: c for name, c in constraint.parameters().items() if name == "codes"})
        return {"kind": "loads", **common, **codes, **_plain(_used_loads(loads))}


def _has_few_pairs(constraint: NoOverlapConstraint) -> bool:
    """Return whether a soft no-overlap constraint in one place has fewer pairs of intervals than cells of time."""
    n = constraint.intervals
    return constraint.places is None and n * (n - 1) // 2 <= constraint.loads.cells


def is_native(factor: Factor) -> bool:
    """Return whether a factor is a global constraint that can be described."""
    if not isinstance(factor, GlobalConstraint):
        return False
    kinds = _HARD_KINDS if factor.cost is None else _SOFT_KINDS
    return factor.kind in kinds or factor.cell_loads() is not None


def _used_loads(loads: CellLoads) -> dict[str, Any]:
    """Return the parameters of loads, with the penalties up to the largest load that occurs."""
    largest = sum(item.weight for item in loads.items)
    return {
        "items": [item._asdict() for item in loads.items],
        "width": loads.width,
        "penalty": loads.penalty if loads.counts_runs else loads.penalty[: largest + 1],
        "counts_runs": loads.counts_runs,
    }


def _plain(value: Any) -> Any:
    """Return nested parameters with lists in place of arrays and tuples."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
