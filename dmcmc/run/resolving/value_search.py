"""Bounds on the best utility with each value of one variable, by one branch and bound with a root for each value.

The variable is the only boundary variable of a subproblem that holds all others, so each of its values is a row. A dual
ascent bounds all rows, and branch and bound closes the gap between a row's bound and the best assignment known for it.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.config.settings import Settings
from dmcmc.inference.bounds import registry
from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearchRequest,
    SearchedPart,
    next_above,
    run_boundary_searches,
)
from dmcmc.inference.bounds.branch_and_bound_rows import create_boundary_search
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.run.resolving.one_boundary_variable import row_total, with_boundary
from dmcmc.run.resolving.sampled_rows import joined, sampled_rows
from dmcmc.samplers.tuning import common


def search_values(
    problem: Problem,
    v: int,
    best: Callable[[int], Ints | None],
    found: Callable[[int, Ints], object],
    start: Ints | None,
    settings: Settings,
    until: float,
) -> tuple[list[Number], Arithmetic, int] | None:
    """Bound the best utility with each value of a variable, and improve the known assignments.

    Parameters
    ----------
    problem
        The problem; its agents do not matter.
    v
        The variable.
    best
        Returns the best known assignment with a value, which breaks no hard constraint; None without one.
    found
        Called with a value and an assignment that chains or the search have reached; it may break hard constraints.
    start : (n,) int64 or None
        The best assignment, from which the chains start.
    settings
        Settings; the memory budget and the device are used.
    until
        When to stop (``time.perf_counter``).

    Returns
    -------
    bounds : list of number
        An upper bound on the utility with each value, encoded, without constants.
    arithmetic : Arithmetic
        The encoding.
    addends : int
        Number of factors that the bounds sum over.

    None is returned if there is no dual ascent for the problem, or it does not fit the memory.
    """
    state: DualState | None = None
    try:
        local, arithmetic, addends, memory = with_boundary(problem, v, settings)
        backend, begun = Backend(settings.device, cores(), stop=Deadline(until)), time.perf_counter()
        known = start if local.domains.size == problem.n_variables else None
        for row, values in sampled_rows(
            local, arithmetic, known, settings.seed, backend, 2 * common.UNTRIED_SHARE * (until - begun)
        ):
            found(row, values[: problem.n_variables])
        started = registry.get("triangles").start(local, backend)
        if not isinstance(started, DualState) or not started.enumerated:
            return None
        state = started
        state.improve(2 * common.UNTRIED_SHARE * (until - begun))
        search = create_boundary_search(state, int(common.MEMORY_SHARE / 2 * memory), until - begun, SearchedPart.ALL)
        while time.perf_counter() < until and not state.exhausted:
            attained = _attained(problem, v, best, state.integral)
            thresholds = next_above(attained) if state.integral else attained
            run_boundary_searches([BoundarySearchRequest(search, thresholds, attained)], common.SLICE_SECONDS)
            for row, leaf in zip(*(search.leaves() or ((), ())), strict=True):
                found(int(row), joined(local, int(row), leaf)[: problem.n_variables])
            if search.exhausted:
                break
    except ResourceError:
        if state is None:
            return None
    assert state is not None
    tables, rows = state.tables(arithmetic), range(int(problem.domains[v]))
    return [row_total(tables, row, arithmetic) for row in rows], arithmetic, addends


def _attained(problem: Problem, v: int, best: Callable[[int], Ints | None], integral: bool) -> NDArray[Any]:
    """Return the utility of the best known assignment with each value; the smallest number without one."""
    known = [best(value) for value in range(int(problem.domains[v]))]
    utilities = [None if values is None else problem.utility_inside(values) for values in known]
    if integral:
        lowest = int(np.iinfo(np.int64).min)
        return np.array([lowest if x is None else int(x) for x in utilities], dtype=np.int64)
    return np.array([-np.inf if x is None else math.nextafter(float(x), -math.inf) for x in utilities])
