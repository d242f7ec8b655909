"""The idle-slot constraint: a slot of time is not free between intervals before and after it."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.cell_loads import CellItem, CellLoads
from dmcmc.inference.constraints.global_constraint import LoadConstraint, int_arrays
from dmcmc.inference.model.automaton import AutomatonFactor, Layer
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array

BEFORE, TAKEN, AFTER = 0, 1, 2
"""The sides of a slot on which an interval can be; −1 is for an interval that does not count."""
_BIT = np.array([1, 4, 2, 0], dtype=np.int64)  # of a side in the set of sides; the last is for −1


class IdleSlotConstraint(LoadConstraint):
    """If an interval is before a slot and another one after it, some interval takes the slot.

    The degree of violation is 1 if the slot is idle: free between intervals. The sum of these constraints over the
    slots of a day counts the free slots between the first and the last interval.

    Attributes
    ----------
    sides : tuple of ndarray of int64, shape (values,)
        For each variable, the side of the slot on which each of its values is: :data:`BEFORE`, :data:`TAKEN` or
        :data:`AFTER`; −1 for values that do not count.
    """

    kind = "idle_slot"
    summary = "a slot is not free between intervals before and after it"
    sides: tuple[NDArray[np.int64], ...]

    @classmethod
    def from_parameters(
        cls, scope: Sequence[int], shape: Sequence[int], cost: int | float | None, name: str, given: Mapping[str, Any]
    ) -> Self:
        """Return a constraint from the form that ``parameters`` returns."""
        what = f"constraint {name or cls.kind}"
        sides = int_arrays(given["sides"], shape, what)
        if any(side.size and (side.min() < -1 or side.max() > AFTER) for side in sides):
            raise ProblemError(f"{what}: a side is a number from -1 to {AFTER}")
        return cls(scope, shape, {"sides": sides}, cost, name)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {"sides": list(self.sides)}

    @cached_property
    def loads(self) -> CellLoads:
        """One cell per side; there are two runs of cells if the slot is idle."""
        items = (CellItem.of_cells((i,), side, 1) for i, side in enumerate(self.sides))
        penalty = np.array([0, 0, 1], dtype=np.int64)
        return CellLoads(tuple(items), np.ones(3, dtype=np.int64), penalty, counts_runs=True)

    def with_values(self, remaining: Sequence[NDArray[np.int64]]) -> Self:
        """Return the constraint over some values of its variables."""
        sides = tuple(side[values] for side, values in zip(self.sides, remaining, strict=True))
        return type(self)(self.scope, [side.size for side in sides], {"sides": sides}, self.cost, self.name)

    @property
    def table(self) -> Array:
        """The dense table of all entries."""
        parts = self.parts()
        return parts[0].table if parts else np.zeros(self.shape, dtype=np.int32)

    def parts(self) -> list[Factor]:
        """Return an automaton whose state is the set of sides so far; all sets with a taken slot are one state."""
        layers: list[Layer] = []
        states = sets = np.zeros(1, dtype=np.int64)
        for side in self.sides:
            sets = states[:, None] | _BIT[side]
            sets = np.where(sets & _BIT[TAKEN], _BIT[TAKEN], sets)
            states = np.unique(sets)
            following = np.searchsorted(states, sets).astype(np.int32)
            layers.append(Layer(following, normalise(np.zeros(sets.shape, dtype=np.int64))))
        idle = (sets == _BIT[BEFORE] | _BIT[AFTER]).astype(np.int64)
        if not idle.any():
            return []
        layers[-1] = Layer(np.zeros(sets.shape, dtype=np.int32), normalise(self.utilities(idle)))
        return [AutomatonFactor(self.scope, layers, self.name)]
