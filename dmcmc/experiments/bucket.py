"""The experiment task ``bucket``: time the largest bucket of a bucket elimination alone (GpuBE, Figure 10).

A bucket is one elimination step: its tables are joined, and one variable is maximised out.
"""

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

_MAX_ENTRY = 100  # table entries are drawn from 0 to this
_REPETITIONS = 5  # timed eliminations, after one that loads the kernels
# int32; −2^29 stands for −∞, so that the sum of four of them still fits; finite sums have magnitudes up to 2^27.
_ARITHMETIC = Arithmetic(np.dtype(np.int32), -(2**29), 2**27)


def largest_bucket(problem: Problem, config: Config) -> dict[str, Any]:
    """Eliminate the variable of the largest joined table several times and return the record with the median time.

    The entries of its tables are drawn at random, since the work does not depend on them. The objective is the largest
    entry of the message, which is the same on every device. ``cells`` is the number of entries of the joined table, and
    ``width`` the number of variables of the message (the separator).

    Parameters
    ----------
    problem
        The problem; only its scopes and domain sizes matter.
    config
        The device, the seed of the entries, and the memory limit ``budget.memory``.

    Raises
    ------
    ResourceError
        If the tables do not fit ``budget.memory``.
    """
    dense = densify(problem, config.budget.bytes).problem
    scopes = dense.flat.scopes()
    order = best_order(scopes, dense.domains, range(dense.n_variables))
    full_plan = plan_elimination(scopes, dense.domains, order.variables)
    bucket = int(np.argmax(full_plan.program.cells))
    inputs, separator = full_plan.inputs(bucket), full_plan.scope(full_plan.output(bucket))
    entries = sum(int(full_plan.sizes[t]) for t in (*inputs, full_plan.output(bucket)))
    # Factor 3: an allowance for the tables as drawn, their concatenated copy, and the elimination's working memory.
    if 3 * _ARITHMETIC.dtype.itemsize * entries > config.budget.bytes:
        raise ResourceError(f"the largest bucket has {entries} table entries, more than budget.memory allows")
    rng = np.random.default_rng(config.seed)
    tables = [rng.integers(0, _MAX_ENTRY, full_plan.shape(t), dtype=np.int32, endpoint=True) for t in inputs]
    flat = flatten([full_plan.scope(t) for t in inputs], tables, _ARITHMETIC.dtype)
    variable = int(full_plan.program.variable[bucket])
    plan = plan_flat(flat.scope_start, flat.scope, full_plan.program.domains, [variable], separator)
    backend, seconds, best = Backend.of(config.device, cores()), list[float](), 0
    for _ in range(_REPETITIONS + 1):  # the first one loads the kernels
        begun = time.perf_counter()
        eliminated = backend.eliminate(flat, plan, _ARITHMETIC)
        best = int(eliminated.table(plan.output(0)).values.max())
        seconds.append(time.perf_counter() - begun)
    return {
        "outcome": "done",
        "status": "optimal",
        "objective": best,
        "bound": best,
        "violation": 0,
        "sense": problem.sense,
        "time": median(seconds[1:]),
        "cells": int(full_plan.program.cells[bucket]),
        "width": len(separator),
        "trace": [],
    }
