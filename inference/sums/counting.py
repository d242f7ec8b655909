"""Count the assignments that break no hard constraint: exact, whatever the size of the number.

Only factors that forbid something are looked at. Elimination adds up products of counts modulo 2^64, where nothing has
to be divided, and modulo as many primes as the number is long (Chinese remainders). How long it is at most, a
log-sum-exp elimination says, or the product of the domains where that is below 2^64.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from dmcmc.inference.elimination.copy_tables import place_tables
from dmcmc.inference.elimination.plan import Plan, check_memory, plan_elimination
from dmcmc.inference.elimination.semirings import LOG_SUM_EXP
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.flat_tables import FlatTables, flatten
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.orders.best_order import SEARCH_LONG, best_order
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.inference.sums.count_kernels import count_buckets

_WORD = 64  # bits of the first modulus
_PRIME_BITS = 31.9  # of each further one, at least
_LOGS = Arithmetic(np.dtype(np.float64), -np.inf, 0.0)


@dataclass(frozen=True)
class Counted:
    """A number of assignments, and what the elimination was: induced width, joined cells, passes over them."""

    count: int
    width: int
    cells: int
    passes: int


def count_solutions(problem: Problem, memory: int, backend: Backend = CPU) -> Counted:
    """Return how many assignments break no hard constraint.

    Parameters
    ----------
    problem
        Any.
    memory
        Bytes that the tables may take.
    backend
        Where the log-sum-exp elimination runs.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory; :class:`OutOfTime` as the backend says.
    """
    hard = tuple(f for f in problem.factors if f.forbidden_entries())
    if any(not f.scope for f in hard):
        return Counted(0, 0, 0, 0)
    dense = densify(replace(problem, factors=hard), memory).problem
    scopes = [f.scope for f in dense.factors]
    involved = sorted({v for scope in scopes for v in scope})
    free = set(range(problem.n_variables)).difference(involved)
    count = math.prod(int(problem.domains[v]) for v in free)
    order = best_order(scopes, dense.domains, involved, budget=SEARCH_LONG)
    plan = plan_elimination(scopes, dense.domains, order.variables)
    check_memory(plan, _LOGS, memory, "counting", "raise budget.memory")
    tables = flatten(scopes, [(~forbidden(f.table)).astype(np.uint64) for f in dense.factors], np.dtype(np.uint64))
    bits = _bits(plan, tables, backend)
    if bits < 0:
        return Counted(0, plan.width, plan.cells, 1)
    parts, modulus, passes = [0] * len(plan.remaining), 1, 0
    for m in _moduli(bits):
        inverse = pow(modulus, -1, m)
        for i, residue in enumerate(_residues(plan, tables, m, backend.stop)):
            parts[i] += modulus * ((residue - parts[i]) * inverse % m)
        modulus *= m
        passes += 1
    return Counted(count * math.prod(parts), plan.width, plan.cells, passes)


def _bits(plan: Plan, tables: FlatTables, backend: Backend) -> float:
    """Return a bound on the bits of every part of the plan's result; −1 where one of them is 0."""
    whole = sum(math.log2(d) for d in plan.program.domains[plan.program.variable].tolist())
    if whole < _WORD - 1:
        return whole
    with np.errstate(divide="ignore"):
        logs = tables._replace(data=np.log(tables.data.astype(np.float64)))
    done = backend.eliminate(logs, plan, _LOGS, LOG_SUM_EXP)
    parts = [done.table(t).values.item() for t in plan.remaining]
    # The logarithms are off by far less than a bit: each bucket adds a few units in the last place.
    return -1.0 if -math.inf in parts else max(parts, default=0.0) / math.log(2) * (1 + 1e-9) + 1


def _moduli(bits: float) -> Iterator[int]:
    """Yield 2^64 and primes below 2^32, each pair coprime, until their product has more than ``bits`` bits."""
    yield 1 << _WORD
    have, candidate = float(_WORD), 2**32 + 1
    divisors = np.arange(3, 2**16, 2)
    while have <= bits + 1:
        candidate -= 2
        if (candidate % divisors).all():
            yield candidate
            have += _PRIME_BITS


def _residues(plan: Plan, tables: FlatTables, modulus: int, stop: Stop) -> list[int]:
    """Return the parts of the plan's result modulo a number; their product is the result."""
    arena = np.empty(max(1, plan.entries), dtype=np.uint64)
    place_tables(plan, arena, tables, np.uint64(0), stop)
    halt = np.zeros(1, dtype=np.uint8)
    count = partial(cast(Callable[..., None], count_buckets), plan.program, arena, np.uint64(modulus % 2**_WORD), halt)
    if not run_watched([count], 1, stop, halt):
        stop.check()
    return [int(arena[plan.program.at[t]]) for t in plan.remaining]
