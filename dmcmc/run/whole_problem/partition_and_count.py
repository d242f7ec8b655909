"""Sums over all assignments of a problem: the partition function, and the number of solutions.

Both are computed by variable elimination over the whole problem, on one process.
"""

import math
import time
from typing import Literal

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.memory_shares import split_memory
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sums.counting import count_solutions
from dmcmc.inference.sums.partition_function import log_partition
from dmcmc.results.questions import Sums, exp_or_none
from dmcmc.results.stored_result import provenance
from dmcmc.run.compilation.small_problems import interpreted_tree_if_small

_LN_10 = math.log(10)


def sums(problem: Problem, config: Settings, task: Literal["pr", "count"]) -> Sums:
    """Return the partition function (costs c as exp(−c), utilities u as exp(u)), or the number of solutions.

    Parameters
    ----------
    problem
        The problem; its agents do not matter.
    config
        Settings; memory budget and device are used. ``combine.method: mini-bucket`` gives an upper bound on a partition
        function.
    task
        ``"pr"`` for the partition function, ``"count"`` for the number of solutions.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory.
    """
    start = time.perf_counter()
    memory, backend = split_memory(config.budget.bytes, problem).work, Backend.of(config.device, cores())
    z: int | None = None
    value: Number | None
    with interpreted_tree_if_small(problem, config):
        if task == "count":
            counted = count_solutions(problem, memory, backend)
            value, width, cells = counted.count, counted.width, counted.cells
            ln = math.log(value) if value else -math.inf
        else:
            uses_mini_buckets, limit = config.combine.method == "mini-bucket", config.combine.z
            found = log_partition(
                problem, memory, backend, uses_mini_buckets, limit if isinstance(limit, int) else None
            )
            ln, z, width, cells = found.ln, found.z, found.width, found.cells
            value = exp_or_none(ln)
    feasible = ln > -math.inf
    return Sums(
        task=task,
        status="infeasible" if not feasible else "exact" if z is None else "bound",
        value=value if feasible else 0,
        ln=ln if feasible else None,
        log10=ln / _LN_10 if feasible else None,
        time=time.perf_counter() - start,
        variables=problem.n_variables,
        width=width,
        cells=cells,
        z=z,
        provenance=provenance(config, 1, backend.threads),
    )
