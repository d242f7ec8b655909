"""Find diverse assignments: solve the problem again with the constraint to differ from all earlier ones."""

import dataclasses
import time
from collections.abc import Callable
from functools import partial

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.results.result import Alternative, Result
from dmcmc.run.alternatives.compare import alternative_of, is_within, solve_in_share
from dmcmc.run.alternatives.distance_constraint import distance_constraint
from dmcmc.run.alternatives.request import AlternativesRequest
from dmcmc.run.resolving.undivided import undivided, undivided_settings


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
        As for :func:`dmcmc.run.alternatives.find_alternatives.solve_with_alternatives`.
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
