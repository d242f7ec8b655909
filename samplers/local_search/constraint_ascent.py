"""The greedy assignment and 1-opt hill climbing of :mod:`.ascent` for problems with global constraints."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.samplers.constraint_search.constraint_search import ConstraintSearch
from dmcmc.samplers.local_search.ascent import Ascent


class ConstraintAscent(Ascent):
    """Hill climbing on the constraints themselves: their tables may be relaxed."""

    @cached_property
    def search(self) -> ConstraintSearch:
        """The search on the constraints, whose first walk made the greedy assignment."""
        return ConstraintSearch(self.problem, 0)

    def greedy(
        self, soon: Deadline = NO_DEADLINE, report: Callable[[NDArray[np.int64]], object] = lambda values: None
    ) -> NDArray[np.int64]:
        """Return an assignment that violates no hard constraint, if a short search finds one."""
        return self.search.first(self.stop, report)

    def climb(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a 1-opt assignment that is at least as good as ``values``; not yet 1-opt if the deadline passes."""
        climbed = self.search.climb(values, self.stop)
        return climbed if self.better(climbed, values) else np.array(values, dtype=np.int64)

    def better(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
        """Return whether ``one`` is better than ``other``: a smaller violation, or an equal one and more utility."""
        (first, utility), (second, other_utility) = self.problem.appraise(one), self.problem.appraise(other)
        return (-first.violation, utility) > (-second.violation, other_utility)


def ascent_of(problem: Problem, threads: int, stop: Deadline) -> Ascent:
    """Return the hill climbing that suits a problem; see :class:`.Ascent` for the parameters."""
    return Ascent(problem, threads, stop) if problem.tabular else ConstraintAscent(problem, threads, stop)
