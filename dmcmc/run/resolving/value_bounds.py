"""Max-marginals within a time limit: exact where an elimination fits, otherwise bounds from solving repeatedly.

A junction tree gives the max-marginals of all variables. Where it does not fit, an elimination that keeps one variable
gives those of this variable, one variable after the other. Where that does not fit either, one branch and bound has a
root for each value of the variable. Values that are not proven then are fixed in turn, and the problem is solved again
from the best known assignment with the value. The answer is a lower bound on the best utility with this value, and the
bound of the run is an upper bound. Every assignment that is found also improves the lower bounds of all of its values,
and the bound on the whole problem is an upper bound for every value.
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
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.mpi.world import World
from dmcmc.results.marginals import Marginals, ValueInterval
from dmcmc.results.outcome import AssignmentQuality, BoundProof, SolveOutcome, judge, quality_of
from dmcmc.results.provenance import provenance
from dmcmc.results.result import Result
from dmcmc.run.algorithms import choose_algorithm
from dmcmc.run.resolving.kept_variable import ValueAnswer, answers_by_elimination
from dmcmc.run.resolving.undivided import undivided, undivided_settings
from dmcmc.run.resolving.value_search import compile_search, search_values
from dmcmc.run.whole_problem.marginals import marginals
from dmcmc.samplers.tuning import common
from dmcmc.solving.planning.divided_problem import with_memory_limit
from dmcmc.tuning import run as tuning


def timed_max_marginals(problem: Problem, settings: Settings, variables: Sequence[str] = ()) -> Marginals:
    """Return the best objective with each value, or bounds on it, within the time budget.

    Parameters
    ----------
    problem : Problem
        The problem; its agents do not matter.
    settings : Settings
        Settings with a time budget, which does not count compilation.
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
    seconds = common.FIRST_SHARE * limit
    memory = min(settings.budget.bytes, int(seconds * tuning.TREE_BYTES_PER_SECOND))
    small = replace(settings, budget=replace(settings.budget, memory=memory))
    try:
        return marginals(problem, small, "max-marginals", Deadline(start + seconds))
    except ResourceError:
        pass
    settings = undivided_settings(settings)
    whole, end = undivided(problem, settings), start + limit + compile_search(problem, settings)
    first = _solve(whole, settings, common.FIRST_SHARE * (end - time.perf_counter()))
    bounds = _ValueBounds(problem, first)
    if first.status != "infeasible":
        wanted = [problem.variables.index(name) for name in variables or problem.variables]
        _bound_variables(problem, wanted, settings, bounds, end)
        _fix_values(whole, wanted, settings, bounds, end)
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


def _bound_variables(
    problem: Problem, wanted: Sequence[int], settings: Settings, bounds: "_ValueBounds", end: float
) -> None:
    """Bound the values of some variables, one variable after the other, by an elimination or a search."""
    until = time.perf_counter() + common.PLANNED_SHARE * (end - time.perf_counter())
    for i, v in enumerate(wanted):
        stop = Deadline(time.perf_counter() + (until - time.perf_counter()) / (len(wanted) - i))
        values = range(int(problem.domains[v]))
        left = stop.until - time.perf_counter()
        if left <= 0 or all(bounds.is_proven(v, value) for value in values):
            continue
        answers = answers_by_elimination(problem, v, settings, stop, left)
        for value, answer in enumerate(answers or ()):
            bounds.record(v, value, answer)
        if answers is None:
            _search(problem, v, settings, bounds, stop.until)


def _search(problem: Problem, v: int, settings: Settings, bounds: "_ValueBounds", until: float) -> None:
    """Bound the values of a variable by branch and bound, and take the assignments that it reaches."""

    def found(value: int, values: Ints) -> None:
        bounds.record(v, value, _appraised(problem, values))

    def best(value: int) -> Ints | None:
        return bounds.examples.get((v, value))

    searched = search_values(problem, v, best, found, bounds.best_values, settings, until)
    if searched is None:
        return
    row_bounds, arithmetic, addends = searched
    constants = [factor for factor in problem.factors if not factor.scope]
    for value, bound in enumerate(row_bounds):
        values, proof = bounds.examples.get((v, value)), BoundProof([bound], arithmetic, addends)
        quality = AssignmentQuality(-1, 0, 0) if values is None else quality_of(problem, values)
        bounds.record(v, value, ValueAnswer(judge(problem, quality, constants, proof), values))


def _appraised(problem: Problem, values: Ints) -> ValueAnswer:
    """Return an assignment with its outcome, without a bound."""
    return ValueAnswer(judge(problem, quality_of(problem, values), [], None), values)


