"""Find several good assignments: the k best ones by max-marginals, or diverse ones by solving repeatedly.

The k best assignments are exact where a junction tree of the whole problem fits the memory
(:mod:`dmcmc.inference.marginals.k_best`). Otherwise, and for assignments that differ in several variables, the problem
is solved again and again, each time with the constraint that the next assignment differs from all earlier ones.
"""

import dataclasses
import time
from collections.abc import Iterator
from itertools import islice

import numpy as np
from msgspec.structs import replace

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.memory_shares import split_memory
from dmcmc.inference.levels.one_after_the_other import check_weighted
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.marginals.k_best import best_assignments
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.mpi.world import World
from dmcmc.results.alternatives import Alternative
from dmcmc.results.result import Result
from dmcmc.run.algorithms import choose_algorithm
from dmcmc.run.alternatives.distance_constraint import distance_constraint
from dmcmc.run.alternatives.request import AlternativesRequest
from dmcmc.run.compilation.small_problems import interpreted_tree_if_small
from dmcmc.run.resolving.undivided import undivided, undivided_settings
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import Explain, ProgressReporter
from dmcmc.solving.planning.divided_problem import with_memory_limit
from dmcmc.solving.warm_start.moving_costs import agree_on_costs

_TREE_SHARE = 0.5  # share of the remaining time for the junction tree; the rest is for solving repeatedly without it
_FIRST_RUN = (
    2  # the first run gets the time divided by this number, since all alternatives are compared with its answer
)


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
    first = choose_algorithm.solve(
        problem, _limited(settings, until, min(request.k, _FIRST_RUN)), World(), progress, explain, ending
    )
    assert first is not None  # on the only rank
    if first.objective is None or first.assignment is None:
        return first
    found, note = None, ""
    if request.distance == 1 and request.over is None and request.k > 1:
        found = _k_best(problem, settings, request, until)
    if found is None:
        found, note = _by_solving(problem, settings, request, until, first)
    elif len(found) < request.k:
        note = "no other assignment breaks no hard constraint"
    best = found[0]
    found = [x for x in found if _is_within(problem, request.within, best.objective, x.objective)]
    if len(found) < request.k and not note:
        note = f"no other assignment is within {request.within:g} of the best"
    if best.proven:
        facts = {"status": "optimal", "objective": best.objective, "bound": best.bound, "gap": 0.0, "violation": 0}
        first = replace(first, assignment=best.assignment, **facts)
    notes = [x for x in (first.note, note and f"{len(found)} alternatives: {note}") if x]
    elapsed = time.perf_counter() - start
    return replace(first, alternatives=tuple(found), note="; ".join(notes) or None, time=elapsed)


def _k_best(
    problem: Problem, settings: Settings, request: AlternativesRequest, until: float
) -> list[Alternative] | None:
    """Return the k best assignments, proven; None if their junction tree does not fit the memory or the time."""
    now = time.perf_counter()
    stop = Deadline(until if until == float("inf") else now + _TREE_SHARE * max(0.0, until - now))
    try:
        with interpreted_tree_if_small(problem, settings):
            memory = split_memory(settings.budget.bytes, problem).work
            tree = JunctionTree(problem, True, memory, stop, settings.device)
            values = list(islice(_until_outside(problem, best_assignments(tree), request.within), request.k))
    except ResourceError:
        return None
    return [_alternative(problem, x, values[0], None, True) for x in values]


def _until_outside(problem: Problem, found: Iterator[Ints], within: float | None) -> Iterator[Ints]:
    """Yield assignments up to the first one that is outside the gap, which is included."""
    best: Number | None = None
    for values in found:
        objective = problem.evaluate(values).objective
        best = objective if best is None else best
        yield values
        if not _is_within(problem, within, best, objective):
            return


def _by_solving(
    problem: Problem, settings: Settings, request: AlternativesRequest, until: float, first: Result
) -> tuple[list[Alternative], str]:
    """Return assignments that differ enough from each other, and why there are fewer than k (empty if there are not).

    Each is the best one that was found among those that differ enough from all earlier ones.
    """
    assert first.assignment is not None
    values = [problem.values_of(first.assignment)]
    found = [_alternative(problem, values[0], values[0], first.bound, first.status == "optimal")]
    over = range(problem.n_variables) if request.over is None else [problem.variables.index(x) for x in request.over]
    settings, factors = undivided_settings(settings), problem.factors
    different = f"differs in {request.distance} variable{'s' if request.distance > 1 else ''} from all of these"
    while len(found) < request.k:
        if time.perf_counter() >= until:
            return found, "the time limit was reached"
        if len(over) < request.distance:
            return found, f"no other assignment {different}"
        name = f"different from alternative {len(found)}"
        factors = (*factors, distance_constraint(problem, values[-1], request.distance, over, name))
        constrained = dataclasses.replace(undivided(problem, settings), factors=factors)
        result = choose_algorithm.solve(constrained, _limited(settings, until, request.k - len(found)), World())
        assert result is not None  # on the only rank
        if result.status == "infeasible":
            return found, f"no other assignment {different} (proven)"
        if result.objective is None or result.assignment is None:
            return found, f"none was found in time that {different}"
        values.append(constrained.values_of(result.assignment))
        found.append(_alternative(problem, values[-1], values[0], result.bound, result.status == "optimal"))
        if not _is_within(problem, request.within, found[0].objective, found[-1].objective):
            proven = result.bound is not None and not _is_within(
                problem, request.within, found[0].objective, result.bound
            )
            what = f"within {request.within:g} of the best {different}"
            return found, f"no other assignment {what} (proven)" if proven else f"none was found {what}"
    return found, ""


def _alternative(problem: Problem, values: Ints, first: Ints, bound: Number | None, proven: bool) -> Alternative:
    """Return an alternative; the bound of a proven one is its objective."""
    objective = problem.evaluate(values).objective
    return Alternative(
        objective=objective,
        bound=objective if bound is None and proven else bound,
        proven=proven,
        changed=int(np.count_nonzero(values != first)),
        assignment=problem.assignment(values),
    )


def _is_within(problem: Problem, within: float | None, best: Number, objective: Number) -> bool:
    """Return whether an objective (or a bound) is worse than the best one by at most a relative gap."""
    loss = problem.to_own_sense(best) - problem.to_own_sense(objective)
    return within is None or bool(loss <= within * max(1, abs(best)))


def _limited(settings: Settings, until: float, runs: int) -> Settings:
    """Return settings whose time budget is an equal share of the time that is left."""
    if until == float("inf"):
        return settings
    seconds = max(0.01, (until - time.perf_counter()) / runs)
    return replace(settings, budget=replace(settings.budget, time=seconds))
