"""Max-marginals within a time limit: exact where an elimination fits, otherwise bounds from solving repeatedly.

A junction tree gives the max-marginals of all variables. Where it does not fit, an elimination that keeps one variable
gives those of this variable, one variable after the other. Where that does not fit either, the variable is the only
boundary variable of a subproblem that holds all others, so each of its values is a row: a dual ascent bounds all rows,
and one branch and bound closes the gap between a row's bound and the best assignment known for it. Values that are not
proven then are fixed in turn, and the problem is solved again from the best known assignment with the value. The answer
is a lower bound on the best utility with this value, and the bound of the run is an upper bound. Every assignment that
is found also improves the lower bounds of all of its values, and the bound on the whole problem is an upper bound for
every value.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from dmcmc.algorithms.choice import choose_algorithm
from dmcmc.compilation.kernel_supply import kernels_until
from dmcmc.config.settings import Settings
from dmcmc.inference.bounds import registry
from dmcmc.inference.bounds.branch_and_bound import row_search
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.search_rows import create_boundary_search
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.mpi.world import World
from dmcmc.questions import one_agent
from dmcmc.questions.sums import marginals
from dmcmc.results.outcome import AssignmentQuality, BoundProof, SolveOutcome, judge, quality_of
from dmcmc.results.questions import Marginals, ValueInterval
from dmcmc.results.result import Result
from dmcmc.results.stored_result import provenance
from dmcmc.samplers import registry as samplers
from dmcmc.samplers.auto.choose import SAMPLER
from dmcmc.samplers.contract import tuning as sampler_tuning
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.solving.planning.divided_problem import with_memory_limit
from dmcmc.tuning import run as tuning


def sampled_rows(
    local: LocalProblem, arithmetic: Arithmetic, start: Ints | None, seed: int, backend: Backend, seconds: float
) -> Iterator[tuple[int, Ints]]:
    """Yield the best assignment that chains find for each row of a subproblem with one boundary variable."""
    sampling = Sampling(arithmetic, seed, backend=backend, seconds=seconds, incumbent=start)
    (table,) = samplers.get(SAMPLER).solve([local], sampling)
    (v,) = local.interface
    for row in range(local.rows):
        hidden = table.witness({v: row})
        yield row, joined(local, row, [hidden[u] for u in local.hidden])


def joined(local: LocalProblem, row: int, hidden: Sequence[int] | Ints) -> Ints:
    """Return the assignment that consists of a row and of values of the hidden variables."""
    values = np.zeros(local.domains.size, dtype=np.int64)
    values[[*local.hidden, *local.interface]] = [*hidden, row]
    return values


def search_values(
    problem: Problem,
    v: int,
    best: Callable[[int], Ints | None],
    found: Callable[[int, Ints], object],
    start: Ints | None,
    settings: Settings,
    until: float,
) -> tuple[list[Number], Arithmetic, int] | None:
    """Bound the best utility with each value of a variable, and improve the known assignments.

    Parameters
    ----------
    problem
        The problem; its agents do not matter.
    v
        The variable.
    best
        Returns the best known assignment with a value, which breaks no hard constraint; None without one.
    found
        Called with a value and an assignment that chains or the search have reached; it may break hard constraints.
    start : (n,) int64 or None
        The best assignment, from which the chains start.
    settings
        Settings; the memory budget and the device are used.
    until
        When to stop (``time.perf_counter``).

    Returns
    -------
    bounds : list of number
        An upper bound on the utility with each value, encoded, without constants.
    arithmetic : Arithmetic
        The encoding.
    addends : int
        Number of factors that the bounds sum over.

    None is returned if there is no dual ascent for the problem, or it does not fit the memory.
    """
    state: DualState | None = None
    try:
        local, arithmetic, addends, memory = one_agent.with_boundary(problem, v, settings)
        backend, begun = Backend(settings.device, cores(), stop=Deadline(until)), time.perf_counter()
        known = start if local.domains.size == problem.n_variables else None
        for row, values in sampled_rows(
            local, arithmetic, known, settings.seed, backend, 2 * sampler_tuning.UNTRIED_SHARE * (until - begun)
        ):
            found(row, values[: problem.n_variables])
        started = registry.get("triangles").start(local, backend)
        if not isinstance(started, DualState) or not started.enumerated:
            return None
        state = started
        state.improve(2 * sampler_tuning.UNTRIED_SHARE * (until - begun))
        search = create_boundary_search(
            state, int(sampler_tuning.MEMORY_SHARE / 2 * memory), until - begun, row_search.SearchedPart.ALL
        )
        while time.perf_counter() < until and not state.exhausted:
            attained = _attained(problem, v, best, state.integral)
            thresholds = row_search.next_above(attained) if state.integral else attained
            row_search.run_boundary_searches(
                [row_search.BoundarySearchRequest(search, thresholds, attained)], sampler_tuning.SLICE_SECONDS
            )
            for row, leaf in zip(*(search.leaves() or ((), ())), strict=True):
                found(int(row), joined(local, int(row), leaf)[: problem.n_variables])
            if search.exhausted:
                break
    except ResourceError:
        if state is None:
            return None
    assert state is not None
    tables, rows = state.tables(arithmetic), range(int(problem.domains[v]))
    return [one_agent.row_total(tables, row, arithmetic) for row in rows], arithmetic, addends


def _attained(problem: Problem, v: int, best: Callable[[int], Ints | None], integral: bool) -> NDArray[Any]:
    """Return the utility of the best known assignment with each value; the smallest number without one."""
    known = [best(value) for value in range(int(problem.domains[v]))]
    utilities = [None if values is None else problem.utility_inside(values) for values in known]
    if integral:
        lowest = int(np.iinfo(np.int64).min)
        return np.array([lowest if x is None else int(x) for x in utilities], dtype=np.int64)
    return np.array([-np.inf if x is None else math.nextafter(float(x), -math.inf) for x in utilities])


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

    def answer_of(self, result: Result) -> one_agent.ValueAnswer:
        """Return the outcome and the assignment of a run."""
        facts = result.status, result.objective, result.bound, result.gap, result.violation
        outcome = SolveOutcome(*facts)
        return one_agent.ValueAnswer(
            outcome, None if result.assignment is None else self.problem.values_of(result.assignment)
        )

    def record(self, v: int, value: int, answer: one_agent.ValueAnswer) -> None:
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

    def _record_assignment(self, answer: one_agent.ValueAnswer) -> None:
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


def bound_variables(
    problem: Problem, wanted: Sequence[int], settings: Settings, bounds: ValueTable, end: float
) -> None:
    """Bound the values of some variables, one variable after the other, by an elimination or a search."""
    until = time.perf_counter() + sampler_tuning.PLANNED_SHARE * (end - time.perf_counter())
    for i, v in enumerate(wanted):
        stop = Deadline(time.perf_counter() + (until - time.perf_counter()) / (len(wanted) - i))
        values = range(int(problem.domains[v]))
        left = stop.until - time.perf_counter()
        if left <= 0 or all(bounds.is_proven(v, value) for value in values):
            continue
        answers = one_agent.answers_by_elimination(problem, v, settings, stop, left)
        for value, answer in enumerate(answers or ()):
            bounds.record(v, value, answer)
        if answers is None:
            _search(problem, v, settings, bounds, stop.until)


def _search(problem: Problem, v: int, settings: Settings, bounds: ValueTable, until: float) -> None:
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
        bounds.record(v, value, one_agent.ValueAnswer(judge(problem, quality, constants, proof), values))


def _appraised(problem: Problem, values: Ints) -> one_agent.ValueAnswer:
    """Return an assignment with its outcome, without a bound."""
    return one_agent.ValueAnswer(judge(problem, quality_of(problem, values), [], None), values)


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
    seconds = sampler_tuning.FIRST_SHARE * limit
    memory = min(settings.budget.bytes, int(seconds * tuning.TREE_BYTES_PER_SECOND))
    small = replace(settings, budget=replace(settings.budget, memory=memory))
    try:
        with kernels_until(Deadline(start + seconds), small):
            return marginals(problem, small, "max-marginals", Deadline(start + seconds))
    except ResourceError:
        pass
    settings = one_agent.undivided_settings(settings)
    whole, end = one_agent.undivided(problem, settings), start + limit
    first = choose_algorithm.solve_alone(
        whole, _limited(settings, sampler_tuning.FIRST_SHARE * (end - time.perf_counter()))
    )
    bounds = ValueTable(problem, first)
    if first.status != "infeasible":
        wanted = [problem.variables.index(name) for name in variables or problem.variables]
        with suppress(ResourceError), kernels_until(Deadline(end), settings):
            bound_variables(problem, wanted, settings, bounds, end)
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


def _fix_values(whole: Problem, wanted: Sequence[int], settings: Settings, bounds: ValueTable, end: float) -> None:
    """Solve the problem with each value that is not proven yet, from the best known assignment with it."""
    pairs = [(v, value) for v in wanted for value in range(int(whole.domains[v]))]
    queue = [pair for pair in pairs if not bounds.is_proven(*pair)]
    for i, (v, value) in enumerate(queue):
        left = end - time.perf_counter()
        if left <= 0:
            return
        if not bounds.is_proven(v, value):
            start = replace(settings, start=bounds.start_with(v, value))
            limited = _limited(start, min(left, max(2 * sampler_tuning.GRACE_SECONDS, left / (len(queue) - i))))
            result = choose_algorithm.solve_alone(_fixed(whole, v, value), limited)
            bounds.record(v, value, bounds.answer_of(result))


def _fixed(problem: Problem, v: int, value: int) -> Problem:
    """Return the problem with all other values of a variable forbidden."""
    table = np.full(int(problem.domains[v]), -np.inf)
    table[value] = 0.0
    only = Factor.of((v,), table, name=f"{problem.variables[v]} = {problem.label(v, value)}")
    return dataclasses.replace(problem, factors=(*problem.factors, only))


def _limited(settings: Settings, seconds: float) -> Settings:
    """Return settings with another time budget in seconds."""
    return replace(settings, budget=replace(settings.budget, time=max(sampler_tuning.CHECK_SECONDS / 2, seconds)))
