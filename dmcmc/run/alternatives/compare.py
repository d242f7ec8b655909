"""Compare alternatives with the best assignment, and divide the time among the runs that find them."""

import time
from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.results.result import Alternative, Result


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
