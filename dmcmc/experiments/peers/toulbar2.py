"""toulbar2 as a peer: hybrid best-first search over the whole problem, on one core."""

import time

from dmcmc.experiments.peers.contract import Answer
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.toulbar2.costs import Costs
from dmcmc.samplers.toulbar2.search import Engine, Progress
from dmcmc.samplers.toulbar2.whole_problem import costs_of_problem

_MEMORY = 4 << 30
_NAP = 0.005  # seconds between two looks


def solve(problem: Problem, seconds: float, seed: int) -> Answer:
    """Search until the time is over; the seed is not used.

    Raises
    ------
    Unavailable
        If it is not installed.
    """
    costs = costs_of_problem(problem, _MEMORY)
    if not costs.feasible:
        return Answer(None, None, True, 0.0, [])
    trace = list[tuple[float, Number | None, Number | None]]()
    with Engine() as engine:
        begun = time.perf_counter()
        progress = engine.start(costs, None, seconds)
        seen: object = None
        while True:
            ended = progress.ended or time.perf_counter() - begun > seconds
            now = time.perf_counter() - begun
            if progress.values is not seen:
                seen = progress.values
                trace.append((now, _objective(problem, progress), None))
            if ended:
                break
            time.sleep(_NAP)
        took = time.perf_counter() - begun
    values = None if progress.values is None else progress.values[: problem.n_variables]
    bound = _bound(problem, costs, progress)
    return Answer(values, bound, progress.complete and values is None, took, trace)


def _objective(problem: Problem, progress: Progress) -> Number | None:
    assert progress.values is not None
    evaluation = problem.evaluate(progress.values[: problem.n_variables])
    return None if evaluation.violation else evaluation.objective


def _bound(problem: Problem, costs: Costs, progress: Progress) -> Number | None:
    """Return what is proven, in the problem's own sense; None where nothing is better than no cost at all."""
    if progress.complete:
        if progress.values is None:
            return None
        return problem.to_own_sense(costs.bound(costs.of(progress.values)))
    return problem.to_own_sense(costs.bound(progress.lower))
