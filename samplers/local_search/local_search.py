"""Local search over complete assignments: annealed chains in tournament rounds, with block moves between the rounds.

A chain makes Gibbs *sweeps*, draws of every variable given the others, at falling temperature. A *tournament* compares
temperature ranges by successive halving: in each round the better half of the chains continue, with twice the sweeps. A
*block move* redraws many variables at once by elimination. An assignment is *1-opt* if no change of a single variable
improves it.

With fixed work the ranks share the chains of a round and exchange the results once per round. By the clock each rank
searches independently.

The search begins with a greedy assignment. :class:`Ascent` makes it, and climbs to a 1-opt assignment from any
assignment, decided by exact utilities; :class:`ConstraintAscent` does the same for problems with global constraints.

:class:`UncompiledAscent` makes the greedy assignment and climbs without kernels, while those are compiled. NumPy works
on one column (the entries of one factor for all values of one variable) at a time, which takes some microseconds, so
this is about thirty times slower than the kernels. Factors that are no dense tables are left out of the moves; the
comparison of two assignments includes them.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.factor_graph import FactorGraph, build_graph, of_shape
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.samplers.constraint_search.constraint_search import ConstraintSearch
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.tuning import SIDEWAYS_PROBABILITY
from dmcmc.samplers.local_search.graph_kernels import ascend, average_factors, choose_greedily, is_better
from dmcmc.samplers.local_search.tournament_search import (
    SINGLE_PROCESS,
    Exchange,
    OnBetter,
    TournamentSearch,
    Values,
    from_first_rank,
)


class _Greedy(NamedTuple):
    """Structure of a factor graph that the greedy assignment needs, without the entries.

    Attributes
    ----------
    means_start : (scope entries,) int64
        Offset of the averages of each variable of each factor.
    averages : int
        Number of averages.
    pieces : list of (int, int)
        Factor ranges (first, last), each averaged by one task.
    order : (n,) int64
        Variables, those with the most factors first.
    """

    means_start: NDArray[np.int64]
    averages: int
    pieces: list[tuple[int, int]]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, graph: FactorGraph) -> "_Greedy":
        """Compute the structure of a graph."""
        cost = np.diff(graph.table_start) * np.diff(graph.scope_start[: graph.dense + 1])
        cuts = np.flatnonzero(np.diff(np.cumsum(cost) // tuning.READS_PER_TASK) > 0) + 1
        pieces = list(pairwise([0, *cuts.tolist(), graph.dense]))
        order = np.argsort(-np.diff(graph.start), kind="stable")
        return cls(graph.vector_start, int(graph.domains[graph.scope].sum()), pieces, order)


class Ascent:
    """Hill climbing by single-variable moves on the original factors of a problem.

    Parameters
    ----------
    problem : Problem
        The problem before any conversion to dense tables.
    threads : int
        Threads that compute averages for the greedy assignment.
    stop : Deadline
        Checked every few hundredths of a second.

    Attributes
    ----------
    problem : Problem
        The problem.
    """

    def __init__(self, problem: Problem, threads: int, stop: Deadline) -> None:
        self.threads, self.problem, self.stop = threads, problem, stop

    @cached_property
    def graph(self) -> FactorGraph:
        """The factor graph, which hill climbing on global constraints does not need."""
        return build_graph(self.problem)

    def greedy(self, soon: Deadline = NO_DEADLINE, report: OnBetter = lambda values: None) -> Values:
        """Return an assignment made variable by variable, each by its factors' entries or their averages.

        Variables that are not reached before the deadline have value 0.

        Parameters
        ----------
        soon : Deadline
            When the assignment so far is reported, if it is not complete by then.
        report : callable
            Called at most once, with the assignment so far; variables that are not reached yet have value 0.
        """
        graph = self.graph
        n = graph.domains.size
        z, assigned = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
        means_start, averages, pieces, order = of_shape(self.problem, "greedy", lambda: _Greedy.of(graph))
        means = np.empty((2, averages))
        tasks = [partial(average_factors, graph, begin, end, means_start, means) for begin, end in pieces]
        if not run_parallel(tasks, self.threads, self.stop):
            return z
        done, sums, reported = 0, np.zeros((3, graph.widest)), False
        while done < n and not (done and self.stop.over):
            if not reported and soon.over:
                report(z.copy())
                reported = True
            done = choose_greedily(graph, order, done, z, assigned, means_start, means, sums, tuning.READS_PER_TASK)
        return z

    def climb(self, values: Values) -> Values:
        """Return a 1-opt assignment that is at least as good as ``values``; not yet 1-opt if the deadline passes."""
        n = self.graph.domains.size
        z, may_improve = np.array(values, dtype=np.int64), np.ones(n, dtype=np.bool_)
        cursor, sums = np.zeros(2, dtype=np.int64), np.zeros((3, self.graph.widest))
        while not ascend(self.graph, z, may_improve, cursor, sums, tuning.LARGE_ENTRIES) and not self.stop.over:
            pass
        return z

    def better(self, one: Values, other: Values) -> bool:
        """Return whether ``one`` is better than ``other``: fewer violations, or equally many and more utility."""
        return bool(is_better(self.graph, one, other, np.zeros((3, 1))))


class ConstraintAscent(Ascent):
    """Hill climbing on the constraints themselves: their tables may be relaxed.

    Parameters
    ----------
    problem, threads, stop
        See :class:`.Ascent`.
    is_ready : callable
        Returns whether the kernels are compiled. Until then the first assignment is found in NumPy, and other
        assignments are not improved.
    """

    def __init__(
        self, problem: Problem, threads: int, stop: Deadline, is_ready: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(problem, threads, stop)
        self.is_ready = is_ready

    @cached_property
    def search(self) -> ConstraintSearch:
        """The search on the constraints, whose first walk made the greedy assignment."""
        return ConstraintSearch(self.problem, 0, stop=self.stop.later(tuning.GRACE_SECONDS / 2))

    def greedy(self, soon: Deadline = NO_DEADLINE, report: OnBetter = lambda values: None) -> Values:
        """Return an assignment that violates no hard constraint, if a short search finds one.

        Without a deadline, kernels repair it only if the exact tables will not prove the optimum (``LocalSearch``).
        """
        found = self.search.first(self.stop, self.is_ready, report)
        has_deadline = self.stop.until < np.inf
        return self.search.repair(found, self.stop) if has_deadline and self.is_ready() else found

    def improve_until(self, ends: Callable[[], bool], values: Values, report: OnBetter) -> None:
        """Search from an assignment until other work can begin or the deadline passes, once the kernels are compiled.

        Parameters
        ----------
        ends : callable
            Returns whether to end; asked several times a second.
        values : (n,) int64
            The assignment.
        report : callable
            Called with each better assignment.
        """

        def take(found: Values) -> None:
            nonlocal values
            values = found
            report(found)

        while not (ends() or self.stop.over):
            if self.is_ready():
                self.search.improve(values, tuning.SLICE_SECONDS, 1, self.stop, take)
            else:
                time.sleep(tuning.CHECK_SECONDS)

    def climb(self, values: Values) -> Values:
        """Return a 1-opt assignment that is at least as good as ``values``; not yet 1-opt if the deadline passes."""
        if not self.is_ready():
            return np.array(values, dtype=np.int64)
        try:
            climbed = self.search.climb(values, self.stop)
        except OutOfTime:  # before the model of the search was made
            return np.array(values, dtype=np.int64)
        return climbed if self.better(climbed, values) else np.array(values, dtype=np.int64)

    def better(self, one: Values, other: Values) -> bool:
        """Return whether ``one`` is better than ``other``: a smaller violation, or an equal one and more utility."""
        (first, utility), (second, other_utility) = self.problem.appraise(one), self.problem.appraise(other)
        return (-first.violation, utility) > (-second.violation, other_utility)


def ascent_of(problem: Problem, threads: int, stop: Deadline, is_ready: Callable[[], bool] = lambda: True) -> Ascent:
    """Return the hill climbing that suits a problem; see :class:`ConstraintAscent` for the parameters."""
    return Ascent(problem, threads, stop) if problem.tabular else ConstraintAscent(problem, threads, stop, is_ready)


class LocalSearch:
    """Local search over the variables of all agents.

    Parameters
    ----------
    original : Problem
        The original problem, by which assignments are compared.
    problem : Problem
        The same problem as dense tables; variables beyond the original ones are states of automata.
    seed : int
        Seed of the chains.
    threads : int
        Threads of this rank.
    stop : Deadline
        Checked by all searches.
    exchange : Exchange
        Joins the ranks; all ranks must call the same methods with the same arguments.
    ascent : Ascent or None
        Hill climbing on ``original`` that exists already; None to make it.

    Attributes
    ----------
    behind : bool
        Whether chains leave the cores to other work of the process.
    suggested : list of ndarray
        Assignments of the original variables from which the next search by the clock starts, too.
    """

    def __init__(
        self,
        original: Problem,
        problem: Problem,
        seed: int,
        threads: int,
        stop: Deadline,
        exchange: Exchange = SINGLE_PROCESS,
        ascent: Ascent | None = None,
    ) -> None:
        self.original, self.problem, self.seed, self.threads = original, problem, seed, threads
        self.stop, self.exchange, self.behind = stop, exchange, False
        self.ascent: Ascent = ascent or ascent_of(original, threads, stop)
        self.suggested: list[Values] = []
        first = original.n_variables
        added = problem.factors if problem.n_variables > first else ()
        self._state_factors = [factor for factor in added if factor.scope and factor.scope[-1] >= first]

    def original_values(self, values: Values) -> Values:
        """Return the values of the original variables."""
        return values[: self.original.n_variables]

    def extended(self, original_values: Values) -> Values:
        """Extend an assignment of the original variables by the automaton states that follow from it."""
        values = np.append(original_values, np.zeros(self.problem.n_variables - original_values.size, dtype=np.int64))
        for factor in self._state_factors:  # in the order of the states; each has one allowed value at most
            allowed = factor.table[tuple(values[list(factor.scope[:-1])])]
            values[factor.scope[-1]] = int(np.argmax(allowed))
        return values

    def better(self, one: Values, other: Values) -> bool:
        """Return whether ``one`` is better than ``other``: fewer violations, or equally many and more utility."""
        return self.ascent.better(self.original_values(one), self.original_values(other))

    @cached_property
    def chains(self) -> TournamentSearch:
        """The chains and block moves of a problem of tables."""
        return TournamentSearch(self)

    def first(self, on_better: OnBetter = lambda values: None, start: Values | None = None) -> Values:
        """Return a first assignment: greedy by factors, then 1-opt hill climbing.

        Parameters
        ----------
        on_better : callable
            Called with the greedy assignment of a large problem: hill climbing takes some hundredths of a second.
        start : (n,) int64 or None
            An assignment of the original variables to climb from; None for the greedy one.
        """
        greedy = self.ascent.greedy() if start is None else start
        if self.original.tabular and self.ascent.graph.data.size > tuning.LARGE_ENTRIES:
            on_better(self.extended(greedy))
        return self.extended(self.ascent.climb(greedy))

    def one_opt(self, values: Values) -> Values:
        """Return a 1-opt assignment that is at least as good as the one given.

        An assignment is better if it has fewer violations, or as many and more utility, as counted by
        :meth:`dmcmc.inference.model.problem.Problem.evaluate`. If the deadline passes, the result may not be 1-opt.
        """
        return self.extended(self.ascent.climb(self.original_values(values)))

    def improve(
        self, values: Values, seconds: float | None, sweeps: int, on_better: OnBetter = lambda values: None
    ) -> Values:
        """Continue the search from an assignment; return one that is at least as good.

        Parameters
        ----------
        values : (n,) int64
            The assignment.
        seconds : float or None
            Time limit; None for fixed work, with the same result on any number of ranks. By the clock each rank
            searches independently with its share of the temperature ranges, and the caller takes the best result.
            A round that is interrupted continues in the next call.
        sweeps : int
            With fixed work: number of sweeps, summed over all chains.
        on_better : callable
            Called at once with every better assignment.
        """
        best = self.one_opt(values) if seconds is not None else from_first_rank(self.exchange, self.one_opt(values))
        if self.better(best, values):
            on_better(best)
        if not self.original.tabular:
            return self._improve_constraints(best, seconds, sweeps, on_better)
        if self.original.n_variables:
            self.chains.tighten(best)
            improvements = (
                self.chains.improve_by_sweeps(best, sweeps)
                if seconds is None
                else self.chains.improve_timed(best, seconds, self._improve_constraints)
            )
            for better in improvements:
                best = better
                on_better(best)
        return best

    def _improve_constraints(self, best: Values, seconds: float | None, sweeps: int, on_better: OnBetter) -> Values:
        """Search on the global constraints themselves, by the clock on each rank or by moves on the first rank."""
        n = self.original.n_variables

        def take(found: Values) -> None:
            nonlocal best
            candidate = self.extended(found)
            if self.better(candidate, best):
                best = candidate
                on_better(best)

        while self.suggested and not self.stop.over:
            take(self.ascent.climb(self.suggested.pop(0)))
        if seconds is None:
            search, moves = self._constraint_search, sweeps * n
            found = best[:n]
            if self.exchange.rank == 0:
                found = search.improve_by_moves(search.repair(found, self.stop), moves, self.stop)
            take(from_first_rank(self.exchange, found))
        else:
            self._constraint_search.improve(best[:n], seconds, self.threads, self.stop, take)
        return best

    @cached_property
    def _constraint_search(self) -> ConstraintSearch:
        """The search of this rank on global constraints."""
        return ConstraintSearch(self.original, self.seed, self.exchange.rank)

    def suggest(self, values: Values) -> None:
        """Add a start assignment for the next search by the clock."""
        self.suggested.append(self.original_values(values))

    def graph_from(self, values: Values) -> FactorGraph:
        """Return the factor graph for the chains; until they begin, entries dominated by ``values`` are forbidden."""
        self.chains.tighten(values)
        return self.chains.chain_problem.graph


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

    def greedy(self, soon: Deadline = NO_DEADLINE, report: OnBetter = lambda values: None) -> Values:
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
            z[v] = _best(*columns.sums(v, z, assigned), 0)
            assigned[v] = True
        return np.array(z, dtype=np.int64)

    def climb(self, values: Values) -> Values:
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
                new = _best(*columns.sums(v, z), z[v])
                if new != z[v]:
                    z[v] = new
                    may_improve[columns.neighbours(v)] = True
                may_improve[v] = False
        return np.array(z, dtype=np.int64)

    def repair(self, values: Values, ends: Callable[[], bool]) -> Values:
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
                violations, utility = columns.sums(v, z, weights=weights)
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

    def better(self, one: Values, other: Values) -> bool:
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
        self._stride = graph.stride.tolist()
        self._table = graph.table_start.tolist()
        self._domains = graph.domains.tolist()

    @property
    def degrees(self) -> Values:
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

    def sums(
        self, v: int, z: list[int], assigned: list[bool] | None = None, weights: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return violations and utility for each value of a variable; all others have their values in ``z``.

        Factors in which another variable is not ``assigned`` count with their averages. ``weights``, (factors,), are
        those of the factors' violations.
        """
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
