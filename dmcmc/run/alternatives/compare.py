"""Compare alternatives with the best assignment, and divide the time among the runs that find them."""

import time

import numpy as np
from msgspec.structs import replace

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.results.alternatives import Alternative


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


def with_share_of_time(settings: Settings, until: float, runs: int) -> Settings:
    """Return settings whose time budget is an equal share of the time that is left."""
    if until == float("inf"):
        return settings
    seconds = max(0.01, (until - time.perf_counter()) / runs)
    return replace(settings, budget=replace(settings.budget, time=seconds))
