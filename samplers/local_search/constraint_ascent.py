"""The greedy assignment and 1-opt hill climbing of :mod:`.ascent` for problems with global constraints."""

import time
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.samplers.constraint_search.constraint_search import ConstraintSearch
from dmcmc.samplers.local_search.ascent import Ascent

_SLICE_SECONDS = 0.25  # seconds of search between two questions whether to end
_POLL_SECONDS = 0.05  # seconds between two looks whether the kernels are compiled


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
                self.search.improve(values, _SLICE_SECONDS, 1, self.stop, take)
            else:
                time.sleep(_POLL_SECONDS)

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
