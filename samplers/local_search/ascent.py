"""A first assignment, and the way up from any to one that no single move makes better; decided exactly."""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.samplers.local_search.factor_graph import Graph, build_graph, of_shape
from dmcmc.samplers.local_search.graph_kernels import ascend, choose_greedily, outdoes, project

_LOOK = 1 << 22  # entries between two looks at the time, some hundredths of a second
_PIECE = 1 << 20  # entries that a thread averages at a time


class _Greedy(NamedTuple):
    """What a greedy assignment takes of a graph but its entries.

    Attributes
    ----------
    at : (scope variables,) int64
        Where the averages of each variable of each factor begin.
    averages : int
        How many there are.
    pieces : list of (int, int)
        Factors that a thread averages at a time.
    order : (n,) int64
        Variables, those with most factors first.
    """

    at: NDArray[np.int64]
    averages: int
    pieces: list[tuple[int, int]]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, graph: Graph) -> "_Greedy":
        """Look a graph over."""
        sizes = graph.domains[graph.scope]
        cost = np.diff(np.append(graph.at, graph.first_step)) * np.diff(graph.scope_start[: graph.dense + 1])
        cuts = np.flatnonzero(np.diff(np.cumsum(cost) // _PIECE) > 0) + 1
        pieces = list(pairwise([0, *cuts.tolist(), graph.dense]))
        order = np.argsort(-np.diff(graph.start), kind="stable")
        return cls(np.cumsum(sizes) - sizes, int(sizes.sum()), pieces, order)


class Ascent:
    """Moves of one variable of a problem, as it was asked.

    Parameters
    ----------
    threads : int
    stop : Stop
        Looked at every few hundredths of a second.
    """

    def __init__(self, problem: Problem, threads: int, stop: Stop) -> None:
        self.threads = threads
        self._problem, self.graph = problem, build_graph(problem)
        self.stop = stop

    def greedy(self) -> NDArray[np.int64]:
        """Return an assignment made variable by variable, each by its factors' entries or averages of them.

        Variables that are not reached in time keep their first values.
        """
        graph = self.graph
        n = graph.domains.size
        z, placed = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
        at, averages, pieces, order = of_shape(self._problem, "greedy", lambda: _Greedy.of(graph))
        means = np.empty((2, averages))
        tasks = [partial(project, graph, begin, end, at, means) for begin, end in pieces]
        if not run_parallel(tasks, self.threads, self.stop):
            return z
        done, sums = 0, np.zeros((3, graph.widest))
        while done < n and not (done and self.stop.over):
            done = choose_greedily(graph, order, done, z, placed, at, means, sums, _LOOK)
        return z

    def climb(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an assignment with no better neighbour, by moves that each make it better."""
        n = self.graph.domains.size
        z, doubtful = np.array(values, dtype=np.int64), np.ones(n, dtype=np.bool_)
        state, sums = np.zeros(2, dtype=np.int64), np.zeros((3, self.graph.widest))
        while not ascend(self.graph, z, doubtful, state, sums, _LOOK) and not self.stop.over:
            pass
        return z

    def better(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
        """Return whether an assignment is better than another: fewer violations, or as many and more utility."""
        return bool(outdoes(self.graph, one, other, np.zeros((3, 1))))
