"""The problem that presolve changes, and its limits.

The problem during presolve, which all steps change: remaining values of each variable, and tables over them.

The limit on the work of presolve, in estimated seconds that are equal on all ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden, forbidden_value, magnitude
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import SECONDS_PER_TABLE, SECONDS_PER_TABLE_CELL


@dataclass
class PresolveLimit:
    """A limit on the work of presolve; when it is reached, presolve ends with the result so far.

    Attributes
    ----------
    seconds : float
        Limit on the estimated time. It is computed from the work done, not measured: equal on all ranks.
    stop : Deadline
        An additional deadline.
    spent : float
        Estimated seconds so far.
    """

    seconds: float = float("inf")
    stop: Deadline = NO_DEADLINE
    spent: float = 0.0

    def charge(self, tables: int, cells: int) -> None:
        """Add the estimated time of operations on some tables.

        Parameters
        ----------
        tables
            The number of operations on tables.
        cells
            The number of cells of these tables in total.
        """
        self.spent += SECONDS_PER_TABLE * tables + SECONDS_PER_TABLE_CELL * cells

    @property
    def over(self) -> bool:
        """Whether the limit is reached."""
        return self.spent >= self.seconds or self.stop.over


Number = np.dtype[np.int64] | np.dtype[np.float64]

_MAX_INT_SUM = 2**62  # smaller sums of absolute integer utilities cannot overflow


@dataclass(frozen=True)
class EliminatedVariable:
    """How to restore the value of a variable that was maximised out.

    Attributes
    ----------
    variable : int
        The eliminated variable.
    scope : tuple of int
        The variables that determine its value.
    remaining : tuple of (values,) int64
        Their remaining values at that time, as value indices of the original problem.
    best : ndarray of int64
        The best value of the variable (as an index of the original problem), one axis per variable of ``scope``.
    """

    variable: int
    scope: tuple[int, ...]
    remaining: tuple[NDArray[np.int64], ...]
    best: NDArray[np.int64]

    def value(self, values: NDArray[np.int64]) -> int:
        """Return the best value, given the values of the scope as indices of the original problem."""
        index = [
            int(np.searchsorted(remaining, values[v])) for v, remaining in zip(self.scope, self.remaining, strict=True)
        ]
        return int(self.best[tuple(index)])


class Infeasible(Exception):
    """Every assignment is forbidden: a variable has no value left, or a constant is forbidden."""


@dataclass
class WorkingProblem:
    """Variables with their remaining values, and tables over these.

    Attributes
    ----------
    problem : Problem
        The original problem of dense tables.
    remaining : list of (values,) int64
        Each variable's remaining values, ascending, as indices of the original problem.
    limit : PresolveLimit
        Limit on the work of all steps together.
    tables : dict
        From scope (ascending) to utilities over the remaining values: float64, or int64 whose smallest number stands
        for −∞. The empty scope holds the constant.
    touching : list of dict
        The scopes of each variable's tables, in order of insertion (dict keys, as an ordered set).
    eliminated : list of EliminatedVariable
        Variables that were maximised out, first to last.
    consistency_pending : dict
        Scopes of tables that changed since arc consistency last read them (dict keys, as an ordered set).
    dominance_pending, elimination_pending : set of int
        Variables whose tables changed since the last check for dominance, and for elimination.
    """

    problem: Problem
    remaining: list[NDArray[np.int64]]
    limit: PresolveLimit
    tables: dict[tuple[int, ...], Array] = field(default_factory=dict)
    touching: list[dict[tuple[int, ...], None]] = field(default_factory=list)
    eliminated: list[EliminatedVariable] = field(default_factory=list)
    consistency_pending: dict[tuple[int, ...], None] = field(default_factory=dict)
    dominance_pending: set[int] = field(default_factory=set)
    elimination_pending: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, problem: Problem, limit: PresolveLimit) -> "WorkingProblem | None":
        """Create the working problem; tables over the same variables are added.

        Returns None if the sums of integer utilities could overflow.
        """
        total_magnitude = sum(magnitude(f.table) for f in problem.factors)
        integral = all(f.table.dtype.kind == "i" for f in problem.factors)
        if integral and total_magnitude >= _MAX_INT_SUM:
            return None
        working = cls(problem, [np.arange(size) for size in problem.domains.tolist()], limit)
        working.touching = [{} for _ in working.remaining]
        dtype: Number = np.dtype(np.int64) if integral else np.dtype(np.float64)
        for factor in problem.factors:
            order = np.argsort(factor.scope, kind="stable").tolist()
            table = with_dtype(factor.table, dtype).transpose(order)
            working.add(tuple(factor.scope[i] for i in order), table)
        return working

    @cached_property
    def private(self) -> NDArray[np.bool_]:
        """Mask of the variables that share factors only with variables of the same agent."""
        owner, private = self.problem.owner, np.ones(len(self.remaining), dtype=np.bool_)
        for factor in self.problem.factors:
            scope = list(factor.scope)
            if len({int(owner[v]) for v in scope}) > 1:
                private[scope] = False
        return private

    def add(self, scope: tuple[int, ...], table: Array) -> None:
        """Add a table; ``scope`` is ascending."""
        previous = self.tables.get(scope)
        self.tables[scope] = table if previous is None else add_tables(previous, table)
        if previous is None:
            for v in scope:
                self.touching[v][scope] = None
        self._changed(scope)
        if not scope and forbidden(self.tables[scope]).any():
            raise Infeasible

    def take(self, scope: tuple[int, ...]) -> Array:
        """Remove and return a table."""
        for v in scope:
            del self.touching[v][scope]
        self.consistency_pending.pop(scope, None)
        self.dominance_pending.update(scope)
        self.elimination_pending.update(scope)
        return self.tables.pop(scope)

    def keep(self, v: int, mask: NDArray[np.bool_]) -> int:
        """Restrict a variable to the remaining values that ``mask`` selects; return the number of removed values."""
        removed = mask.size - int(mask.sum())
        if removed == mask.size:
            raise Infeasible
        if removed:
            self.remaining[v] = self.remaining[v][mask]
            for scope in self.touching[v]:
                self.tables[scope] = self.tables[scope].compress(mask, axis=scope.index(v))
                self._changed(scope)
        return removed

    def _changed(self, scope: tuple[int, ...]) -> None:
        """Mark a table as changed."""
        self.limit.charge(1, self.tables[scope].size)
        if scope:
            self.consistency_pending[scope] = None
            self.dominance_pending.update(scope)
            self.elimination_pending.update(scope)

    def fix(self, v: int) -> None:
        """Remove a variable with one remaining value from all its tables."""
        for scope in list(self.touching[v]):
            table = self.take(scope)
            self.add(tuple(u for u in scope if u != v), table.take(0, axis=scope.index(v)))

    def open(self) -> list[int]:
        """Return the variables that occur in some table."""
        return [v for v, scopes in enumerate(self.touching) if scopes]

    def restore(self, chosen: Mapping[int, int]) -> NDArray[np.int64]:
        """Return all variables' values, as indices of the original problem.

        Parameters
        ----------
        chosen
            For each variable in some table: index into its remaining values. Other variables take their first
            remaining value.
        """
        values = np.array([remaining[chosen.get(v, 0)] for v, remaining in enumerate(self.remaining)], dtype=np.int64)
        for step in reversed(self.eliminated):
            values[step.variable] = step.value(values)
        return values


def with_dtype(table: Array, dtype: Number) -> Array:
    """Return a table with another dtype; −∞ is encoded as in that dtype."""
    if table.dtype == dtype:
        return table
    forbidden_mask, converted = forbidden(table), table.astype(dtype)
    converted[forbidden_mask] = forbidden_value(dtype)
    return converted


def add_tables(a: Array, b: Array) -> Array:
    """Return the sum of two tables of the same dtype that broadcast against each other; −∞ stays −∞."""
    if a.dtype.kind == "f":
        return np.asarray(a + b)
    forbidden_mask = forbidden(a) | forbidden(b)
    return np.where(
        forbidden_mask, forbidden_value(a.dtype), np.where(forbidden_mask, 0, a) + np.where(forbidden_mask, 0, b)
    )


def broadcast_table(table: Array, scope: Sequence[int], over: Sequence[int]) -> Array:
    """Return a view of a table that broadcasts over more variables; both scopes must have the same variable order."""
    shape = iter(table.shape)
    return table.reshape([next(shape) if v in scope else 1 for v in over])
