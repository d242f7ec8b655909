"""The greedy assignment and 1-opt hill climbing without kernels, while those of the local search are compiled.

NumPy works on one column (the entries of one factor for all values of one variable) at a time, which takes some
microseconds, so this is about thirty times slower than the kernels. Factors that are no dense tables are left out of
the moves; the comparison of two assignments includes them.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.factor_graph import FactorGraph, build_graph
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.tuning import SIDEWAYS_PROBABILITY
from dmcmc.samplers.local_search.local_search import Ascent

# Relative difference of two sums of float64 that rounding alone can explain: some thousand roundings of 2^-53 each
_TIE = 2.0**-40


class UncompiledAscent(Ascent):
    """Hill climbing by single-variable moves, without kernels.

    Parameters
    ----------
    problem : Problem
        A problem without global constraints.
    stop : Deadline
        Checked every few hundredths of a second.
    """

    def __init__(self, problem: Problem, stop: Deadline) -> None:
        super().__init__(problem, 1, stop)
        tables = tuple(factor for factor in problem.factors if type(factor) is Factor)
        dense = problem if problem.dense else replace(problem, factors=tables)
        self._columns = _Columns(build_graph(dense))

    def greedy(
        self, soon: Deadline = NO_DEADLINE, report: Callable[[NDArray[np.int64]], object] = lambda values: None
    ) -> NDArray[np.int64]:
        """Return an assignment made variable by variable; see :meth:`Ascent.greedy`."""
        columns, degrees = self._columns, self._columns.degrees
        z, assigned, reported, read = [0] * degrees.size, [False] * degrees.size, False, 0
        for v in np.argsort(-degrees, kind="stable").tolist():
            read += int(degrees[v])
            if read > tuning.COLUMNS_PER_CHECK:
                read = 0
                if self.stop.over:
                    break
                if not reported and soon.over:
                    report(np.array(z))
                    reported = True
            z[v] = _best(*columns.expected(v, z, assigned), 0)
            assigned[v] = True
        return np.array(z, dtype=np.int64)

    def climb(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an assignment that no change of one variable improves; see :meth:`Ascent.climb`."""
        columns, z, read = self._columns, values.tolist(), 0
        may_improve = np.ones(len(z), dtype=np.bool_)
        while may_improve.any():
            for v in np.flatnonzero(may_improve).tolist():
                read += 1 + columns.degree(v)
                if read > tuning.COLUMNS_PER_CHECK:
                    read = 0
                    if self.stop.over:
                        return np.array(z, dtype=np.int64)
                new = _best(*columns.exact(v, z), z[v])
                if new != z[v]:
                    z[v] = new
                    may_improve[columns.neighbours(v)] = True
                may_improve[v] = False
        return np.array(z, dtype=np.int64)

    def repair(self, values: NDArray[np.int64], ends: Callable[[], bool]) -> NDArray[np.int64]:
        """Search for an assignment that breaks no hard constraint; return it, or the last one that was reached.

        Each step changes the variable of a broken factor, to the value with which the weights of all broken factors
        are least. Where no change lowers them, the weights of the broken factors rise (the breakout method: Morris,
        AAAI 1993).

        Parameters
        ----------
        values : (n,) int64
            The assignment to start from.
        ends : callable
            Returns whether to end; asked after each step.
        """
        columns, z, rng = self._columns, values.tolist(), np.random.default_rng(0)
        weights = np.ones(columns.factors)
        broken = {f for f in range(columns.factors) if columns.is_broken(f, z)}
        while broken and not (self.stop.over or ends()):
            factor = sorted(broken)[rng.integers(len(broken))]
            best: tuple[float, float, int, int] | None = None
            for v in columns.variables(factor):
                violations, utility = columns.weighted(v, z, weights)
                change = violations - violations[z[v]]
                change[z[v]] = np.inf
                new = int(np.where(change == change.min(), utility, -np.inf).argmax())
                candidate = float(change[new]), -float(utility[new] - utility[z[v]]), v, new
                best = candidate if best is None or candidate < best else best
            if best is None or best[0] >= 0:
                weights[sorted(broken)] += 1
            if best is not None and (best[0] < 0 or (best[0] == 0 and rng.random() < SIDEWAYS_PROBABILITY)):
                _, _, v, z[v] = best
                for f in columns.factors_of(v):
                    (broken.add if columns.is_broken(f, z) else broken.discard)(f)
        return np.array(z, dtype=np.int64)

    def better(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
        """Return whether ``one`` is better than ``other``; see :meth:`Ascent.better`."""
        first, second = self.problem.evaluate(one), self.problem.evaluate(other)
        if first.violation != second.violation:
            return first.violation < second.violation
        gain = first.objective - second.objective
        return gain > 0 if self.problem.sense == "max" else gain < 0


class _Columns:
    """The columns of a factor graph: the entries of a factor for all values of one of its variables.

    Parameters
    ----------
    graph : FactorGraph
        A graph without automata.
    """

    def __init__(self, graph: FactorGraph) -> None:
        self._data, self._low, self._forbidden = graph.data, graph.low, graph.forbidden_entry
        self._start, self._factor, self._position = graph.start.tolist(), graph.factor.tolist(), graph.position.tolist()
        self._scope_start, self._scope = graph.scope_start.tolist(), graph.scope.tolist()
        self._stride, self._table, self._domains = (
            graph.stride.tolist(),
            graph.table_start.tolist(),
            graph.domains.tolist(),
        )

    @property
    def degrees(self) -> NDArray[np.int64]:
        """Number of factors of each variable."""
        return np.diff(np.array(self._start))

    @property
    def factors(self) -> int:
        """Number of factors."""
        return len(self._scope_start) - 1

    def factors_of(self, v: int) -> list[int]:
        """Return the factors of a variable."""
        found: list[int] = self._factor[self._start[v] : self._start[v + 1]]
        return found

    def variables(self, f: int) -> list[int]:
        """Return the scope of a factor."""
        scope: list[int] = self._scope[self._scope_start[f] : self._scope_start[f + 1]]
        return scope

    def is_broken(self, f: int, z: list[int]) -> bool:
        """Return whether an assignment has a forbidden entry in a factor."""
        first, last = self._scope_start[f], self._scope_start[f + 1]
        offset = self._table[f] + sum(z[self._scope[s]] * self._stride[s] for s in range(first, last))
        return bool(self._data[offset] == self._forbidden)

    def degree(self, v: int) -> int:
        """Return the number of factors of a variable."""
        return int(self._start[v + 1] - self._start[v])

    def neighbours(self, v: int) -> list[int]:
        """Return the variables that share a factor with a variable, and the variable itself."""
        factors = self._factor[self._start[v] : self._start[v + 1]]
        return [w for f in factors for w in self._scope[self._scope_start[f] : self._scope_start[f + 1]]]

    def exact(self, v: int, z: list[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return violations and utility for each value of a variable; all others have their values in ``z``."""
        return self._sums(v, z, None)

    def weighted(self, v: int, z: list[int], weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """Return the same with a weight for each factor's violation, (factors,)."""
        return self._sums(v, z, None, weights)

    def expected(self, v: int, z: list[int], assigned: list[bool]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the same, with averages for factors in which another variable is not assigned yet."""
        return self._sums(v, z, assigned)

    def _sums(
        self, v: int, z: list[int], assigned: list[bool] | None, weights: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return violations and utility for each value; averages where another variable is not assigned."""
        size = self._domains[v]
        violations, utility = np.zeros(size), np.zeros(size)
        for i in range(self._start[v], self._start[v + 1]):
            f, position = self._factor[i], self._position[i]
            first, last = self._scope_start[f], self._scope_start[f + 1]
            others = [s for s in range(first, last) if s != position]
            step, offset = self._stride[position], self._table[f]
            if assigned is not None and not all(assigned[self._scope[s]] for s in others):
                end = offset + size * int(np.prod([self._domains[self._scope[s]] for s in others], dtype=np.int64))
                table = self._data[offset:end].reshape(-1, size, step)
                is_forbidden = table == self._forbidden
                share = is_forbidden.mean(axis=(0, 2))
                total = np.where(is_forbidden, 0, table).sum(axis=(0, 2), dtype=np.float64)
                violations += share
                utility += total / np.maximum(1.0, table.shape[0] * step * (1.0 - share))
                continue
            for s in others:
                offset += z[self._scope[s]] * self._stride[s]
            column = slice(offset, offset + (size - 1) * step + 1, step)
            entries = self._data[column]
            if self._forbidden in entries:
                is_forbidden = entries == self._forbidden
                violations += is_forbidden if weights is None else weights[f] * is_forbidden
                entries = np.where(is_forbidden, 0, entries)
            utility += entries
            if self._low.size:
                utility += self._low[column]
        return violations, utility


def _best(violations: NDArray[np.float64], utility: NDArray[np.float64], old: int) -> int:
    """Return the value with the fewest violations and then the most utility; ``old`` unless another one is better."""
    fewest = violations.min()
    new = int(np.where(violations == fewest, utility, -np.inf).argmax())
    if violations[old] > fewest:
        return new
    gain = utility[new] - utility[old]
    return new if gain > _TIE * (abs(utility[new]) + abs(utility[old])) else old
