"""Marginals of every variable of a problem: probabilities, or the best that each value allows."""

import math
import time
from typing import Literal

from msgspec.structs import replace

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.memory_shares import shares_of
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.results.marginals import Marginals
from dmcmc.results.provenance import provenance
from dmcmc.results.result import Result

_LN_10 = math.log(10)


def marginals(problem: Problem, config: Settings, task: Literal["mar", "max-marginals"]) -> Marginals:
    """Return posterior marginals (costs c as exp(−c), utilities u as exp(u)), or max-marginals.

    Parameters
    ----------
    problem
        Any; agents do not matter. Evidence is in its factors.
    config
        The memory.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory.
    """
    start = time.perf_counter()
    tree = JunctionTree(
        problem, task == "max-marginals", shares_of(config.budget.bytes, problem).work, device=config.device
    )
    planning = time.perf_counter() - start
    total = tree.total()
    some = math.isfinite(total)
    found = tree.marginals() if some else {}
    ln = float(total) if some and task == "mar" else None
    return Marginals(
        task=task,
        status="exact" if some else "infeasible",
        marginals=found,
        ln=ln,
        log10=None if ln is None else ln / _LN_10,
        objective=total if some and task == "max-marginals" else None,
        time=time.perf_counter() - start,
        planning=planning,
        variables=problem.n_variables,
        cliques=len(tree.tree.scopes),
        width=tree.width,
        cells=tree.cells,
        tables="incomplete" if tree.incomplete else "dense",
        provenance=provenance(config, 1, 1),
    )


def with_max_marginals(result: Result, problem: Problem, config: Settings) -> Result:
    """Return a result with the best objective that each value of each variable allows; a note where it cannot have it.

    Parameters
    ----------
    result
        Of the problem; only one that is proven has them.
    config
        The memory and the device.
    """
    why = f"the result is {result.status}, not optimal"
    if result.status == "optimal":
        try:
            memory = shares_of(config.budget.bytes, problem).work
            tree = JunctionTree(problem, True, memory, device=config.device)
            return replace(result, max_marginals=tree.marginals())
        except ResourceError as error:
            why = str(error)
    note = f"no max-marginals: {why}"
    return replace(result, note=note if result.note is None else f"{result.note}; {note}")
