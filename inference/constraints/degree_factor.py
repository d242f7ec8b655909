"""Factors whose utility follows from a degree of violation, without a table."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor, SumBounds, automaton_of_sum
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.python_number import cost_per_unit
from dmcmc.inference.model.sparse_factor import check_expansion
from dmcmc.inference.model.tables import forbidden_value, normalise
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES, MIN_COMPRESSION, SMALL_TABLE_ENTRIES


class DegreeFactor(Factor):
    """A factor given by a degree of violation, which is a whole number; 0 means that the constraint holds.

    A hard constraint forbids assignments with a positive degree; a soft one costs ``cost`` per unit. Its methods return
    utilities of degrees, and tables or automata that add degrees.

    Attributes
    ----------
    scope : tuple of int
        Variable indices without repetition.
    cost : int, float or None
        Cost per unit of violation; None for a hard constraint.
    name : str
        Name of the constraint, used in messages and files.
    kind : str
        Name of the class of constraints, in files and in ``Problem.build()``.
    """

    kind: ClassVar[str]
    cost: int | float | None

    def __init__(
        self,
        scope: Sequence[int],
        shape: Sequence[int],
        parameters: Mapping[str, Any],
        cost: int | float | None = None,
        name: str = "",
    ) -> None:
        cost = cost_per_unit(cost, f"constraint {name or self.kind}")
        given = {"scope": tuple(scope), "_shape": tuple(shape), "cost": cost, "name": name, **parameters}
        for field, value in given.items():
            object.__setattr__(self, field, value)

    def degree(self, values: Sequence[int]) -> int:
        """Return the degree of violation of one combination of values; 0 means that the constraint holds.

        Parameters
        ----------
        values : sequence of int
            One value index for each variable of the scope.
        """
        raise NotImplementedError

    @property
    def is_tabular(self) -> bool:
        """Whether the factor is given by a table, tuples or an automaton: False."""
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        """The domain sizes of the scope."""
        shape: tuple[int, ...] = self._shape  # type: ignore[attr-defined]
        return shape

    @property
    def table(self) -> Array:
        """The dense table of all entries; raises ResourceError if it is too large."""
        check_expansion(self, MAX_ENUMERATED_ENTRIES)
        degrees = np.array([self.degree(values) for values in product(*map(range, self.shape))], dtype=np.int64)
        return normalise(self.utilities(degrees).reshape(self.shape))

    def utilities(self, degrees: NDArray[np.int64]) -> Array:
        """Return the utilities of degrees of violation."""
        if self.cost is None:
            return np.where(degrees > 0, forbidden_value(np.dtype(np.int64)), np.zeros_like(degrees))
        if isinstance(self.cost, int) and self.cost * int(degrees.max(initial=0)) > np.iinfo(np.int64).max:
            raise ProblemError(f"constraint {self.name or self.kind}: its costs need more than 63 bits")
        return -self.cost * degrees

    def entry(self, values: Sequence[int]) -> int | float | None:
        """Return the utility of one combination of values, or None if it is forbidden."""
        degree = self.degree(values)
        if not degree:
            return 0
        return None if self.cost is None else -self.cost * degree

    def violation(self, values: Sequence[int]) -> int:
        """Return the degree of violation of a hard constraint; 0 for a soft one, which is never violated."""
        return self.degree(values) if self.cost is None else 0

    def forbidden_entries(self) -> int:
        """Return the number of forbidden entries of the expanded table, or 1 if the table is too large to count."""
        if self.cost is not None:
            return 0
        if prod(self.shape) > MAX_ENUMERATED_ENTRIES // MIN_COMPRESSION:
            return 1
        return sum(1 for values in product(*map(range, self.shape)) if self.degree(values))

    def __repr__(self) -> str:
        cost = "hard" if self.cost is None else f"cost={self.cost}"
        return f"{type(self).__name__}(scope={self.scope}, {cost}, name={self.name!r})"

    def table_part(self, positions: Sequence[int], degrees: NDArray[np.int64]) -> Factor:
        """Return a table over some positions of the scope, given the degrees of violation that it adds."""
        return Factor(tuple(self.scope[i] for i in positions), normalise(self.utilities(degrees)), self.name)

    def sum_part(
        self, positions: Sequence[int], weights: Sequence[NDArray[np.int64]], penalty: NDArray[np.int64]
    ) -> Factor | None:
        """Return a part of the decomposition that is a function of a sum of weights; None if it is always 0.

        Parameters
        ----------
        positions : sequence of int
            Positions in the scope, with a weight for each value of each variable.
        weights : sequence of ndarray of int64, shape (values,)
            The weights, at least 0.
        penalty : ndarray of int64, shape (sums,)
            The degree that each sum adds.
        """
        varying = [i for i, w in enumerate(weights) if w.min() != w.max()]
        offset = sum(int(w[0]) for i, w in enumerate(weights) if i not in set(varying))
        largest = offset + sum(int(weights[i].max()) for i in varying)
        least = offset + sum(int(weights[i].min()) for i in varying)
        if not penalty[least : largest + 1].any():
            return None
        scope = [self.scope[positions[i]] for i in varying]
        utilities = self.utilities(penalty[offset : largest + 1])
        if not varying:
            return Factor((), normalise(utilities[0]), self.name)
        factor = automaton_of_sum(scope, [weights[i] for i in varying], utilities, self.name)
        if prod(factor.shape) <= SMALL_TABLE_ENTRIES:
            return Factor(factor.scope, factor.table, self.name)
        bounds = self._sum_bounds([weights[i] for i in varying], penalty[offset : largest + 1])
        return AutomatonFactor(factor.scope, factor.layers, self.name, bounds)

    def _sum_bounds(self, weights: Sequence[NDArray[np.int64]], penalty: NDArray[np.int64]) -> SumBounds | None:
        """Return the linear constraint of a hard part; None if it is soft or allows sums that are no interval."""
        allowed = np.flatnonzero(penalty == 0)
        if self.cost is not None or not allowed.size or allowed.size != allowed[-1] - allowed[0] + 1:
            return None
        low = int(allowed[0]) or None
        return SumBounds(tuple(weights), low, int(allowed[-1]) if allowed[-1] < penalty.size - 1 else None)
