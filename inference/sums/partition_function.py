"""The logarithm of Σ exp(utility) over all assignments: a belief network's partition function, or a bound on it."""

import math
from dataclasses import dataclass

import numpy as np

from dmcmc.inference.elimination.copy_tables import place_tables
from dmcmc.inference.elimination.eliminate import Elimination, flat_tables, new_arena, run_on_cpu
from dmcmc.inference.elimination.plan import Plan, check_memory, plan_elimination
from dmcmc.inference.elimination.semirings import LOG_SUM_EXP, MAX_PLUS
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.minibuckets.choose_z import plan_within
from dmcmc.inference.minibuckets.plan import check_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic, choose_arithmetic
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import SEARCH_LONG, best_order

_UNIT = 2.0**-53


@dataclass(frozen=True)
class LogPartition:
    """A partition function.

    Attributes
    ----------
    ln : float
        ln Z; −∞ if every assignment is forbidden. With mini-buckets not below it.
    z : int or None
        Limit of the mini-buckets; None if ``ln`` is exact, up to rounding.
    width, cells : int
        Induced width and joined cells of the elimination.
    """

    ln: float
    z: int | None
    width: int
    cells: int


def log_partition(
    problem: Problem, memory: int, backend: Backend = CPU, mini_buckets: bool = False, z: int | None = None
) -> LogPartition:
    """Return ln Σ exp(U(σ)) over all assignments σ; costs are negative utilities, a forbidden entry is exp(−∞) = 0.

    Parameters
    ----------
    problem
        Any.
    memory
        Bytes that the tables may take.
    backend
        Where the elimination runs; mini-buckets run on its threads alone.
    mini_buckets, z
        Bound from above where messages would have more than ``z`` variables; None takes what fits the memory.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory; :class:`OutOfTime` as the backend says.
    """
    dense = densify(problem, memory).problem
    numbers = Arithmetic(np.dtype(np.float64), -np.inf, float(choose_arithmetic(dense.factors).total))
    scopes = [f.scope for f in dense.factors]
    order = best_order(scopes, dense.domains, range(dense.n_variables), budget=SEARCH_LONG).variables
    plan = plan_elimination(scopes, dense.domains, order)
    tables = [numbers.encode(f) for f in dense.factors]
    if not mini_buckets:
        check_memory(plan, numbers, memory, "the partition function", "bound it with --z N, or raise budget.memory")
        done = backend.eliminate(tables, plan, numbers, LOG_SUM_EXP)
        return LogPartition(float(done.total()), None, plan.width, plan.cells)
    if z is None:
        z, split = plan_within(scopes, dense.domains, order, (), memory // numbers.dtype.itemsize)
    else:
        check_z(z, scopes, order, "--z")
        split = plan_mini_buckets(scopes, dense.domains, order, (), z)
    check_memory(split, numbers, memory, f"mini-buckets of z = {z}", "use a smaller z, or raise budget.memory")
    done = Elimination(split, new_arena(split, numbers), numbers)
    place_tables(split, done.arena, flat_tables(tables, numbers), np.float64(-np.inf), backend.stop)
    variable = split.program.variable
    again = np.zeros(variable.size, dtype=np.bool_)
    again[1:] = variable[1:] == variable[:-1]
    # Σ_x Π_k f_k ≤ (Σ_x f_1) Π_{k>1} max_x f_k: one mini-bucket of a variable sums, the others maximise.
    for b, maximised in enumerate(again.tolist()):
        run_on_cpu(done, b, b + 1, MAX_PLUS if maximised else LOG_SUM_EXP, backend.threads, backend.stop)
    exact = not again.any()
    ln = float(done.total())
    return LogPartition(ln if exact else ln + _rounding(split, numbers), None if exact else z, split.width, split.cells)


def _rounding(plan: Plan, numbers: Arithmetic) -> float:
    """Return more than the rounding error of an elimination's result.

    Every table that is added is off by one unit of what can be reached at most, every logarithm of a sum of d
    exponentials by d + 4 units and one of the result.
    """
    sizes = plan.program.domains[plan.program.variable]
    reach = float(numbers.total) + float(np.log(sizes).sum())
    return 4 * _UNIT * (plan.tables * max(1.0, reach) + float((sizes + 4).sum())) if math.isfinite(reach) else math.inf
