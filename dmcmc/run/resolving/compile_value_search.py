"""Compile the kernels of the search with a root for each value of a variable."""

import time
from contextlib import suppress

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.compile import compilation_seconds
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.types import Ints
from dmcmc.run.compilation.tiny_problems import tiny_problem
from dmcmc.run.resolving.one_boundary_variable import dense_dtype
from dmcmc.run.resolving.value_search import search_values
from dmcmc.samplers.tuning import common


def compile_search(problem: Problem, settings: Settings) -> float:
    """Compile what :func:`search_values` calls for a problem, by a tiny one; return the seconds that this takes."""
    dtype = dense_dtype(problem, settings)
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
