"""Find several good assignments: the k best ones by max-marginals, or diverse ones by solving repeatedly.

The k best assignments are exact where a junction tree of the whole problem fits the memory
(:mod:`dmcmc.inference.marginals.k_best`). Otherwise, and for assignments that differ in several variables, the problem
is solved again and again, each time with the constraint that the next assignment differs from all earlier ones.
"""

import time

from msgspec.structs import replace

from dmcmc.config.settings import Settings
from dmcmc.inference.levels.one_after_the_other import check_weighted
from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run.algorithms import choose_algorithm
from dmcmc.run.alternatives.by_solving import by_solving
from dmcmc.run.alternatives.compare import is_within, solve_in_share
from dmcmc.run.alternatives.k_best import k_best
from dmcmc.run.alternatives.request import AlternativesRequest
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import Explain, ProgressReporter
from dmcmc.solving.planning.divided_problem import with_memory_limit
from dmcmc.solving.warm_start.moving_costs import agree_on_costs


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

    def solve(limited: Settings) -> Result:
        result = choose_algorithm.solve(problem, limited, World(), progress, explain, ending)
        assert result is not None  # on the only rank
        return result

    first = solve_in_share(solve, settings, until, min(request.k, 2))
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
