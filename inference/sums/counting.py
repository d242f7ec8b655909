"""Count the assignments that satisfy all hard constraints, exactly for results of any size.

Only factors with forbidden entries matter. Elimination adds products of counts modulo 2^64, which needs no division,
and modulo as many primes as the result requires (Chinese remainder theorem): if n is the result modulo M and r the
residue modulo a further prime p, the result modulo M p is n + M · ((r − n) M⁻¹ mod p). An upper bound on the size of
the result comes from a log-sum-exp elimination, or from the product of the domain sizes if that is below 2^63.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from dmcmc.inference.elimination.eliminate import place_tables
from dmcmc.inference.elimination.plan import EliminationPlan, check_memory, plan_elimination
from dmcmc.inference.elimination.semirings import LOG_SUM_EXP
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.flat_tables import FlatTables, flatten
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.orders.tuning import LONG_BUDGET
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.inference.sums.count_kernels import count_buckets

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
