"""The task ``bucket``: the largest bucket of a problem's elimination alone, as GpuBE's Fig. 10 looks at it."""

import time
from statistics import median
from typing import Any

import numpy as np

from dmcmc.config.configuration import Config
from dmcmc.inference.elimination.plan import plan_elimination, plan_flat
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import cores

_MOST = 100  # of an entry
_TIMES = 5
_ARITHMETIC = Arithmetic(np.dtype(np.int32), -(2**29), 2**27)


def largest_bucket(problem: Problem, config: Config) -> dict[str, Any]:
    """Eliminate the variable of the largest joined table, several times, and keep the median of the times.

    What its tables hold does not change what is done: the entries are drawn, 0 to 100. The objective is the largest
    entry of the message, which is the same on every device; ``cells`` are those of the joined table.

    Raises
    ------
    ResourceError
        If the tables would not fit the memory.
    """
    dense = densify(problem, config.budget.bytes).problem
    scopes = dense.flat.scopes()
    order = best_order(scopes, dense.domains, range(dense.n_variables))
    whole = plan_elimination(scopes, dense.domains, order.variables)
    bucket = int(np.argmax(whole.program.cells))
    inputs, separator = whole.inputs(bucket), whole.scope(whole.output(bucket))
    entries = sum(int(whole.sizes[t]) for t in (*inputs, whole.output(bucket)))
    if 3 * _ARITHMETIC.dtype.itemsize * entries > config.budget.bytes:
        raise ResourceError(f"the largest bucket has {entries} entries: more than budget.memory allows")
    rng = np.random.default_rng(config.seed)
    tables = [rng.integers(0, _MOST, whole.shape(t), dtype=np.int32, endpoint=True) for t in inputs]
    flat = flatten([whole.scope(t) for t in inputs], tables, _ARITHMETIC.dtype)
    variable = int(whole.program.variable[bucket])
    plan = plan_flat(flat.scope_start, flat.scope, whole.program.domains, [variable], separator)
    backend, seconds, best = Backend.of(config.device, cores()), list[float](), 0
    for _ in range(_TIMES + 1):  # kernels are loaded by the first
        start = time.perf_counter()
        found = backend.eliminate(flat, plan, _ARITHMETIC)
        best = int(found.table(plan.output(0)).values.max())
        seconds.append(time.perf_counter() - start)
    return {
        "outcome": "done",
        "status": "optimal",
        "objective": best,
        "bound": best,
        "violation": 0,
        "sense": problem.sense,
        "time": median(seconds[1:]),
        "cells": int(whole.program.cells[bucket]),
        "width": len(separator),
        "trace": [],
    }
