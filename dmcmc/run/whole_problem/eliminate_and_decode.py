"""Eliminate a whole problem, decode its assignment, and search from it."""

import numpy as np

from dmcmc.anytime.local_search import IncumbentSearch
from dmcmc.inference.execution.exact_or_mini_buckets import RelaxedElimination
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.results.outcome import BoundProof
from dmcmc.run.whole_problem.eliminate_whole import eliminate_whole
from dmcmc.solving.agent.uncombined_bound import largest_sum
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.tuning import SWEEPS


def eliminate_and_decode(parts: DividedProblem, search: IncumbentSearch, stop: Deadline) -> RelaxedElimination | None:
    """Eliminate all variables and record the decoded assignment; return None if the elimination was given up."""
    timed, elimination = parts.timed, None
    try:
        elimination = eliminate_whole(parts, stop)
        _decode(elimination, search, stop.left if timed else None)
    except (OutOfTime, OutOfMemory) as error:
        if isinstance(error, OutOfMemory) and not timed:
            raise
        search.incumbent.give_up(error)
        if isinstance(error, OutOfMemory):
            search.use_remaining_time()
    return elimination


def proof_of(elimination: RelaxedElimination | None, parts: DividedProblem) -> BoundProof:
    """Return the bound of the elimination, or the sum of all factors' largest entries if it was given up."""
    factors, arithmetic = [f for f in parts.problem.factors if f.scope], parts.arithmetic
    if elimination is None:
        return BoundProof([largest_sum(factors, arithmetic)], arithmetic, len(parts.problem.factors))
    return BoundProof([elimination.elimination.total()], arithmetic, len(parts.problem.factors), elimination.margin)


def _decode(elimination: RelaxedElimination, search: IncumbentSearch, seconds: float | None) -> None:
    """Record the elimination's assignment, and search for a better one if the elimination was not exact."""
    values = np.zeros(search.parts.problem.n_variables, dtype=np.int64)
    elimination.elimination.choose(values)
    search.make_1_optimal(values)
    if elimination.z is not None and seconds is None and not search.decodes_only:
        search.improve(None, SWEEPS)
    elif elimination.z is not None and seconds is not None:
        search.improve_while_it_pays(seconds)
