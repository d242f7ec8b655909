"""Find several good assignments of one problem: the k best ones, or diverse ones.

The k best assignments are exact where a junction tree of the whole problem fits the memory (Nilsson 1998;
:mod:`dmcmc.inference.marginals.junction_tree`). Otherwise, and for assignments that differ in several variables, the
problem is solved again and again, each time with the constraint that the next assignment differs from all earlier ones.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from dmcmc.algorithms.choice import choose_algorithm
from dmcmc.compilation.kernel_supply import kernels_until
from dmcmc.compilation.small_problems import interpreted_tree_if_small
from dmcmc.config.settings import Settings
from dmcmc.inference.building.levels import check_weighted
from dmcmc.inference.dpop.slicing import split_memory
from dmcmc.inference.marginals.junction_tree import JunctionTree, best_assignments
from dmcmc.inference.model.automaton import AutomatonFactor, SumBounds, unroll
from dmcmc.inference.model.names import plain_value, suggest_name
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ConfigError, ResourceError
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.mpi.world import World
from dmcmc.questions.one_agent import undivided, undivided_settings
from dmcmc.results.result import Alternative, Result
from dmcmc.samplers.contract import tuning
from dmcmc.solving.observe import Explain, ProgressReporter, RunHandle
from dmcmc.solving.planning.divided_problem import with_memory_limit
from dmcmc.solving.warm_start.start_assignment import agree_on_costs


class AlternativesRequest(NamedTuple):
    """The alternatives that are wanted.

    Attributes
    ----------
    k : int
        Number of assignments, the best one included; at least 1.
    within : float or None
        Largest relative gap to the best assignment, |objective − best| / max(1, |best|); None for any.
    distance : int
        Least number of variables in which any two of them differ; at least 1.
    over : tuple of str or None
        The variables that count for ``distance``; None for all variables.
    """

    k: int
    within: float | None = None
    distance: int = 1
    over: tuple[str, ...] | None = None

    def checked(self, problem: Problem) -> "AlternativesRequest":
        """Return the request with numbers of Python; raise ConfigError if a part of it is not allowed."""
        k, within, distance = (plain_value(number) for number in (self.k, self.within, self.distance))
        for name, number in (("k", k), ("distance", distance)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ConfigError(f"alternatives: {name}: expected a whole number of at least 1, got {number!r}")
        if within is not None and (isinstance(within, bool) or not (isinstance(within, int | float) and within >= 0)):
            raise ConfigError(f"alternatives: within: expected a number of at least 0, such as 0.02, got {within!r}")
        for name in self.over or ():
            if name not in problem.variables:
                hint = suggest_name(str(name), problem.variables)
                raise ConfigError(f"alternatives: over: variable {name!r} does not exist{hint}")
        return self._replace(k=k, within=within, distance=distance)


def alternative_of(problem: Problem, values: Ints, first: Ints, bound: Number | None, proven: bool) -> Alternative:
    """Return an alternative; the bound of a proven one is its objective."""
    objective = problem.evaluate(values).objective
    return Alternative(
        objective=objective,
        bound=objective if bound is None and proven else bound,
        proven=proven,
        changed=int(np.count_nonzero(values != first)),
        assignment=problem.assignment(values),
    )


def is_within(problem: Problem, within: float | None, best: Number, objective: Number) -> bool:
    """Return whether an objective (or a bound) is worse than the best one by at most a relative gap."""
    loss = problem.to_own_sense(best) - problem.to_own_sense(objective)
    return within is None or bool(loss <= within * max(1, abs(best)))


def solve_in_share(solve: Callable[[Settings], Result], settings: Settings, until: float, runs: int) -> Result:
    """Solve in an equal share of the time that is left; if nothing is found, solve again in all of it.

    Parameters
    ----------
    solve
        Solves the problem with some settings.
    settings
        The settings; their time budget is replaced, if there is one.
    until
        When to stop (``time.perf_counter``); infinity for no limit.
    runs
        Number of runs among which the time is divided.
    """
    if until == float("inf"):
        return solve(settings)
    while True:
        seconds = max(0.01, (until - time.perf_counter()) / runs)
        result = solve(replace(settings, budget=replace(settings.budget, time=seconds)))
        if result.objective is not None or result.status == "infeasible" or runs == 1 or time.perf_counter() >= until:
            return result
        runs = 1


def distance_constraint(
    problem: Problem, values: Ints, distance: int, over: Sequence[int], name: str
) -> AutomatonFactor:
    """Return the hard constraint that at least ``distance`` variables have another value than in an assignment.

    The automaton counts the changed variables up to ``distance``.

    Parameters
    ----------
    problem : Problem
        The problem.
    values : (variables,) int64
        The assignment.
    distance : int
        The least Hamming distance, at least 1.
    over : sequence of int
        The variables that count; at least one.
    name : str
        Name of the factor.
    """
    scope = sorted(over, key=lambda v: (int(problem.owner[v]), v))  # few states between the agents
    shape = [int(problem.domains[v]) for v in scope]

    def step(position: int, changed: int, value: int) -> tuple[int, int | None]:
        """Return the number of changed variables after this one; forbid values after which too few are left."""
        changed = min(distance, changed + (value != values[scope[position]]))
        return changed, 0 if changed + len(scope) - position - 1 >= distance else None

    automaton = unroll(scope, shape, 0, step, name=name)
    weights = tuple((np.arange(size) != values[v]).astype(np.int64) for v, size in zip(scope, shape, strict=True))
    return AutomatonFactor(scope, automaton.layers, name, SumBounds(weights, distance, None))


def by_solving(
    problem: Problem,
    settings: Settings,
    request: AlternativesRequest,
    until: float,
    first: Result,
    solve: Callable[[Problem, Settings], Result],
) -> tuple[list[Alternative], str]:
    """Return assignments that differ enough from each other, and why there are fewer than k (empty if there are not).

    Each is the best one that was found among those that differ enough from all earlier ones.

    Parameters
    ----------
    problem, settings, request
        As for :func:`dmcmc.questions.alternatives.solve_with_alternatives`.
    until
        When to stop (``time.perf_counter``).
    first
        The result without conditions.
    solve
        Solves a problem in this process.
    """
    assert first.assignment is not None
    values = [problem.values_of(first.assignment)]
    found = [alternative_of(problem, values[0], values[0], first.bound, first.status == "optimal")]
    over = range(problem.n_variables) if request.over is None else [problem.variables.index(x) for x in request.over]
    settings, factors = undivided_settings(settings), problem.factors
    different = f"differs in {request.distance} variable{'s' if request.distance > 1 else ''} from all of these"
    while len(found) < request.k:
        if time.perf_counter() >= until:
            return found, "the time limit was reached"
        if len(over) < request.distance:
            return found, f"no other assignment {different}"
        name = f"different from alternative {len(found)}"
        try:
            factors = (*factors, distance_constraint(problem, values[-1], request.distance, over, name))
            constrained = dataclasses.replace(undivided(problem, settings), factors=factors)
            result = solve_in_share(partial(solve, constrained), settings, until, request.k - len(found))
        except ResourceError as error:
            return found, str(error)
        if result.status == "infeasible":
            return found, f"no other assignment {different} (proven)"
        if result.objective is None or result.assignment is None:
            return found, f"none was found in time that {different}"
        values.append(constrained.values_of(result.assignment))
        found.append(alternative_of(problem, values[-1], values[0], result.bound, result.status == "optimal"))
        if not is_within(problem, request.within, found[0].objective, found[-1].objective):
            proven = result.bound is not None and not is_within(
                problem, request.within, found[0].objective, result.bound
            )
            what = f"within {request.within:g} of the best {different}"
            return found, f"no other assignment {what} (proven)" if proven else f"none was found {what}"
    return found, ""


def k_best(
    problem: Problem, settings: Settings, request: AlternativesRequest, until: float
) -> list[Alternative] | None:
    """Return the k best assignments, proven; None if their junction tree does not fit the memory or the time."""
    now = time.perf_counter()
    stop = Deadline(until if until == float("inf") else now + tuning.MAIN_SHARE * max(0.0, until - now))
    try:
        with kernels_until(stop, settings), interpreted_tree_if_small(problem, settings):
            memory = split_memory(settings.budget.bytes, problem).work
            tree = JunctionTree(problem, True, memory, stop, settings.device)
            values = list(islice(_until_outside(problem, best_assignments(tree), request.within), request.k))
    except ResourceError:
        return None
    return [alternative_of(problem, x, values[0], None, True) for x in values]


def _until_outside(problem: Problem, found: Iterator[Ints], within: float | None) -> Iterator[Ints]:
    """Yield assignments up to the first one that is outside the gap, which is included."""
    best: Number | None = None
    for values in found:
        objective = problem.evaluate(values).objective
        best = objective if best is None else best
        yield values
        if not is_within(problem, within, best, objective):
            return


def solve_with_alternatives(
    problem: Problem,
    settings: Settings,
    request: AlternativesRequest,
    progress: ProgressReporter | None = None,
    explain: Explain | None = None,
    ending: RunHandle | None = None,
) -> Result:
    """Solve a problem, and find alternatives to the best assignment, in this process.

    With a time budget, the first run gets half of it, and each further one an equal share of the time that is left.
    With ``stay``, the objectives include the cost of moving.

    Parameters
    ----------
    problem : Problem
        The problem.
    settings : Settings
        How to solve it.
    request : AlternativesRequest
        The number of alternatives, and the conditions on them.
    progress
        Receives the progress of the first run.
    explain
        Called with the plan of the first run.
    ending
        Handle by which a signal ends the first run.

    Returns
    -------
    Result
        The result of the first run with ``alternatives``, of which the first one is the best assignment; empty if none
        was found. ``note`` says why there are fewer than k.

    Raises
    ------
    DmcmcError
        As for :func:`dmcmc.solve`; if the request is not allowed.
    """
    check_weighted(problem, "alternatives")
    if settings.stay is None:
        return _find(problem, settings, request, progress, explain, ending)
    costs = agree_on_costs(problem, settings, World())
    assert costs is not None  # on the only rank
    if ending is not None:
        ending.complete = costs.report
    found = _find(costs.problem, replace(settings, stay=None), request, progress, explain, ending)
    return costs.report(found)


def _find(
    problem: Problem,
    settings: Settings,
    request: AlternativesRequest,
    progress: ProgressReporter | None,
    explain: Explain | None,
    ending: RunHandle | None,
) -> Result:
    """Solve a problem without costs of moving, and find alternatives to the best assignment."""
    request, start = request.checked(problem), time.perf_counter()
    settings = with_memory_limit(settings, World())
    limit = settings.budget.time
    until = float("inf") if limit is None else start + limit

    def solve_with(limited: Settings) -> Result:
        result = choose_algorithm.solve_as_configured(problem, limited, World(), progress, explain, ending)
        assert result is not None  # on the only rank
        return result

    first = solve_in_share(solve_with, settings, until, min(request.k, 2))
    if first.objective is None or first.assignment is None:
        no_word = first.status == "infeasible" or request.k == 1
        notes = [first.note or "", "" if no_word else "no alternatives: nothing was found to compare them with"]
        return replace(first, note="; ".join(filter(None, notes)) or None, time=time.perf_counter() - start)
    found, note = None, ""
    if request.distance == 1 and request.over is None and request.k > 1:
        found = k_best(problem, settings, request, until)
    if found is None:
        found, note = by_solving(problem, settings, request, until, first, choose_algorithm.solve_alone)
    elif len(found) < request.k:
        note = "no other assignment breaks no hard constraint"
    best = found[0]
    found = [x for x in found if is_within(problem, request.within, best.objective, x.objective)]
    if len(found) < request.k and not note:
        note = f"no other assignment is within {request.within:g} of the best"
    if best.proven:
        facts = {"status": "optimal", "objective": best.objective, "bound": best.bound, "gap": 0.0, "violation": 0}
        first = replace(first, assignment=best.assignment, **facts)
    notes = [x for x in (first.note, note and f"{len(found)} alternatives: {note}") if x]
    elapsed = time.perf_counter() - start
    return replace(first, alternatives=tuple(found), note="; ".join(notes) or None, time=elapsed)
