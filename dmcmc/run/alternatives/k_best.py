"""Find the k best assignments by a junction tree of the whole problem (Nilsson 1998)."""

import time
from collections.abc import Iterator
from itertools import islice

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.memory_shares import split_memory
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.marginals.k_best import best_assignments
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.results.result import Alternative
from dmcmc.run.alternatives.compare import alternative_of, is_within
from dmcmc.run.alternatives.request import AlternativesRequest
from dmcmc.run.compilation.kernel_supply import kernels_until
from dmcmc.run.compilation.small_problems import interpreted_tree_if_small
from dmcmc.samplers.tuning import common


def k_best(
    problem: Problem, settings: Settings, request: AlternativesRequest, until: float
) -> list[Alternative] | None:
    """Return the k best assignments, proven; None if their junction tree does not fit the memory or the time."""
    now = time.perf_counter()
    stop = Deadline(until if until == float("inf") else now + common.MAIN_SHARE * max(0.0, until - now))
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
