"""Exact local solving: eliminate the hidden variables, keep the interface free.

What is left are small tables over parts of the interface. They are not joined, so an agent with many interface
variables never has its rows enumerated.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dmcmc.inference.agents import LocalProblem
from dmcmc.inference.arithmetic import Arithmetic, Table
from dmcmc.inference.backends import Backend
from dmcmc.inference.elimination import Elimination
from dmcmc.inference.plan import check_memory, plan_elimination
from dmcmc.inference.stop import NO_STOP
from dmcmc.samplers.protocol import SampledTable, Settings

_KEPT = 1 << 28  # bytes of an agent's tables that are kept until VALUE asks for hidden values


class ExactSolver:
    """The local solver ``exact``: V = U = W."""

    name = "exact"
    summary = "bucket elimination of the hidden variables; proves its table"

    def check(self, local: LocalProblem, memory: int, arithmetic: Arithmetic) -> None:
        """Refuse an agent whose tables do not fit the memory."""
        what = f"local.method: exact for an agent of {len(local.hidden) + len(local.interface)} variables"
        check_memory(local.plan, arithmetic, memory, what, "use local.method: auto or gibbs, or raise budget.memory")

    def solve(self, problems: Sequence[LocalProblem], settings: Settings) -> list[SampledTable]:
        """Eliminate one agent after the other, each on all threads; :class:`OutOfTime` as the backend says."""
        tables = []
        for local in problems:
            tables.append(_solve(local, settings))
            settings.progress(1)
        return tables


def _solve(local: LocalProblem, settings: Settings) -> SampledTable:
    start = time.perf_counter()
    arithmetic = settings.arithmetic
    done = settings.backend.eliminate([arithmetic.encode(f) for f in local.factors], local.plan, arithmetic)
    tables, witness = done.remaining(), partial(_witness, done)
    if done.plan.entries * arithmetic.dtype.itemsize > _KEPT:
        tables = tuple(Table(scope, values.copy()) for scope, values in tables)
        witness = partial(_witness_anew, local, arithmetic, replace(settings.backend, stop=NO_STOP))
    return SampledTable(
        lower=tables,
        upper=tables,
        witness=witness,
        method="exact",
        seconds=time.perf_counter() - start,
        cells=done.plan.cells,
    )


def _witness(done: Elimination, values: Mapping[int, int]) -> dict[int, int]:
    """Return the best hidden values for an interface assignment."""
    chosen = dict(values)
    done.maximise(chosen)
    return {v: chosen[v] for v in chosen if v not in values}


def _witness_anew(
    local: LocalProblem, arithmetic: Arithmetic, backend: Backend, values: Mapping[int, int]
) -> dict[int, int]:
    """Return the same by another elimination, of that one row: all tables of all agents need not be kept for it."""
    tables = []
    for scope, entries in map(arithmetic.encode, local.factors):
        row = entries[tuple(values.get(v, slice(None)) for v in scope)]
        tables.append(Table(tuple(v for v in scope if v not in values), np.ascontiguousarray(row)))
    plan = plan_elimination([t.scope for t in tables], local.domains, local.order.variables, ())
    return _witness(backend.eliminate(tables, plan, arithmetic), {})


SOLVER = ExactSolver()
