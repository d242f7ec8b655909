"""Bounds on the best utility with each value of one variable, by one branch and bound with a root for each value.

The variable is the only boundary variable of a subproblem that holds all others, so each of its values is a row. A dual
ascent bounds all rows, and branch and bound closes the gap between a row's bound and the best assignment known for it.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
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
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.dpop.memory_shares import split_memory
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.compile import compilation_seconds
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import DmcmcError, ResourceError
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.run.compilation.tiny_problems import tiny_problem
from dmcmc.samplers import registry as samplers
from dmcmc.samplers.auto.survey import SAMPLER
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.tuning import common
from dmcmc.solving.planning.divided_problem import arithmetic_for


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
        memory = split_memory(settings.budget.bytes, problem).work
        dense = densify(problem, memory).problem
        hidden = tuple(u for u in range(dense.n_variables) if u != v)
        local = LocalProblem(0, (v,), hidden, tuple(f for f in dense.factors if f.scope), dense.domains)
        arithmetic, stop = arithmetic_for(dense, settings.combine), Deadline(until)
        backend, begun = Backend(settings.device, cores(), stop=stop), time.perf_counter()
        known = start if dense.n_variables == problem.n_variables else None
        for row, values in _sampled(
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
                found(int(row), _joined(local, int(row), leaf)[: problem.n_variables])
            if search.exhausted:
                break
    except ResourceError:
        if state is None:
            return None
    assert state is not None
    tables, rows = state.tables(arithmetic), range(int(problem.domains[v]))
    return [_row_bound(tables, row, arithmetic) for row in rows], arithmetic, len(dense.factors)


def compile_search(problem: Problem, settings: Settings) -> float:
    """Compile what :func:`search_values` calls for a problem, by a tiny one; return the seconds that this takes."""
    dtype = arithmetic_for(densify(problem, settings.budget.bytes).problem, settings.combine).dtype
    types = {factor.table.dtype for factor in problem.factors if type(factor) is Factor}
    tiny, known = tiny_problem(dtype, sorted(types, key=str) or [dtype]), dict[int, Ints]()

    def found(value: int, values: Ints) -> None:
        if not tiny.evaluate(values).violation:
            known.setdefault(value, values)

    seconds, compiled = 0.0, -1.0
    while compilation_seconds() > compiled:  # the deadline may pass while the first kernels are compiled
        begun, compiled = time.perf_counter(), compilation_seconds()
        with suppress(DmcmcError):
            search_values(tiny, 0, known.get, found, None, settings, begun + common.SLICE_SECONDS)
        if compilation_seconds() > compiled:
            seconds += time.perf_counter() - begun
    return seconds


def _sampled(
    local: LocalProblem, arithmetic: Arithmetic, start: Ints | None, seed: int, backend: Backend, seconds: float
) -> Iterator[tuple[int, Ints]]:
    """Yield the best assignment that chains find for each row of a subproblem with one boundary variable."""
    sampling = Sampling(arithmetic, seed, backend=backend, seconds=seconds, incumbent=start)
    (table,) = samplers.get(SAMPLER).solve([local], sampling)
    (v,) = local.interface
    for row in range(local.rows):
        hidden = table.witness({v: row})
        yield row, _joined(local, row, [hidden[u] for u in local.hidden])


def _joined(local: LocalProblem, row: int, hidden: Sequence[int] | Ints) -> Ints:
    """Return the assignment that consists of a row and of values of the hidden variables."""
    values = np.zeros(local.domains.size, dtype=np.int64)
    values[[*local.hidden, *local.interface]] = [*hidden, row]
    return values


def _attained(problem: Problem, v: int, best: Callable[[int], Ints | None], integral: bool) -> NDArray[Any]:
    """Return the utility of the best known assignment with each value; the smallest number without one."""
    known = [best(value) for value in range(int(problem.domains[v]))]
    utilities = [None if values is None else problem.utility_inside(values) for values in known]
    if integral:
        lowest = int(np.iinfo(np.int64).min)
        return np.array([lowest if x is None else int(x) for x in utilities], dtype=np.int64)
    return np.array([-np.inf if x is None else math.nextafter(float(x), -math.inf) for x in utilities])


def _row_bound(tables: Sequence[EncodedTable], row: int, arithmetic: Arithmetic) -> Number:
    """Return the sum of a row's entries in some tables over one variable; −∞ if one of them is."""
    entries: list[Number] = [(table.values[row] if table.scope else table.values).item() for table in tables]
    return arithmetic.lowest if any(map(arithmetic.is_lowest, entries)) else sum(entries)
