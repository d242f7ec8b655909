"""The precedence constraint: one variable is at least another one plus a distance."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import Domains, GlobalConstraint, int_arrays
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.python_number import whole_number
from dmcmc.inference.runtime.errors import ProblemError


class PrecedenceConstraint(GlobalConstraint):
    """number of the first variable + ``distance`` ≤ number of the second variable.

    The degree of violation is the difference of the two sides.

    Attributes
    ----------
    numbers : tuple of two ndarray of int64, shape (values,)
        For both variables, the number (for instance the time) of each value.
    distance : int
        The least difference; it may be negative.
    """

    kind = "precedence"
    summary = "one variable is at least another one plus a distance"
    numbers: tuple[NDArray[np.int64], ...]
    distance: int

    @classmethod
    def from_parameters(
        cls, scope: Sequence[int], shape: Sequence[int], cost: int | float | None, name: str, given: Mapping[str, Any]
    ) -> Self:
        """Return a constraint from the form that ``parameters`` returns."""
        what = f"constraint {name or cls.kind}"
        if len(scope) != 2:
            raise ProblemError(f"{what}: needs two variables, not {len(scope)}")
        numbers = int_arrays(given["numbers"], shape, what)
        distance = whole_number(given["distance"], f"{what}: the distance")
        return cls(scope, shape, {"numbers": numbers, "distance": distance}, cost, name)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {"numbers": list(self.numbers), "distance": self.distance}

    def degree(self, values: Sequence[int]) -> int:
        """Return the degree of violation of one pair of values."""
        first, second = (int(numbers[value]) for numbers, value in zip(self.numbers, values, strict=True))
        return max(0, first + self.distance - second)

    def with_values(self, remaining: Sequence[NDArray[np.int64]]) -> Self:
        """Return the constraint over some values of its variables."""
        numbers = tuple(n[values] for n, values in zip(self.numbers, remaining, strict=True))
        given = {"numbers": numbers, "distance": self.distance}
        return type(self)(self.scope, [len(values) for values in remaining], given, self.cost, self.name)

    def propagate(self, domains: Domains) -> Domains | None:
        """Remove all unsupported values: first values that are too late, second values that are too early."""
        if not all(domain.any() for domain in domains):
            return None
        first, second = self.numbers
        kept = (
            domains[0] & (first + self.distance <= second[domains[1]].max()),
            domains[1] & (second >= first[domains[0]].min() + self.distance),
        )
        return kept if all(domain.any() for domain in kept) else None

    def parts(self) -> list[Factor]:
        """Return the table of both variables."""
        first, second = self.numbers
        degrees = np.maximum(0, first[:, None] + self.distance - second)
        return [self.table_part((0, 1), degrees)] if degrees.any() else []