def _fix_values(whole: Problem, wanted: Sequence[int], settings: Settings, bounds: "_ValueBounds", end: float) -> None:
    """Solve the problem with each value that is not proven yet, from the best known assignment with it."""
    pairs = [(v, value) for v in wanted for value in range(int(whole.domains[v]))]
    queue = [pair for pair in pairs if not bounds.is_proven(*pair)]
    for i, (v, value) in enumerate(queue):
        left = end - time.perf_counter()
        if left <= 0:
            return
        if not bounds.is_proven(v, value):
            start = replace(settings, start=bounds.start_with(v, value))
            seconds = max(2 * common.GRACE_SECONDS, left / (len(queue) - i))
            result = _solve(_fixed(whole, v, value), start, min(left, seconds))
            bounds.record(v, value, bounds.answer_of(result))


class _ValueBounds:
    """The best utilities that were found with each value, and upper bounds on them.

    Attributes
    ----------
    problem : Problem
        The problem.
    best : int, float or None
        The objective of the best assignment.
    best_values : (n,) int64 or None
        The best assignment.
    examples : dict of (int, int) to (n,) int64
        The best known assignment with each variable and value.
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
        self.best_values: Ints | None = None if first.assignment is None else problem.values_of(first.assignment)
        bound = None if first.bound is None else problem.to_own_sense(first.bound)
        self.lower: list[list[Number | None]] = [[None] * size for size in sizes]
        self.upper: list[list[Number | None]] = [[bound] * size for size in sizes]
        self.impossible, self.proven = set[tuple[int, int]](), set[tuple[int, int]]()
        self.examples: dict[tuple[int, int], Ints] = {}
        answer = self.answer_of(first)
        self._record_assignment(answer)
        if first.status == "optimal" and answer.values is not None:
            self.proven |= set(enumerate(answer.values.tolist()))

    def is_proven(self, v: int, value: int) -> bool:
        """Return whether the best utility with a value is known."""
        return (v, value) in self.proven or (v, value) in self.impossible

    def answer_of(self, result: Result) -> ValueAnswer:
        """Return the outcome and the assignment of a run."""
        facts = result.status, result.objective, result.bound, result.gap, result.violation
        outcome = SolveOutcome(*facts)
        return ValueAnswer(outcome, None if result.assignment is None else self.problem.values_of(result.assignment))

    def record(self, v: int, value: int, answer: ValueAnswer) -> None:
        """Record the answer to the problem with a fixed value."""
        outcome = answer.outcome
        if outcome.status == "infeasible":
            self.impossible.add((v, value))
            return
        self._record_assignment(answer)
        upper = self.upper[v][value]
        if outcome.bound is not None:
            bound = self.problem.to_own_sense(outcome.bound)
            self.upper[v][value] = bound if upper is None else min(upper, bound)
        if outcome.status == "optimal":
            self.proven.add((v, value))

    def _record_assignment(self, answer: ValueAnswer) -> None:
        """Raise the lower bounds of all values of an assignment, unless it breaks a constraint."""
        if answer.outcome.objective is None or answer.values is None:
            return
        utility = self.problem.to_own_sense(answer.outcome.objective)
        if self.best is None or utility > self.problem.to_own_sense(self.best):
            self.best, self.best_values = answer.outcome.objective, answer.values
        for v, value in enumerate(answer.values.tolist()):
            lower = self.lower[v][value]
            if lower is None or utility > lower:
                self.lower[v][value], self.examples[v, value] = utility, answer.values

    def start_with(self, v: int, value: int) -> dict[str, Label] | None:
        """Return the best known assignment with a value; otherwise the best one with the value put in."""
        values = self.examples.get((v, value), self.best_values)
        if values is None:
            return None
        changed = values.copy()
        changed[v] = value
        return self.problem.assignment(changed)

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


def _fixed(problem: Problem, v: int, value: int) -> Problem:
    """Return the problem with all other values of a variable forbidden."""
    table = np.full(int(problem.domains[v]), -np.inf)
    table[value] = 0.0
    only = Factor.of((v,), table, name=f"{problem.variables[v]} = {problem.label(v, value)}")
    return dataclasses.replace(problem, factors=(*problem.factors, only))


def _solve(problem: Problem, settings: Settings, seconds: float) -> Result:
    """Solve a problem in this process within some seconds."""
    limited = replace(settings, budget=replace(settings.budget, time=max(common.CHECK_SECONDS / 2, seconds)))
    result = choose_algorithm.solve(problem, limited, World())
    assert result is not None  # on the only rank
    return result
