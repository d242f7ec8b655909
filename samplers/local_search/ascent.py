"""A greedy first assignment, and 1-opt hill climbing from any assignment, decided by exact utilities.

:class:`Ascent` works on tables; :class:`ConstraintAscent` is the same for problems with global constraints.
"""

import time
from collections.abc import Callable
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import FactorGraph, build_graph, of_shape
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.samplers.constraint_search.constraint_search import ConstraintSearch
from dmcmc.samplers.local_search.graph_kernels import ascend, average_factors, choose_greedily, is_better
from dmcmc.samplers.tuning import common
from dmcmc.samplers.tuning import local_search as tuning


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

    def greedy(
        self, soon: Deadline = NO_DEADLINE, report: Callable[[NDArray[np.int64]], object] = lambda values: None
    ) -> NDArray[np.int64]:
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

    def climb(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a 1-opt assignment that is at least as good as ``values``; not yet 1-opt if the deadline passes."""
        n = self.graph.domains.size
        z, may_improve = np.array(values, dtype=np.int64), np.ones(n, dtype=np.bool_)
        cursor, sums = np.zeros(2, dtype=np.int64), np.zeros((3, self.graph.widest))
        while not ascend(self.graph, z, may_improve, cursor, sums, common.LARGE_ENTRIES) and not self.stop.over:
            pass
        return z

    def better(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
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
        return ConstraintSearch(self.problem, 0)

    def greedy(
        self, soon: Deadline = NO_DEADLINE, report: Callable[[NDArray[np.int64]], object] = lambda values: None
    ) -> NDArray[np.int64]:
        """Return an assignment that violates no hard constraint, if a short search finds one."""
        return self.search.first(self.stop, self.is_ready, report)

    def improve_until(
        self, ends: Callable[[], bool], values: NDArray[np.int64], report: Callable[[NDArray[np.int64]], object]
    ) -> None:
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

        def take(found: NDArray[np.int64]) -> None:
            nonlocal values
            values = found
            report(found)

        while not (ends() or self.stop.over):
            if self.is_ready():
                self.search.improve(values, common.SLICE_SECONDS, 1, self.stop, take)
            else:
                time.sleep(common.CHECK_SECONDS)

    def climb(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a 1-opt assignment that is at least as good as ``values``; not yet 1-opt if the deadline passes."""
        if not self.is_ready():
            return np.array(values, dtype=np.int64)
        climbed = self.search.climb(values, self.stop)
        return climbed if self.better(climbed, values) else np.array(values, dtype=np.int64)

    def better(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
        """Return whether ``one`` is better than ``other``: a smaller violation, or an equal one and more utility."""
        (first, utility), (second, other_utility) = self.problem.appraise(one), self.problem.appraise(other)
        return (-first.violation, utility) > (-second.violation, other_utility)


def ascent_of(problem: Problem, threads: int, stop: Deadline, is_ready: Callable[[], bool] = lambda: True) -> Ascent:
    """Return the hill climbing that suits a problem; see :class:`ConstraintAscent` for the parameters."""
    return Ascent(problem, threads, stop) if problem.tabular else ConstraintAscent(problem, threads, stop, is_ready)
