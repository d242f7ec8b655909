"""Block moves for every row: blocks of small width are drawn exactly given the rest, between sweeps of single draws.

Hamze & de Freitas, "From Fields to Trees" (UAI 2004), with blocks of any small width. For local problems where single
variables freeze: tables full of zeros or of steep costs.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.samplers.blocks.room import Priced
from dmcmc.samplers.blocks.search import BlockSearch
from dmcmc.samplers.contract.protocol import SampledTable, Sampling
from dmcmc.samplers.local_search.block_turns import priced
from dmcmc.samplers.local_search.graph import build_graph
from dmcmc.samplers.model.chain_model import flatten_local
from dmcmc.samplers.model.evaluation import evaluate_rows
from dmcmc.samplers.model.rng import chain_key

_DRAW = 100  # cells that a draw of a variable counts for, of those that the configuration asks for
_RATE = 2e8  # cells a second, where a first pass has so many seconds
_DESCENT = 0.25  # of the work goes into moves at temperature 0, before annealing


class BlockSolver:
    """The local solver ``blocks``: the best state that annealing with block moves finds for every row."""

    name = "blocks"
    summary = "annealing that draws blocks of variables of small width exactly given the rest, between Gibbs sweeps"

    def check(self, local: LocalProblem, memory: int, arithmetic: Arithmetic) -> None:
        """Refuse an agent whose rows do not fit the memory."""
        rows = local.rows * (arithmetic.dtype.itemsize + 8 * max(1, len(local.hidden)))
        if rows > memory:
            raise ResourceError(
                f"local.method: {self.name}: {len(local.interface)} interface variables make {local.rows:,} rows"
                f" ({rows:,} bytes, budget.memory leaves it {memory:,}); use local.method: exact, which never lists"
                " them all, or fewer interface variables"
            )

    def solve(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[SampledTable]:
        """Sample every agent, the rows of one on all threads."""
        rows = sum(local.rows for local in problems)
        tables = []
        for local in problems:
            tables.append(_solve(local, sampling, rows))
            sampling.progress(1)
        return tables


def _solve(local: LocalProblem, sampling: Sampling, rows: int) -> SampledTable:
    """Sample the rows of one agent; ``rows`` are those of all agents that share the seconds."""
    start, threads, hidden = time.perf_counter(), sampling.backend.threads, len(local.hidden)
    graph = _graph(local)
    states = np.zeros((local.rows, hidden), dtype=np.int64)
    if sampling.incumbent is not None:
        states[:] = sampling.incumbent[list(local.hidden)]
    work = sampling.runs * sampling.samples * hidden * _DRAW
    if sampling.seconds is not None:
        work = min(work, int(sampling.seconds * threads * _RATE / max(1, rows)))
    key, halt = np.array(chain_key(sampling.seed, local.agent), dtype=np.uint64), np.zeros(1, dtype=np.uint8)

    def sample(first: int) -> None:
        for row in range(first, local.rows, threads):
            if halt[0]:
                return
            interface = np.unravel_index(row, local.interface_shape) if local.interface else ()
            z = np.array([*states[row], *interface], dtype=np.int64)
            search = BlockSearch(graph, key, row)
            search.improve(z, int(_DESCENT * work), halt)
            states[row] = search.anneal(z, work - int(_DESCENT * work), halt)[:hidden]

    if hidden:
        tasks = [partial(sample, first) for first in range(min(threads, local.rows))]
        run_watched(tasks, threads, sampling.backend.stop, halt)
    domains = local.domains[[*local.hidden, *local.interface]].astype(np.int32)
    values = evaluate_rows(flatten_local(local), domains, states, local.interface_shape, sampling.arithmetic)
    return SampledTable(
        lower=(Table(local.interface, values),),
        upper=None,
        witness=partial(_witness, local, states),
        method=BlockSolver.name,
        seconds=time.perf_counter() - start,
    )


def _graph(local: LocalProblem) -> Priced:
    """Return an agent's factors with prices, hidden variables first; the interface never moves."""
    variables = [*local.hidden, *local.interface]
    number = {v: i for i, v in enumerate(variables)}
    factors = tuple(Factor(tuple(number[v] for v in f.scope), f.table) for f in local.factors)
    names, owner = tuple(f"x{v}" for v in variables), np.zeros(len(variables), dtype=np.int64)
    problem = Problem(names, local.domains[variables], ("agent",), owner, factors)
    return priced(build_graph(problem))._replace(free=len(local.hidden))


def _witness(local: LocalProblem, states: NDArray[np.int64], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values kept for a row."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))


SOLVER = BlockSolver()
