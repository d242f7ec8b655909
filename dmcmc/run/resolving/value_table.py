"""Keep the best known assignment with each value of each variable, and an upper bound on its utility."""

from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.results.outcome import SolveOutcome
from dmcmc.results.questions import ValueInterval
from dmcmc.results.result import Result
from dmcmc.run.resolving.kept_variable import ValueAnswer


class ValueTable:
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
