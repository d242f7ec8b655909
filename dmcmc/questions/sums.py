"""Sums and maxima over all assignments of a problem: partition function, number of solutions, marginals.

The first two are computed by variable elimination over the whole problem, marginals and max-marginals by a junction
tree (Shenoy-Shafer message passing), on one process.
"""

import math
import time
from typing import Literal

from msgspec.structs import replace

from dmcmc.compilation.small_problems import interpreted_tree_if_small
from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.slicing import split_memory
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.marginals.counting import count_solutions, log_partition
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.runtime.types import Number
from dmcmc.results.questions import Marginals, Sums, exp_or_none
from dmcmc.results.result import Result
from dmcmc.results.stored_result import provenance

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


_LN_10 = math.log(10)


def marginals(
    problem: Problem, config: Settings, task: Literal["mar", "max-marginals"], stop: Deadline = NO_DEADLINE
) -> Marginals:
    """Return posterior marginals (costs c as exp(−c), utilities u as exp(u)), or max-marginals.

    Parameters
    ----------
    problem
        The problem; its agents do not matter. Evidence is part of its factors.
    config
        Settings; the memory budget and the device are used.
    task
        ``"mar"`` for posterior marginals, ``"max-marginals"`` for the best objective per value.
    stop
        When to give up.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory, or the deadline passes.
    """
    start = time.perf_counter()
    with interpreted_tree_if_small(problem, config):
        memory = split_memory(config.budget.bytes, problem).work
        tree = JunctionTree(problem, task == "max-marginals", memory, stop, config.device)
        planning = time.perf_counter() - start
        total = tree.total()
        feasible = math.isfinite(total)
        marginals_by_variable = tree.marginals() if feasible else {}
    ln = float(total) if feasible and task == "mar" else None
    return Marginals(
        task=task,
        status="exact" if feasible else "infeasible",
        marginals=marginals_by_variable,
        ln=ln,
        log10=None if ln is None else ln / _LN_10,
        objective=total if feasible and task == "max-marginals" else None,
        time=time.perf_counter() - start,
        planning=planning,
        variables=problem.n_variables,
        cliques=len(tree.tree.scopes),
        width=tree.width,
        cells=tree.cells,
        tables="sparse" if tree.incomplete else "dense",
        provenance=provenance(config, 1, 1),
    )


def with_max_marginals(result: Result, problem: Problem, config: Settings) -> Result:
    """Return a result with the best objective that each value of each variable allows, or with a note why it has none.

    Parameters
    ----------
    result
        Result of the problem; only an optimal one gets max-marginals.
    problem
        The problem.
    config
        Settings; the memory budget and the device are used.
    """
    reason = f"the result is {result.status}, not optimal"
    if result.status == "optimal":
        try:
            memory = split_memory(config.budget.bytes, problem).work
            with interpreted_tree_if_small(problem, config):
                tree = JunctionTree(problem, True, memory, device=config.device)
                return replace(result, max_marginals=tree.marginals())
        except ResourceError as error:
            reason = str(error)
    note = f"no max-marginals: {reason}"
    return replace(result, note=note if result.note is None else f"{result.note}; {note}")
