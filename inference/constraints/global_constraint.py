"""The base class of global constraints: factors whose utility follows from a degree of violation.

A constraint states its scope and parameters. It is evaluated without a table. What works on tables reads its
decomposition into small tables and automata, or its relaxation where the decomposition is too large.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.cell_loads import CellLoads
from dmcmc.inference.constraints.degree_factor import DegreeFactor
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.python_number import whole_numbers
from dmcmc.inference.model.tables import forbidden_value, normalise
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import SMALL_TABLE_ENTRIES

Domains = Sequence[NDArray[np.bool_]]
"""For each variable of a scope, whether each of its values remains."""
MAX_DEGREE = 2**62  # degrees of violation are below it, so that their sums and differences fit 64 bits


class GlobalConstraint(DegreeFactor):
    """A constraint with parameters, which files store, and a decomposition into tables and automata.

    Subclasses define the degree of violation, the parameters and the decomposition. The attributes are those of
    :class:`DegreeFactor`, and:

    Attributes
    ----------
    summary : str
        One line that describes the class.
    """

    summary: ClassVar[str]

    @classmethod
    def from_parameters(
        cls, scope: Sequence[int], shape: Sequence[int], cost: int | float | None, name: str, given: Mapping[str, Any]
    ) -> Self:
        """Return a constraint from the form that ``parameters`` returns, for instance read from a file.

        Raises
        ------
        ProblemError
            If a parameter is missing or does not fit the scope.
        """
        raise NotImplementedError

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as numbers, lists and arrays, by name, as files store them."""
        raise NotImplementedError

    def with_values(self, remaining: Sequence[NDArray[np.int64]]) -> Self:
        """Return the constraint over some values of its variables, numbered 0, 1, ... in the given order."""
        raise NotImplementedError

    def propagate(self, domains: Domains) -> Domains | None:
        """Remove values that no assignment within the domains uses without violating a hard constraint.

        Parameters
        ----------
        domains : sequence of ndarray of bool, shape (values,)
            For each variable of the scope, its remaining values.

        Returns
        -------
        sequence of ndarray of bool, or None
            The values that remain; None if no assignment satisfies the constraint. Not all removable values need to be
            removed. This default implementation examines the constraint if at most one variable is open.
        """
        open_positions = [i for i, domain in enumerate(domains) if np.count_nonzero(domain) != 1]
        if len(open_positions) > 1 or not all(domain.any() for domain in domains):
            return domains if all(domain.any() for domain in domains) else None
        values = [int(domain.argmax()) for domain in domains]
        if not open_positions:
            return None if self.degree(values) else domains
        (position,) = open_positions
        mask = domains[position].copy()
        for value in np.flatnonzero(mask).tolist():
            values[position] = value
            mask[value] = not self.degree(values)
        return [mask if i == position else domain for i, domain in enumerate(domains)] if mask.any() else None

    def cell_loads(self) -> CellLoads | None:
        """Return the degree as a function of loads of cells, for local search; None if it is no such function."""
        return None

    def parts(self) -> list[Factor] | None:
        """Return factors with tables or automata whose sum is this factor; None if they would be too large."""
        raise NotImplementedError

    def relaxed_parts(self) -> list[Factor]:
        """Return tables or automata whose sum is an upper bound of the utility; an empty list bounds it by 0."""
        return []

    @property
    def decomposition(self) -> tuple[Factor, ...] | None:
        """Factors with tables or automata whose sum is this factor; None if they would be too large."""
        return self._decomposition

    @property
    def relaxation(self) -> tuple[Factor, ...]:
        """The decomposition, or where it is too large, factors whose sum is an upper bound of the utility."""
        return self._relaxation

    @cached_property
    def _decomposition(self) -> tuple[Factor, ...] | None:
        """Factors with tables or automata whose sum is this factor; None if they would be too large."""
        if prod(self.shape) <= SMALL_TABLE_ENTRIES:
            return (Factor(self.scope, self.table, self.name),)
        try:
            parts = self.parts()
        except ResourceError:
            return None
        return None if parts is None else tuple(parts)

    @cached_property
    def _relaxation(self) -> tuple[Factor, ...]:
        """The decomposition, or where it is too large, factors whose sum is an upper bound of the utility."""
        parts = self.decomposition
        return tuple(self.relaxed_parts()) if parts is None else parts

    def decomposed(self) -> tuple[Factor, ...]:
        """Return factors with tables or automata whose sum is this factor.

        Raises
        ------
        ResourceError
            If the decomposition is too large.
        """
        if self.decomposition is None:
            raise ResourceError(
                f"constraint {self.name or self.kind}: has no small decomposition into tables, which this method needs"
            )
        return self.decomposition

    def restricted(self, remaining: Sequence[NDArray[np.int64]]) -> Self:
        """Return the constraint over some values of its variables, numbered 0, 1, ... in the given order."""
        return self.with_values(remaining)

    def arrays(self) -> tuple[Array, ...]:
        """Return the parameters as arrays, and the cost last (−∞ for a hard constraint)."""
        hard = np.array(forbidden_value(np.dtype(np.int32)), dtype=np.int32)
        cost = hard if self.cost is None else normalise(np.array(-self.cost))
        return (*_flat_arrays(self.parameters()), cost)

    def renamed(self, scope: Sequence[int], name: str) -> Self:
        """Return the constraint with another scope and another name."""
        return self.from_parameters(scope, self.shape, self.cost, name, self.parameters())


class LoadConstraint(GlobalConstraint):
    """A constraint whose degree is a function of the loads of cells (:mod:`dmcmc.inference.constraints.cell_loads`)."""

    @cached_property
    def loads(self) -> CellLoads:
        """The cells and what each combination of values adds to their loads."""
        raise NotImplementedError

    def cell_loads(self) -> CellLoads:
        """Return the degree as a function of loads of cells."""
        return self.loads

    def degree(self, values: Sequence[int]) -> int:
        """Return the degree of violation of one combination of values."""
        return self.loads.degree(values)


def _flat_arrays(value: Any) -> list[Array]:
    """Return the arrays and numbers of nested parameters as arrays of int64, in order."""
    if isinstance(value, Mapping):
        return [array for part in value.values() for array in _flat_arrays(part)]
    if isinstance(value, list | tuple):
        return [np.array([len(value)], dtype=np.int64), *(array for part in value for array in _flat_arrays(part))]
    return [np.zeros(0, dtype=np.int64) if value is None else np.asarray(value, dtype=np.int64)]


def int_arrays(values: Sequence[Any], shape: Sequence[int], what: str) -> tuple[NDArray[np.int64], ...]:
    """Return one read-only vector of integers per variable; raise ProblemError if their lengths are not ``shape``."""
    try:
        arrays = tuple([np.array(whole_numbers(v, what), dtype=np.int64) for v in values])
    except TypeError:
        raise ProblemError(f"{what}: whole numbers are needed for each value of each variable") from None
    if [array.size for array in arrays] != list(shape):
        raise ProblemError(f"{what}: one number is needed for each value of each variable")
    for array in arrays:
        array.flags.writeable = False
    return arrays


def check_degree(largest: int, what: str) -> None:
    """Raise ProblemError if degrees of violation, of which an upper bound is given, may not fit 64 bits."""
    if largest >= MAX_DEGREE:
        raise ProblemError(f"{what}: violations of up to {largest} need more than 62 bits; use a coarser unit")
