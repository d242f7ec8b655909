"""toulbar2 as a peer: hybrid best-first branch and bound on the whole problem, on one core."""

import time

from dmcmc.experiments.peers.contract import PeerAnswer
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.external.process import SearchProgress
from dmcmc.samplers.toulbar2.costs import CostProblem
from dmcmc.samplers.toulbar2.process import Toulbar2Process
from dmcmc.samplers.toulbar2.whole_problem import costs_of_problem

_MAX_TABLE_BYTES = 4 << 30  # bytes of the problem's cost tables
_POLL_SECONDS = 0.005  # between two checks of the search


def solve(problem: Problem, seconds: float, seed: int) -> PeerAnswer:
    """Search until the time limit; the seed is not used.

    Raises
    ------
    Unavailable
        If pytoulbar2 is not installed.
    """
    costs = costs_of_problem(problem, _MAX_TABLE_BYTES)
    if not costs.feasible:
        return PeerAnswer(None, None, True, 0.0, [])
    trace = list[tuple[float, Number | None, Number | None]]()
    with Toulbar2Process() as solver:
        begun = time.perf_counter()
        progress = solver.start(costs, None, seconds)
        last_values: object = None
        while True:
            ended = progress.ended or time.perf_counter() - begun > seconds
            now = time.perf_counter() - begun
            if progress.values is not last_values:
                last_values = progress.values
                trace.append((now, _objective(problem, progress), None))
            if ended:
                break
            time.sleep(_POLL_SECONDS)
        solver_seconds = time.perf_counter() - begun
    values = None if progress.values is None else progress.values[: problem.n_variables]
    bound = _bound(problem, costs, progress)
    return PeerAnswer(values, bound, progress.complete and values is None, solver_seconds, trace)


def _objective(problem: Problem, progress: SearchProgress) -> Number | None:
    """Return the objective of the best assignment; None if it breaks a hard constraint."""
    assert progress.values is not None
    evaluation = problem.evaluate(progress.values[: problem.n_variables])
    return None if evaluation.violation else evaluation.objective


def _bound(problem: Problem, costs: CostProblem, progress: SearchProgress) -> Number | None:
    """Return the proven bound in the problem's own sense; None if the search proved infeasibility."""
    if progress.complete:
        if progress.values is None:
            return None
        return problem.to_own_sense(costs.bound(costs.of(progress.values)))
    return problem.to_own_sense(costs.bound(progress.lower))
