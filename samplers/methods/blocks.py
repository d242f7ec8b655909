"""Block moves for every row: blocks of small width are drawn exactly given the rest, between sweeps of single draws.

Hamze & de Freitas, "From Fields to Trees" (UAI 2004), with blocks of any small width. For local problems where single
variables freeze: tables full of zeros or of steep costs.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.samplers.blocks.block_workspace import Priced
from dmcmc.samplers.blocks.dual_starts import dual_states
from dmcmc.samplers.blocks.mini_bucket_starts import Starts, starts_of
from dmcmc.samplers.blocks.neighbourhood_search import DESCENT, BlockSearch, order_for_cuts
from dmcmc.samplers.blocks.sweep_kernels import total
from dmcmc.samplers.contract.protocol import SampledTable, Sampling
from dmcmc.samplers.contract.team import said_by_first, share_of
from dmcmc.samplers.methods.block_chains import NAME, BlockChains, graph_of
from dmcmc.samplers.model.rng import chain_key

_DRAW = 100  # cells that a draw of a variable counts for, of those that the configuration asks for
_RATE = 1e8  # cells a second, where a first pass has so many seconds

States = NDArray[np.int32]


class BlockSolver:
    """The local solver ``blocks``: the best state that annealing with block moves finds for every row."""

    name = NAME
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
        return [chains.table() for chains in self.start(problems, sampling)]

    def start(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[BlockChains]:
        """Sample every agent, to go on with later."""
        rows, found = sum(local.rows for local in problems), list[BlockChains]()
        for local in problems:
            states = np.zeros((local.rows, len(local.hidden)), dtype=np.int32)
            if sampling.incumbent is not None:
                states[:] = sampling.incumbent[list(local.hidden)]
            found.append(sampled_from(local, sampling, states, rows))
            sampling.progress(1)
        return found

    def load(self, problems: Sequence[LocalProblem], sampling: Sampling, updates: int) -> None:
        """Load what sampling agents uses on a GPU, where so many draws would be worth the way there."""
        local = min(problems, key=lambda local: len(local.hidden) or math.inf)
        if local.hidden and sampling.backend.samples_on_gpu(updates) and _fit_device(graph := graph_of(local)):
            first, key = np.zeros((1, graph.domains.size), dtype=np.int32), np.zeros(2, dtype=np.uint64)
            order = np.arange(graph.free)
            starts = starts_of(graph, order, first[0].astype(np.int64), key, sampling.backend.stop)
            _on_gpu(graph, key, replace(sampling, seconds=None), first, 1, (order, starts))


def sampled_from(local: LocalProblem, sampling: Sampling, states: NDArray[Any], rows: int) -> BlockChains:
    """Sample the rows of one agent from states of theirs; ``rows`` are those of all agents that share the seconds."""
    begun, hidden = time.perf_counter(), len(local.hidden)
    work = sampling.runs * sampling.samples * hidden * _DRAW
    chains = BlockChains(local, sampling, states)
    if hidden:
        first = np.zeros((local.rows, hidden + len(local.interface)), dtype=np.int32)
        first[:, :hidden] = states
        if local.interface:
            first[:, hidden:] = np.indices(local.interface_shape, dtype=np.int32).reshape(len(local.interface), -1).T
        if sampling.starts != "random" and (found := dual_states(local, sampling.backend)) is not None:
            first[:, :hidden] = _better(chains.graph, first, np.hstack([found, first[:, hidden:]]))[:, :hidden]
        chains.states[:] = _sampled(local, sampling, first, work, rows)[:, :hidden]
    chains.seconds = time.perf_counter() - begun
    return chains


def _better(graph: Priced, one: States, other: NDArray[np.int64]) -> States:
    """Return the better of two states of each row."""
    worse = [total(graph, a.astype(np.int64)) < total(graph, b) for a, b in zip(one, other, strict=True)]
    return np.where(np.array(worse)[:, None], other, one).astype(np.int32)


def _sampled(local: LocalProblem, sampling: Sampling, first: States, work: int, rows: int) -> States:
    """Return the best state found for each row, from the first ones and from starts that know the agent's problem."""
    graph, stop = graph_of(local), sampling.backend.stop
    key = np.array(chain_key(sampling.seed, local.agent), dtype=np.uint64)
    order = order_for_cuts(graph, stop)
    starts = None if order is None else starts_of(graph, order, first[0].astype(np.int64), key, stop)
    alone, team = sampling.backend.samples_on_gpu(local.rows * work // _DRAW) and _fit_device(graph), sampling.team
    if team.size > 1:
        alone = said_by_first(team, alone)
    if alone and team.rank > 0:
        return first
    if alone:
        found = _on_gpu(graph, key, sampling, first, work, (order, starts))
        if found is not None:
            return found
    if sampling.seconds is not None:
        ranks = 1 if alone else team.size
        work = min(work, int(sampling.seconds * ranks * sampling.backend.threads * _RATE / max(1, rows)))
    if alone or team.size == 1:
        return _on_cpu(graph, key, sampling, first, work, starts)
    parts = team.together(lambda: [_on_cpu(graph, key, sampling, first, work, starts, share_of(local.rows, team))])
    return np.concatenate([part[0] for part in parts])


def _on_cpu(
    graph: Priced,
    key: NDArray[np.uint64],
    sampling: Sampling,
    first: States,
    work: int,
    starts: Starts | None,
    share: tuple[int, int] | None = None,
) -> States:
    """Anneal rows, all or a share of them, on all threads; return their states."""
    threads, halt = sampling.backend.threads, np.zeros(1, dtype=np.uint8)
    lowest, end = (0, first.shape[0]) if share is None else share
    states = first[lowest:end].copy()

    def sample(begin: int) -> None:
        for row in range(begin, end, threads):
            if halt[0]:
                return
            z = first[row].astype(np.int64)
            search = BlockSearch(graph, key, row)
            if starts is not None:
                z = max(z, starts.draw(row, 0, z), key=search.worth)
            search.improve(z, int(DESCENT * work), halt)
            states[row - lowest] = search.anneal(z, work - int(DESCENT * work), halt)

    tasks = [partial(sample, begin) for begin in range(lowest, min(lowest + threads, end))]
    run_watched(tasks, threads, sampling.backend.stop, halt)
    return states


def _fit_device(graph: Priced) -> bool:
    """Return whether the GPU's kernels can move an agent's variables."""
    from dmcmc.samplers.blocks.cuda.chains import fits

    return fits(graph)


def _on_gpu(
    graph: Priced,
    key: NDArray[np.uint64],
    sampling: Sampling,
    first: States,
    work: int,
    known: tuple[NDArray[np.int64] | None, Starts | None],
) -> States | None:
    """Anneal all rows together on the GPU; None if it has no memory for them. ``known``: an order, and starts."""
    from dmcmc.samplers.blocks.cuda.chains import DeviceBlocks

    stop, (order, starts) = sampling.backend.stop, known
    if sampling.seconds is not None:
        stop = stop.by(time.perf_counter() + sampling.seconds)
    try:
        blocks = DeviceBlocks(graph, key, first, np.arange(graph.free) if order is None else order)
        if starts is not None:
            blocks.start(starts, stop)
        blocks.anneal(work, stop)
        return blocks.best()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    shared_device().release()
    return None


SOLVER = BlockSolver()
