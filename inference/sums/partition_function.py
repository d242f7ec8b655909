"""The logarithm of Σ exp(utility) over all assignments: a belief network's partition function, or a bound on it.

Tables hold logarithms. A bucket that sums uses the semiring LOG_SUM_EXP (ln Σ exp), one that maximises MAX_PLUS.
"""

import math
from dataclasses import dataclass

import numpy as np

from dmcmc.inference.elimination.eliminate import Elimination, flat_tables, new_arena, place_tables, run_on_cpu
from dmcmc.inference.elimination.plan import EliminationPlan, check_memory, plan_elimination
from dmcmc.inference.elimination.semirings import LOG_SUM_EXP, MAX_PLUS
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.minibuckets.choose_z import plan_within
from dmcmc.inference.minibuckets.plan import check_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.orders.tuning import LONG_BUDGET

_UNIT_ROUNDOFF = 2.0**-53  # largest relative rounding error of one float64 operation


@dataclass(frozen=True)
class LogPartition:
    """The logarithm of a partition function, and the size of the elimination that computed it.

    Attributes
    ----------
    ln : float
        ln Z, or an upper bound on it from mini-buckets; −∞ if every assignment is forbidden.
    z : int or None
        The limit of the mini-buckets; None if ``ln`` is exact up to rounding.
    width : int
        Induced width of the elimination order.
    cells : int
        Number of joined table entries of the elimination.
    """

    ln: float
    z: int | None
    width: int
    cells: int


def log_partition(
    problem: Problem, memory: int, backend: Backend = CPU, mini_buckets: bool = False, z: int | None = None
) -> LogPartition:
    """Return ln Σ exp(U(σ)) over all assignments σ.

    Costs count as negative utilities, and a forbidden entry contributes exp(−∞) = 0.

    Parameters
    ----------
    problem : Problem
        Any problem.
    memory : int
        Limit on the bytes of all tables.
    backend : Backend
        Where the elimination runs; mini-buckets use only its CPU threads.
    mini_buckets : bool
        Whether to compute an upper bound with mini-buckets.
    z : int or None
        Limit on the variables of a mini-bucket's message; None selects the largest limit that fits the memory.

    Returns
    -------
    LogPartition
        The result.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory.
    OutOfTime
        If the backend's deadline expires.
    """
    dense = densify(problem, memory).problem
    numbers = Arithmetic(np.dtype(np.float64), -np.inf, float(choose_arithmetic(dense.factors).total))
    scopes = [f.scope for f in dense.factors]
    order = best_order(scopes, dense.domains, range(dense.n_variables), budget=LONG_BUDGET).variables
    plan = plan_elimination(scopes, dense.domains, order)
    tables = [numbers.encode(f) for f in dense.factors]
    if not mini_buckets:
        check_memory(plan, numbers, memory, "the partition function", "bound it with --z N, or raise budget.memory")
        elimination = backend.eliminate(tables, plan, numbers, LOG_SUM_EXP)
        return LogPartition(float(elimination.total()), None, plan.width, plan.cells)
    if z is None:
        z, split = plan_within(scopes, dense.domains, order, (), memory // numbers.dtype.itemsize)
    else:
        check_z(z, scopes, order, "--z")
        split = plan_mini_buckets(scopes, dense.domains, order, (), z)
    check_memory(split, numbers, memory, f"mini-buckets of z = {z}", "use a smaller z, or raise budget.memory")
    elimination = Elimination(split, new_arena(split, numbers), numbers)
    place_tables(split, elimination.arena, flat_tables(tables, numbers), np.float64(-np.inf), backend.stop)
    variable = split.program.variable
    is_maximised = np.zeros(variable.size, dtype=np.bool_)
    is_maximised[1:] = variable[1:] == variable[:-1]
    # Σ_x Π_k f_k ≤ (Σ_x f_1) Π_{k>1} max_x f_k: one mini-bucket of a variable sums, the others maximise.
    for b, maximised in enumerate(is_maximised.tolist()):
        run_on_cpu(elimination, b, b + 1, MAX_PLUS if maximised else LOG_SUM_EXP, backend.threads, backend.stop)
    exact = not is_maximised.any()
    ln = float(elimination.total())
    return LogPartition(
        ln if exact else ln + _rounding_error(split, numbers), None if exact else z, split.width, split.cells
    )


def _rounding_error(plan: EliminationPlan, numbers: Arithmetic) -> float:
    """Return an upper bound on the rounding error of an elimination's result.

    Each added table contributes an error of at most one unit of the largest magnitude that a sum can reach. Each
    logarithm of a sum of d exponentials contributes d + 4 units, and one unit of its result.
    """
    sizes = plan.program.domains[plan.program.variable]
    magnitude = float(numbers.total) + float(np.log(sizes).sum())
    return (
        4 * _UNIT_ROUNDOFF * (plan.tables * max(1.0, magnitude) + float((sizes + 4).sum()))
        if math.isfinite(magnitude)
        else math.inf
    )
