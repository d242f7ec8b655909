"""Max-marginals within a time limit: exact where a junction tree fits, otherwise bounds from solving repeatedly.

Each value of a variable is fixed in turn, and the problem is solved again. The answer is a lower bound on the best
utility with this value, and the bound of the run is an upper bound. Every assignment that is found also improves the
lower bounds of all of its values, and the bound on the whole problem is an upper bound for every value.
"""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.results.marginals import Marginals, ValueInterval
from dmcmc.results.provenance import provenance
from dmcmc.results.result import Result
from dmcmc.run.algorithms import choose_algorithm
from dmcmc.run.resolving.undivided import undivided, undivided_settings
from dmcmc.run.whole_problem.marginals import marginals
from dmcmc.solving.planning.divided_problem import with_memory_limit

_TREE_SHARE = 0.2  # share of the time for the junction tree; what is left of it is for solving repeatedly
# Bytes of sparse tables that are joined per second on one core: 40 bytes per row, 8e-7 s per row. One join does not
# check the deadline, so its size is limited beforehand.
_TREE_BYTES_PER_SECOND = 5e7
_MIN_RUN = 0.1  # seconds of a run; presolve and the first bounds of a small calendar take about half of it
_FIRST_SHARE = 0.3  # share of the time that is left for the run without a fixed value, whose bound holds for all values


def timed_max_marginals(problem: Problem, settings: Settings, variables: Sequence[str] = ()) -> Marginals:
    """Return the best objective with each value, or bounds on it, within the time budget.

    Parameters
    ----------
    problem : Problem
        The problem; its agents do not matter.
    settings : Settings
        Settings with a time budget.
    variables : sequence of str
        The variables whose values are fixed, in this order; all variables if empty. The values of the others have the
        bounds that follow from these runs.

    Returns
    -------
    Marginals
        Exact max-marginals, or ``status="bounded"`` with ``intervals``.
    """
    start, limit = time.perf_counter(), settings.budget.time
    assert limit is not None
    settings = with_memory_limit(settings, World())
    seconds = _TREE_SHARE * limit
    memory = min(settings.budget.bytes, int(seconds * _TREE_BYTES_PER_SECOND))
    small = replace(settings, budget=replace(settings.budget, memory=memory))
    try:
        return marginals(problem, small, "max-marginals", Deadline(start + seconds))
    except ResourceError:
        pass
    settings = undivided_settings(settings)
    whole = undivided(problem, settings)
    first = _solve(whole, settings, _FIRST_SHARE * (start + limit - time.perf_counter()))
    bounds = _ValueBounds(problem, first)
    if first.status != "infeasible":
        wanted = [problem.variables.index(name) for name in variables or problem.variables]
        queue = [(v, value) for v in wanted for value in range(int(problem.domains[v]))]
        for i, (v, value) in enumerate(queue):
            left = start + limit - time.perf_counter()
            if left <= 0:
                break
            if not bounds.is_proven(v, value):
                bounds.record(v, value, _solve(_fixed(whole, v, value), settings, _slice(left, len(queue) - i)))
    return Marginals(
        task="max-marginals",
        status="infeasible" if first.status == "infeasible" else "bounded",
        marginals={},
        objective=bounds.best,
        intervals={} if first.status == "infeasible" else bounds.intervals(),
        time=time.perf_counter() - start,
        planning=0.0,
        variables=problem.n_variables,
        cliques=0,
        width=0,
        cells=0,
        provenance=provenance(settings, 1, 1),
    )


class _ValueBounds:
    """The best utilities that were found with each value, and upper bounds on them.

    Attributes
    ----------
    problem : Problem
        The problem.
    best : int, float or None
        The objective of the best assignment.
    lower : list of list
        The best utility of an assignment with each value of each variable; None if none was found.
    upper : list of list
        Upper bounds on them; None without a bound.
    impossible : set of (int, int)
        Variables and values that are proven to be in no allowed assignment.
    proven : set of (int, int)
        Variables and values whose best assignment is known.
    """

    def __init__(self, problem: Problem, first: Result) -> None:
        sizes = problem.domains.tolist()
        self.problem, self.best = problem, first.objective
        bound = None if first.bound is None else problem.to_own_sense(first.bound)
        self.lower: list[list[Number | None]] = [[None] * size for size in sizes]
        self.upper: list[list[Number | None]] = [[bound] * size for size in sizes]
        self.impossible, self.proven = set[tuple[int, int]](), set[tuple[int, int]]()
        values = self._record_assignment(first)
        if first.status == "optimal":
            self.proven |= set(enumerate(values))

    def is_proven(self, v: int, value: int) -> bool:
        """Return whether the best utility with a value is known."""
        return (v, value) in self.proven or (v, value) in self.impossible

    def record(self, v: int, value: int, result: Result) -> None:
        """Record the result of the problem with a fixed value."""
        if result.status == "infeasible":
            self.impossible.add((v, value))
            return
        self._record_assignment(result)
        upper = self.upper[v][value]
        if result.bound is not None:
            bound = self.problem.to_own_sense(result.bound)
            self.upper[v][value] = bound if upper is None else min(upper, bound)
        if result.status == "optimal":
            self.proven.add((v, value))

    def _record_assignment(self, result: Result) -> list[int]:
        """Raise the lower bounds of all values of an assignment; return its values, none if it breaks a constraint."""
        if result.objective is None or result.assignment is None:
            return []
        values: list[int] = self.problem.values_of(result.assignment).tolist()
        utility = self.problem.to_own_sense(result.objective)
        if self.best is None or utility > self.problem.to_own_sense(self.best):
            self.best = result.objective
        for v, value in enumerate(values):
            lower = self.lower[v][value]
            self.lower[v][value] = utility if lower is None else max(lower, utility)
        return values

    def intervals(self) -> dict[str, dict[Label, ValueInterval]]:
        """Return the bounds by the names of variables and the labels of values, in the problem's own sense."""
        return {
            name: {self.problem.label(v, x): self._interval(v, x) for x in range(int(self.problem.domains[v]))}
            for v, name in enumerate(self.problem.variables)
        }

    def _interval(self, v: int, value: int) -> ValueInterval:
        """Return the bounds of one value."""
        lower, upper = self.lower[v][value], self.upper[v][value]
        proven = self.is_proven(v, value) or (lower is not None and lower == upper)
        if (v, value) in self.impossible:
            upper = None
        objective, bound = (None if x is None else self.problem.to_own_sense(x) for x in (lower, upper))
        return ValueInterval(objective=objective, bound=objective if proven else bound, proven=proven)


def _slice(left: float, values: int) -> float:
    """Return the seconds for the next of some values: an equal share, but enough for a useful run."""
    return min(left, max(_MIN_RUN, left / values))


def _fixed(problem: Problem, v: int, value: int) -> Problem:
    """Return the problem with all other values of a variable forbidden."""
    table = np.full(int(problem.domains[v]), -np.inf)
    table[value] = 0.0
    only = Factor.of((v,), table, name=f"{problem.variables[v]} = {problem.label(v, value)}")
    return dataclasses.replace(problem, factors=(*problem.factors, only))


def _solve(problem: Problem, settings: Settings, seconds: float) -> Result:
    """Solve a problem in this process within some seconds."""
    limited = replace(settings, budget=replace(settings.budget, time=max(0.01, seconds)))
    result = choose_algorithm.solve(problem, limited, World())
    assert result is not None  # on the only rank
    return result
