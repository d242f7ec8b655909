"""Max-marginals within a time limit: exact where an elimination fits, otherwise bounds from solving repeatedly.

A junction tree gives the max-marginals of all variables. Where it does not fit, an elimination that keeps one variable
gives those of this variable, one variable after the other. Where that does not fit either, one branch and bound has a
root for each value of the variable. Values that are not proven then are fixed in turn, and the problem is solved again
from the best known assignment with the value. The answer is a lower bound on the best utility with this value, and the
bound of the run is an upper bound. Every assignment that is found also improves the lower bounds of all of its values,
and the bound on the whole problem is an upper bound for every value.
"""

import dataclasses
import time
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from msgspec.structs import replace

from dmcmc.algorithms.choice import choose_algorithm
from dmcmc.compilation.kernel_supply import kernels_until
from dmcmc.config.settings import Settings
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.mpi.world import World
from dmcmc.questions.one_agent import undivided, undivided_settings
from dmcmc.questions.sums import marginals
from dmcmc.questions.value_intervals import ValueTable, bound_variables
from dmcmc.results.questions import Marginals
from dmcmc.results.stored_result import provenance
from dmcmc.samplers.contract import tuning as sampler_tuning
from dmcmc.solving.planning.divided_problem import with_memory_limit
from dmcmc.tuning import run as tuning


def timed_max_marginals(problem: Problem, settings: Settings, variables: Sequence[str] = ()) -> Marginals:
    """Return the best objective with each value, or bounds on it, within the time budget.

    Parameters
    ----------
    problem : Problem
        The problem; its agents do not matter.
    settings : Settings
        Settings with a time budget.
    variables : sequence of str
        The variables whose values are fixed, in this order; all variables if empty. The values of the others have the
        bounds that follow from these runs.

    Returns
    -------
    Marginals
        Exact max-marginals, or ``status="bounded"`` with ``intervals``.
    """
    start, limit = time.perf_counter(), settings.budget.time
    assert limit is not None
    settings = with_memory_limit(settings, World())
    seconds = sampler_tuning.FIRST_SHARE * limit
    memory = min(settings.budget.bytes, int(seconds * tuning.TREE_BYTES_PER_SECOND))
    small = replace(settings, budget=replace(settings.budget, memory=memory))
    try:
        with kernels_until(Deadline(start + seconds), small):
            return marginals(problem, small, "max-marginals", Deadline(start + seconds))
    except ResourceError:
        pass
    settings = undivided_settings(settings)
    whole, end = undivided(problem, settings), start + limit
    first = choose_algorithm.solve_alone(
        whole, _limited(settings, sampler_tuning.FIRST_SHARE * (end - time.perf_counter()))
    )
    bounds = ValueTable(problem, first)
    if first.status != "infeasible":
        wanted = [problem.variables.index(name) for name in variables or problem.variables]
        with suppress(ResourceError), kernels_until(Deadline(end), settings):
            bound_variables(problem, wanted, settings, bounds, end)
        _fix_values(whole, wanted, settings, bounds, end)
    return Marginals(
        task="max-marginals",
        status="infeasible" if first.status == "infeasible" else "bounded",
        marginals={},
        objective=bounds.best,
        intervals={} if first.status == "infeasible" else bounds.intervals(),
        time=time.perf_counter() - start,
        planning=0.0,
        variables=problem.n_variables,
        cliques=0,
        width=0,
        cells=0,
        provenance=provenance(settings, 1, 1),
    )


def _fix_values(whole: Problem, wanted: Sequence[int], settings: Settings, bounds: ValueTable, end: float) -> None:
    """Solve the problem with each value that is not proven yet, from the best known assignment with it."""
    pairs = [(v, value) for v in wanted for value in range(int(whole.domains[v]))]
    queue = [pair for pair in pairs if not bounds.is_proven(*pair)]
    for i, (v, value) in enumerate(queue):
        left = end - time.perf_counter()
        if left <= 0:
            return
        if not bounds.is_proven(v, value):
            start = replace(settings, start=bounds.start_with(v, value))
            limited = _limited(start, min(left, max(2 * sampler_tuning.GRACE_SECONDS, left / (len(queue) - i))))
            result = choose_algorithm.solve_alone(_fixed(whole, v, value), limited)
            bounds.record(v, value, bounds.answer_of(result))


def _fixed(problem: Problem, v: int, value: int) -> Problem:
    """Return the problem with all other values of a variable forbidden."""
    table = np.full(int(problem.domains[v]), -np.inf)
    table[value] = 0.0
    only = Factor.of((v,), table, name=f"{problem.variables[v]} = {problem.label(v, value)}")
    return dataclasses.replace(problem, factors=(*problem.factors, only))


def _limited(settings: Settings, seconds: float) -> Settings:
    """Return settings with another time budget in seconds."""
    return replace(settings, budget=replace(settings.budget, time=max(sampler_tuning.CHECK_SECONDS / 2, seconds)))
