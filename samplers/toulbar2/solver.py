"""The local solver ``toulbar2``: every row of an agent's table is a search of its own, its interface fixed."""

import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.errors import ResourceError, Unavailable
from dmcmc.inference.runtime.memory import free_memory
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.contract.protocol import SampledTable, Sampling
from dmcmc.samplers.model.chain_model import flatten_local
from dmcmc.samplers.model.evaluation import evaluate_rows
from dmcmc.samplers.toulbar2.costs import Costs, costs_of
from dmcmc.samplers.toulbar2.search import Engine, available

_MOST_ROWS = 1 << 16  # a search takes a millisecond at least
_FOREVER = 1e8  # seconds
_SHARE = 0.5  # of free memory is for the searches of all threads together


class Toulbar2Solver:
    """The local solver ``toulbar2``: exact rows, or as far as the time goes a state and a proven bound for each."""

    name = "toulbar2"
    summary = "branch and bound by toulbar2, a search a row; proves its table where time allows (extra: search)"

    def check(self, local: LocalProblem, memory: int, arithmetic: Arithmetic) -> None:
        """Refuse an agent with too many rows; and all where toulbar2 is not installed."""
        if not available():
            raise Unavailable("local.method: toulbar2 needs pytoulbar2; pip install 'dmcmc[search]'")
        if local.rows > _MOST_ROWS:
            raise ResourceError(
                f"local.method: toulbar2: an agent with {local.rows:,} rows, a search each (at most {_MOST_ROWS:,});"
                " use local.method: auto, or fewer interface variables"
            )

    def solve(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[SampledTable]:
        """Search agents one after the other, the rows of one on all threads."""
        tables = []
        for left, local in zip(range(len(problems), 0, -1), problems, strict=True):
            stop = sampling.backend.stop
            until = time.perf_counter() + min(_FOREVER, stop.left) / left
            tables.append(_solve(local, sampling, stop.by(until)))
            sampling.progress(1)
        return tables


def _solve(local: LocalProblem, sampling: Sampling, stop: Stop) -> SampledTable:
    """Search the rows of one agent."""
    start, arithmetic, threads = time.perf_counter(), sampling.arithmetic, sampling.backend.threads
    states = np.zeros((local.rows, len(local.hidden)), dtype=np.int64)
    bounds: list[Number | None] = [None] * local.rows  # None where the state is proven to be the best

    def search(first: int) -> None:
        mine = range(first, local.rows, threads)
        with Engine(_memory(threads)) as engine:
            for done, row in enumerate(mine):
                costs = row_costs(local, row)
                if not costs.feasible:
                    continue
                if stop.over:
                    bounds[row] = costs.bound(0)
                    continue
                found = engine.search(costs, None, max(0.0, stop.left) / (len(mine) - done))
                if found.values is not None:
                    states[row] = found.values
                if not found.complete:
                    bounds[row] = costs.bound(found.lower)
                elif found.values is not None and not costs.whole:
                    bounds[row] = costs.bound(costs.of(found.values))

    if local.hidden:
        run_parallel([partial(search, first) for first in range(min(threads, local.rows))], threads)
    domains = local.domains[[*local.hidden, *local.interface]].astype(np.int32)
    lower = evaluate_rows(flatten_local(local), domains, states, local.interface_shape, arithmetic)
    table = (Table(local.interface, lower),)
    proven = all(bound is None for bound in bounds)
    return SampledTable(
        lower=table,
        upper=table if proven else (_upper(table[0], bounds, arithmetic, len(local.factors)),),
        witness=partial(_witness, local, states),
        method="toulbar2",
        seconds=time.perf_counter() - start,
    )


def _upper(table: Table, bounds: Sequence[Number | None], arithmetic: Arithmetic, addends: int) -> Table:
    """Return the table from above."""
    upper = table.values.copy().reshape(-1)
    for row, bound in enumerate(bounds):
        if bound is not None:
            upper[row] = max(upper[row].item(), arithmetic.outward(bound, addends))
    return Table(table.scope, upper.reshape(table.values.shape))


def row_costs(local: LocalProblem, row: int) -> Costs:
    """Return a row as a problem of its hidden variables."""
    shape = local.interface_shape
    fixed = dict(zip(local.interface, (int(x) for x in np.unravel_index(row, shape)), strict=True)) if shape else {}
    number = {v: i for i, v in enumerate(local.hidden)}
    scopes = [[number[v] for v in factor.scope if v in number] for factor in local.factors]
    tables = [factor.table[tuple(fixed.get(v, slice(None)) for v in factor.scope)] for factor in local.factors]
    return costs_of(scopes, [np.asarray(table) for table in tables], local.domains[list(local.hidden)])


def _memory(threads: int) -> int:
    """Return the bytes of address space that one thread's searches may take."""
    free = free_memory()
    return 0 if free is None else int(_SHARE * free / threads)


def _witness(local: LocalProblem, states: NDArray[np.int64], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values kept for a row."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))


SOLVER = Toulbar2Solver()
