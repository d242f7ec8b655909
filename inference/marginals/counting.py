"""Counting assignments, and sums over all of them.

Count the assignments that satisfy all hard constraints, exactly for results of any size.

Only factors with forbidden entries matter. Elimination adds products of counts modulo 2^64, which needs no division,
and modulo as many primes as the result requires (Chinese remainder theorem): if n is the result modulo M and r the
residue modulo a further prime p, the result modulo M p is n + M · ((r − n) M⁻¹ mod p). An upper bound on the size of
the result comes from a log-sum-exp elimination, or from the product of the domain sizes if that is below 2^63.

The logarithm of Σ exp(utility) over all assignments: a belief network's partition function, or a bound on it.

Tables hold logarithms. A bucket that sums uses the semiring LOG_SUM_EXP (ln Σ exp), one that maximises MAX_PLUS.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from dmcmc.inference.elimination.eliminate import Elimination, flat_tables, new_arena, place_tables, run_on_cpu
from dmcmc.inference.elimination.join_kernels import count_buckets
from dmcmc.inference.elimination.plan import EliminationPlan, check_memory, plan_elimination
from dmcmc.inference.elimination.semirings import LOG_SUM_EXP, MAX_PLUS
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.minibuckets.plan import check_z, plan_mini_buckets, plan_within
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.model.flat_tables import FlatTables, flatten
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.inference.tuning import LONG_BUDGET

_FIRST_MODULUS_BITS = 64  # bits of the first modulus, 2^64
_PRIME_BITS = 31.9  # lower bound on the bits of each further modulus: only primes close to 2^32 are used
_LOG_ARITHMETIC = Arithmetic(np.dtype(np.float64), -np.inf, 0.0)


@dataclass(frozen=True)
class SolutionCount:
    """A number of assignments, and the size of the elimination that computed it.

    Attributes
    ----------
    count : int
        Number of assignments that satisfy all hard constraints.
    width : int
        Induced width of the elimination order.
    cells : int
        Number of joined table entries of one elimination.
    passes : int
        Number of eliminations, one per modulus.
    """

    count: int
    width: int
    cells: int
    passes: int


def count_solutions(problem: Problem, memory: int, backend: Backend = CPU) -> SolutionCount:
    """Return the number of assignments that satisfy all hard constraints.

    Parameters
    ----------
    problem : Problem
        Any problem.
    memory : int
        Limit on the bytes of all tables.
    backend : Backend
        Where the log-sum-exp elimination runs.

    Returns
    -------
    SolutionCount
        The exact number.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory.
    OutOfTime
        If the backend's deadline expires.
    """
    hard_factors = tuple(f for f in problem.factors if f.forbidden_entries())
    if any(not f.scope for f in hard_factors):
        return SolutionCount(0, 0, 0, 0)
    dense = densify(replace(problem, factors=hard_factors), memory).problem
    scopes = [f.scope for f in dense.factors]
    involved = sorted({v for scope in scopes for v in scope})
    unconstrained = set(range(problem.n_variables)).difference(involved)
    count = math.prod(int(problem.domains[v]) for v in unconstrained)
    order = best_order(scopes, dense.domains, involved, budget=LONG_BUDGET)
    plan = plan_elimination(scopes, dense.domains, order.variables)
    check_memory(plan, _LOG_ARITHMETIC, memory, "counting", "raise budget.memory")
    tables = flatten(scopes, [(~forbidden(f.table)).astype(np.uint64) for f in dense.factors], np.dtype(np.uint64))
    bits = _result_bits(plan, tables, backend)
    if bits < 0:
        return SolutionCount(0, plan.width, plan.cells, 1)
    parts, modulus, passes = [0] * len(plan.remaining), 1, 0
    for prime in _moduli(bits):
        inverse = pow(modulus, -1, prime)
        for i, residue in enumerate(_residues(plan, tables, prime, backend.stop)):
            parts[i] += modulus * ((residue - parts[i]) * inverse % prime)
        modulus *= prime
        passes += 1
    return SolutionCount(count * math.prod(parts), plan.width, plan.cells, passes)


def _result_bits(plan: EliminationPlan, tables: FlatTables, backend: Backend) -> float:
    """Return an upper bound on the bits of each component of the plan's result; −1 if one of them is 0."""
    domain_bits = sum(math.log2(d) for d in plan.program.domains[plan.program.variable].tolist())
    if domain_bits < _FIRST_MODULUS_BITS - 1:
        return domain_bits
    with np.errstate(divide="ignore"):
        logs = tables._replace(data=np.log(tables.data.astype(np.float64)))
    elimination = backend.eliminate(logs, plan, _LOG_ARITHMETIC, LOG_SUM_EXP)
    components = [elimination.table(t).values.item() for t in plan.remaining]
    # The rounding error of the logarithms is far below one bit: each bucket adds a few units in the last place.
    return -1.0 if -math.inf in components else max(components, default=0.0) / math.log(2) * (1 + 1e-9) + 1


def _moduli(bits: float) -> Iterator[int]:
    """Yield 2^64 and primes below 2^32, pairwise coprime, until their product has more than ``bits`` bits."""
    yield 1 << _FIRST_MODULUS_BITS
    covered_bits, candidate = float(_FIRST_MODULUS_BITS), 2**32 + 1
    divisors = np.arange(3, 2**16, 2)
    while covered_bits <= bits + 1:
        candidate -= 2
        if (candidate % divisors).all():
            yield candidate
            covered_bits += _PRIME_BITS


def _residues(plan: EliminationPlan, tables: FlatTables, modulus: int, stop: Deadline) -> list[int]:
    """Return the components of the plan's result modulo a number; their product is the result."""
    arena = np.empty(max(1, plan.entries), dtype=np.uint64)
    place_tables(plan, arena, tables, np.uint64(0), stop)
    halt = np.zeros(1, dtype=np.uint8)
    count = partial(
        cast(Callable[..., None], count_buckets), plan.program, arena, np.uint64(modulus % 2**_FIRST_MODULUS_BITS), halt
    )
    if not run_until_deadline([count], 1, stop, halt):
        stop.check()
    return [int(arena[plan.program.at[t]]) for t in plan.remaining]


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
        entries = memory // numbers.dtype.itemsize
        z, split = plan_within(scopes, dense.domains, order, (), entries)
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
