"""Global constraints: factors whose utility follows from a degree of violation, without a table.

A constraint states its scope and parameters. What works on tables reads its decomposition into small tables and
automata, or its relaxation where the decomposition is too large. Local search reads its degree as a function of loads:
a constraint has *cells*, for instance one per value, per time, or per place and time. Each *item* adds its weight to
the loads of a range of consecutive cells; the range depends on the values of one or two variables, for instance on a
start and its place. Cells have widths, for instance in units of time. A move changes the degree by the cells of the
moved items only.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor, SumBounds, automaton_of_sum
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.names import cost_per_unit, whole_numbers
from dmcmc.inference.model.sparse_factor import check_expansion
from dmcmc.inference.model.tables import forbidden_value, normalise
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
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
        given["_parameters"] = dict(parameters)
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


class CellItem(NamedTuple):
    """An addition to the loads of a range of cells, which depends on one or two variables.

    Attributes
    ----------
    positions : tuple of int
        One or two positions in the constraint's scope, on whose values the range depends.
    first, end : ndarray of int32, shape (values,) or (values, values)
        First cell of the range, and the cell after its last one, for each combination of values; −1 and −1 if there is
        no range.
    weight : int
        The load that the item adds to each cell of the range, at least 1.
    """

    positions: tuple[int, ...]
    first: NDArray[np.int32]
    end: NDArray[np.int32]
    weight: int

    @classmethod
    def of_cells(cls, positions: tuple[int, ...], cells: NDArray[np.int64], weight: int) -> "CellItem":
        """Return an item that occupies one cell for each combination of values; −1 for none."""
        return cls(positions, cells.astype(np.int32), np.where(cells < 0, -1, cells + 1).astype(np.int32), weight)


class CellLoads(NamedTuple):
    """Cells, items, and the degree as a function of the loads.

    Attributes
    ----------
    items : tuple of CellItem
        The items.
    width : ndarray of int64, shape (cells,)
        How often each cell counts, for instance its units of time.
    penalty : ndarray of int64, shape (largest argument + 1,)
        The degree is Σ_cells ``width[cell] · penalty[load]``; with ``counts_runs`` it is ``penalty[number of runs]``.
    counts_runs : bool
        Whether the degree is a function of the number of maximal runs of consecutive cells with a positive load.
    """

    items: tuple[CellItem, ...]
    width: NDArray[np.int64]
    penalty: NDArray[np.int64]
    counts_runs: bool = False

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.width.size

    @property
    def largest_degree(self) -> int:
        """An upper bound on the degree, exact for large numbers."""
        return max(0, int(self.penalty.max())) * (1 if self.counts_runs else sum(self.width.tolist()))

    def degree(self, values: Sequence[int]) -> int:
        """Return the degree of violation of one combination of values of the constraint's scope."""
        change = np.zeros(self.cells + 1, dtype=np.int64)
        for item in self.items:
            chosen = tuple([values[i] for i in item.positions])
            change[item.first[chosen]] += item.weight
            change[item.end[chosen]] -= item.weight
        loads = np.cumsum(change[:-1])
        if self.counts_runs:
            occupied = loads > 0
            return int(self.penalty[np.count_nonzero(occupied[1:] & ~occupied[:-1]) + int(occupied[:1].any())])
        return int((self.width * self.penalty[loads]).sum())


def excess_penalty(capacity: int, largest: int, unit: int = 1) -> NDArray[np.int64]:
    """Return max(0, ``unit`` · load − ``capacity``) for the loads 0, ..., ``largest``."""
    return np.maximum(0, unit * np.arange(largest + 1, dtype=np.int64) - capacity)


class TimeCells(NamedTuple):
    """The times between consecutive starts and ends of intervals, so that each interval occupies whole cells.

    The number of cells does not depend on the unit of time.

    Attributes
    ----------
    width : ndarray of int64, shape (cells,)
        Duration of each cell; at least one cell.
    first, end : list of ndarray of int64, shape (values,)
        For each interval and value of its start, its first cell and the cell after its last one.
    """

    width: NDArray[np.int64]
    first: list[NDArray[np.int64]]
    end: list[NDArray[np.int64]]


def time_cells(starts: Sequence[NDArray[np.int64]], durations: Sequence[int]) -> TimeCells:
    """Return the cells of time of some intervals.

    Parameters
    ----------
    starts : sequence of ndarray of int64, shape (values,)
        For each interval, the time of each value of its start.
    durations : sequence of int
        The duration of each interval.
    """
    ends = [start + duration for start, duration in zip(starts, durations, strict=True)]
    times = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *starts, *ends]))
    width = np.diff(times) if times.size > 1 else np.ones(1, dtype=np.int64)
    return TimeCells(width, [np.searchsorted(times, s) for s in starts], [np.searchsorted(times, e) for e in ends])


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
    per_value : tuple of str
        The parameters that are tuples of one array per variable, with one entry per value. Their arrays, one parameter
        after the other, are in the order of the scope.
    """

    summary: ClassVar[str]
    per_value: ClassVar[tuple[str, ...]] = ()
    _parameters: Mapping[str, Any]

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
        return cls(scope, shape, cls.checked(given, shape, f"constraint {name or cls.kind}"), cost, name)

    @staticmethod
    def checked(given: Mapping[str, Any], shape: Sequence[int], what: str) -> dict[str, Any]:
        """Return the parameters of the constructor from the form that ``parameters`` returns.

        Parameters
        ----------
        given : mapping of str to object
            The parameters, for instance from a file.
        shape : sequence of int
            The domain sizes of the scope.
        what : str
            Names the constraint in errors.
        """
        raise NotImplementedError

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as numbers, lists and arrays, by name, as files store them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self._parameters.items()}

    def with_values(self, remaining: Sequence[NDArray[np.int64]]) -> Self:
        """Return the constraint over some values of its variables, numbered 0, 1, ... in the given order."""
        given, values = dict(self._parameters), iter(remaining)
        for name in self.per_value:
            if given[name] is not None:
                given[name] = tuple([array[next(values)] for array in given[name]])
        return type(self)(self.scope, [len(kept) for kept in remaining], given, self.cost, self.name)

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

    @cached_property
    def decomposition(self) -> tuple[Factor, ...] | None:
        """Factors with tables or automata whose sum is this factor; None if they would be too large."""
        if prod(self.shape) <= SMALL_TABLE_ENTRIES:
            return (Factor(self.scope, self.table, self.name),)
        try:
            parts = self.parts()
        except ResourceError:
            return None
        return None if parts is None else tuple(parts)

    @cached_property
    def relaxation(self) -> tuple[Factor, ...]:
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
    """A constraint whose degree is a function of the loads of cells."""

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
