"""Local solvers by search engines, ``toulbar2`` and ``cp-sat``: one search per row of an agent's table.

A row is an assignment of the agent's boundary variables (its interface); the search is over its hidden variables.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ResourceError, Unavailable
from dmcmc.inference.runtime.memory import free_memory
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.protocol import SampledTable, Sampling
from dmcmc.samplers.external.process import EngineProcess
from dmcmc.samplers.model.evaluation import evaluate_rows, stored_witness
from dmcmc.samplers.toulbar2.background_search import Toulbar2Process, available
from dmcmc.samplers.toulbar2.costs import CostProblem, costs_of

_MAX_ROWS = 1 << 16  # more rows take too long: a search takes at least a millisecond
_MAX_SECONDS = 1e8  # seconds for all agents if there is no deadline


@dataclass(frozen=True)
class RowSearchSolver:
    """A local solver by a search engine: an optimal state per row, or a state and an upper bound if time is short.

    Attributes
    ----------
    name, summary : str
        Name of the local solver, and its description in one line.
    engine : callable
        Returns the engine's process, given its memory in bytes.
    available : callable
        Returns whether the engine is installed.
    remedy : str
        The package that the engine needs, for the error if it is not installed.
    """

    name: str
    summary: str
    engine: Callable[[int], EngineProcess]
    available: Callable[[], bool]
    remedy: str

    def check(self, local: LocalProblem, memory: int, arithmetic: Arithmetic) -> None:
        """Raise an error if the engine is not installed or the agent has too many rows."""
        if not self.available():
            raise Unavailable(f"local.method: {self.name} needs {self.remedy}")
        if local.rows > _MAX_ROWS:
            raise ResourceError(
                f"local.method: {self.name} searches each row of a table, {_MAX_ROWS:,} at most; an agent has"
                f" {local.rows:,} rows; use local.method: auto, or fewer interface variables"
            )

    def solve(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[SampledTable]:
        """Search the agents in turn, each on all threads; the remaining time is divided evenly over the agents."""
        tables = []
        for remaining_agents, local in zip(range(len(problems), 0, -1), problems, strict=True):
            stop = sampling.backend.stop
            agent_end = time.perf_counter() + min(_MAX_SECONDS, stop.left) / remaining_agents
            tables.append(_solve(self, local, sampling, stop.by(agent_end)))
            sampling.progress(1)
        return tables


def _solve(solver: RowSearchSolver, local: LocalProblem, sampling: Sampling, stop: Deadline) -> SampledTable:
    """Search the rows of one agent and make its table.

    The state of an infeasible row is arbitrary; its utility is −∞, which is proven.
    """
    start, arithmetic, threads = time.perf_counter(), sampling.arithmetic, sampling.backend.threads
    states = np.zeros((local.rows, len(local.hidden)), dtype=np.int64)
    # Upper bound on each row's utility; None if its state is proven optimal.
    bounds: list[Number | None] = [None] * local.rows

    def search(first: int) -> None:
        """Search every ``threads``-th row, beginning with row ``first``."""
        rows = range(first, local.rows, threads)
        with solver.engine(_memory(threads)) as engine:
            for done, row in enumerate(rows):
                costs = row_costs(local, row)
                if not costs.feasible:
                    continue
                if stop.over:
                    bounds[row] = costs.bound(0)
                    continue
                found = engine.search(costs, None, max(0.0, stop.left) / (len(rows) - done))
                if found.values is not None:
                    states[row] = found.values
                if not found.complete:
                    bounds[row] = costs.bound(found.lower)
                elif found.values is not None and not costs.exact:
                    bounds[row] = costs.bound(costs.of(found.values))

    if local.hidden:
        run_parallel([partial(search, first) for first in range(min(threads, local.rows))], threads)
    domains = local.domains[[*local.hidden, *local.interface]].astype(np.int32)
    lower = evaluate_rows(local.graph.flat, domains, states, local.interface_shape, arithmetic)
    table = (EncodedTable(local.interface, lower),)
    proven = all(bound is None for bound in bounds)
    return SampledTable(
        lower=table,
        upper=table if proven else (_upper(table[0], bounds, arithmetic, len(local.factors)),),
        witness=stored_witness(local, states),
        method=solver.name,
        seconds=time.perf_counter() - start,
    )


def _upper(table: EncodedTable, bounds: Sequence[Number | None], arithmetic: Arithmetic, addends: int) -> EncodedTable:
    """Return the upper table: each row's bound, or the value of the lower table if its state is proven optimal.

    Bounds are rounded up for the rounding errors of a sum of ``addends`` terms, the factors.
    """
    upper = table.values.copy().reshape(-1)
    for row, bound in enumerate(bounds):
        if bound is not None:
            upper[row] = max(upper[row].item(), arithmetic.outward(bound, addends))
    return EncodedTable(table.scope, upper.reshape(table.values.shape))


def row_costs(local: LocalProblem, row: int) -> CostProblem:
    """Return the cost problem of one row, over the agent's hidden variables.

    Variables are numbered as in ``local.hidden``; the boundary variables are fixed to the row's values.
    """
    shape = local.interface_shape
    fixed = dict(zip(local.interface, (int(x) for x in np.unravel_index(row, shape)), strict=True)) if shape else {}
    number = {v: i for i, v in enumerate(local.hidden)}
    scopes = [[number[v] for v in factor.scope if v in number] for factor in local.factors]
    tables = [factor.table[tuple(fixed.get(v, slice(None)) for v in factor.scope)] for factor in local.factors]
    return costs_of(scopes, [np.asarray(table) for table in tables], local.domains[list(local.hidden)])


def _memory(threads: int) -> int:
    """Return the memory limit of one thread's search process in bytes, besides its libraries; 0 for no limit."""
    free = free_memory()
    return 0 if free is None else int(2 * tuning.MEMORY_SHARE * free / threads)


SOLVER = RowSearchSolver(
    "toulbar2",
    "branch and bound by toulbar2, one search per row; proves its table if time allows (extra: toulbar2)",
    Toulbar2Process,
    available,
    "pytoulbar2; pip install 'dmcmc[toulbar2]'",
)
