"""Marginals of every variable: probabilities, or the best objective that each value allows.

Both are read from a junction tree (Shenoy-Shafer message passing) over the whole problem, on one process.
"""

import math
import time
from typing import Literal

from msgspec.structs import replace

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.memory_shares import split_memory
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.results.questions import Marginals
from dmcmc.results.result import Result
from dmcmc.results.stored_result import provenance
from dmcmc.run.compilation.small_problems import interpreted_tree_if_small

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
