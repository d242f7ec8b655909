"""A problem while it is reduced: which values are left, and tables over them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden, forbidden_value, magnitude
from dmcmc.inference.presolve.limits import Limit
from dmcmc.inference.runtime.types import Array

Number = np.dtype[np.int64] | np.dtype[np.float64]

_ROOM = 2**62  # whole utilities that add up to less cannot wrap


@dataclass(frozen=True)
class Eliminated:
    """How a variable that was maximised out gets its value back.

    Attributes
    ----------
    variable : int
    scope : tuple of int
        Whose values decide.
    left : tuple of (values,) int64
        What was left of their domains then, as indices of the problem.
    best : ndarray of int64
        The variable's value, as an index of the problem, for each of theirs.
    """

    variable: int
    scope: tuple[int, ...]
    left: tuple[NDArray[np.int64], ...]
    best: NDArray[np.int64]

    def value(self, values: NDArray[np.int64]) -> int:
        """Return the best value, given those of the scope as indices of the problem."""
        where = [int(np.searchsorted(left, values[v])) for v, left in zip(self.scope, self.left, strict=True)]
        return int(self.best[tuple(where)])


class Infeasible(Exception):
    """Every assignment is forbidden: a variable has no value left, or a constant is forbidden."""


@dataclass
class Network:
    """Variables with their remaining values, and tables over them.

    Attributes
    ----------
    left : list of (values,) int64
        Each variable's remaining values, ascending, as indices of the problem.
    limit : Limit
        What all steps together may take.
    tables : dict
        Scope (ascending) to utilities over the remaining values: float64, or int64 with its smallest number for −∞. The
        empty scope's is what is constant.
    touching : list of dict
        The scopes of each variable's tables, in the order in which they came (a dict for its order).
    gone : list of Eliminated
        Variables that were maximised out, first to last.
    unread : dict
        Scopes of tables that have changed since arc consistency looked at them (a dict for its order).
    unheld, unpriced : set of int
        Variables whose tables have changed since dominance, and elimination, looked at them.
    """

    problem: Problem
    left: list[NDArray[np.int64]]
    limit: Limit
    tables: dict[tuple[int, ...], Array] = field(default_factory=dict)
    touching: list[dict[tuple[int, ...], None]] = field(default_factory=list)
    gone: list[Eliminated] = field(default_factory=list)
    unread: dict[tuple[int, ...], None] = field(default_factory=dict)
    unheld: set[int] = field(default_factory=set)
    unpriced: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, problem: Problem, limit: Limit) -> "Network | None":
        """Return a problem of dense tables as a network, tables over the same variables added up.

        None where utilities are so large that their sums could wrap.
        """
        sizes = sum(magnitude(f.table) for f in problem.factors)
        whole = all(f.table.dtype.kind == "i" for f in problem.factors)
        if whole and sizes >= _ROOM:
            return None
        network = cls(problem, [np.arange(size) for size in problem.domains.tolist()], limit)
        network.touching = [{} for _ in network.left]
        dtype: Number = np.dtype(np.int64) if whole else np.dtype(np.float64)
        for factor in problem.factors:
            order = np.argsort(factor.scope, kind="stable").tolist()
            table = widened(factor.table, dtype).transpose(order)
            network.add(tuple(factor.scope[i] for i in order), table)
        return network

    @cached_property
    def private(self) -> NDArray[np.bool_]:
        """Which variables share tables with variables of their own agent only."""
        owner, alone = self.problem.owner, np.ones(len(self.left), dtype=np.bool_)
        for factor in self.problem.factors:
            scope = list(factor.scope)
            if len({int(owner[v]) for v in scope}) > 1:
                alone[scope] = False
        return alone

    def add(self, scope: tuple[int, ...], table: Array) -> None:
        """Add a table over variables in ascending order."""
        old = self.tables.get(scope)
        self.tables[scope] = table if old is None else added(old, table)
        if old is None:
            for v in scope:
                self.touching[v][scope] = None
        self._changed(scope)
        if not scope and forbidden(self.tables[scope]).any():
            raise Infeasible

    def take(self, scope: tuple[int, ...]) -> Array:
        """Take a table out."""
        for v in scope:
            del self.touching[v][scope]
        self.unread.pop(scope, None)
        self.unheld.update(scope)
        self.unpriced.update(scope)
        return self.tables.pop(scope)

    def keep(self, v: int, which: NDArray[np.bool_]) -> int:
        """Leave a variable only some of its remaining values; return how many went."""
        gone = which.size - int(which.sum())
        if gone == which.size:
            raise Infeasible
        if gone:
            self.left[v] = self.left[v][which]
            for scope in self.touching[v]:
                self.tables[scope] = self.tables[scope].compress(which, axis=scope.index(v))
                self._changed(scope)
        return gone

    def _changed(self, scope: tuple[int, ...]) -> None:
        """Take note that a table is another."""
        self.limit.charge(1, self.tables[scope].size)
        if scope:
            self.unread[scope] = None
            self.unheld.update(scope)
            self.unpriced.update(scope)

    def fix(self, v: int) -> None:
        """Take a variable with one remaining value out of all its tables."""
        for scope in list(self.touching[v]):
            table = self.take(scope)
            self.add(tuple(u for u in scope if u != v), table.take(0, axis=scope.index(v)))

    def open(self) -> list[int]:
        """Return the variables that some table is over."""
        return [v for v, scopes in enumerate(self.touching) if scopes]

    def restore(self, chosen: Mapping[int, int]) -> NDArray[np.int64]:
        """Return all variables' values, as indices of the problem.

        Parameters
        ----------
        chosen
            Indices into the remaining values, of the variables that some table is over. Variables in no table take
            their first remaining value.
        """
        values = np.array([left[chosen.get(v, 0)] for v, left in enumerate(self.left)], dtype=np.int64)
        for step in reversed(self.gone):
            values[step.variable] = step.value(values)
        return values


def widened(table: Array, dtype: Number) -> Array:
    """Return a table in another dtype, −∞ as that has it."""
    if table.dtype == dtype:
        return table
    hard, wide = forbidden(table), table.astype(dtype)
    wide[hard] = forbidden_value(dtype)
    return wide


def added(a: Array, b: Array) -> Array:
    """Return the sum of two tables of one dtype (that broadcast against each other); −∞ stays −∞."""
    if a.dtype.kind == "f":
        return np.asarray(a + b)
    hard = forbidden(a) | forbidden(b)
    return np.where(hard, forbidden_value(a.dtype), np.where(hard, 0, a) + np.where(hard, 0, b))


def spread(table: Array, scope: Sequence[int], over: Sequence[int]) -> Array:
    """Return a view of a table that broadcasts over more variables, both scopes in the same order of variables."""
    shape = iter(table.shape)
    return table.reshape([next(shape) if v in scope else 1 for v in over])
