"""Block Gibbs sampling.

Block moves for every row: between Gibbs sweeps, blocks of small width are drawn exactly, given the others.

A *row* is an assignment of an agent's boundary variables (its interface); the hidden variables are sampled for each
row. A *block* is a set of hidden variables that variable elimination draws together, given all other variables; its
*width* is the size of the largest separator. A *Gibbs sweep* draws every variable singly.

Hamze & de Freitas, "From Fields to Trees" (UAI 2004), with blocks of any small width. Suited to local problems in which
single-variable draws freeze: tables with many zeros or with steep costs.

Sample an agent's rows with block moves, and detect rows in which single-variable draws are frozen.

A *row* is an assignment of the agent's boundary variables (its interface). A *block move* redraws a set of hidden
variables exactly, given all others; its work is counted in *cells*, the entries of the tables that its elimination
joins. Draws are *frozen* if they hardly ever change a value.
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
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.runtime.device import CpuFallback
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.blocks.block_gibbs_kernels import mobility, utility_of_assignment
from dmcmc.samplers.blocks.cuda.chains import DeviceBlockChains, fits
from dmcmc.samplers.blocks.neighbourhood_search import BlockSearch, order_for_cuts, penalised_graph
from dmcmc.samplers.blocks.starts import MiniBucketStarts, dual_states, starts_of
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.protocol import SampledTable, Sampling, broadcast_from_first, rows_of_rank
from dmcmc.samplers.contract.tuning import STEP_CELLS, WORKER_CELLS_PER_SECOND
from dmcmc.samplers.model.chain_model import chain_key
from dmcmc.samplers.model.evaluation import evaluate_rows, stored_witness

NAME = "blocks"


class BlockChains:
    """The best states of an agent's rows, improved by block moves; a ``Resumable``, whose ``improve`` can be repeated.

    Parameters
    ----------
    local : LocalProblem
        The agent.
    sampling : Sampling
        Seed, threads and arithmetic.
    states : (rows, hidden) integers
        Hidden values to start from.
    seconds : float
        Time already spent on these states.
    updates : int
        Single-variable draws already made.

    Attributes
    ----------
    states : (rows, hidden) int64
        The best hidden values of each row.
    seconds : float
        Time spent on the states, including that of the caller.
    updates : int
        Single-variable draws that the caller has made.
    """

    def __init__(
        self, local: LocalProblem, sampling: Sampling, states: NDArray[Any], seconds: float = 0.0, updates: int = 0
    ) -> None:
        self.local, self.sampling, self.graph = local, sampling, agent_graph(local)
        self.states: NDArray[Any] = np.array(states, dtype=np.int64)
        self.seconds, self.updates = seconds, updates
        self._key = np.array(chain_key(sampling.seed, local.agent), dtype=np.uint64)
        self._next_row = self._move_count = 0  # next row of a time slice; moves per search

    @property
    def exhausted(self) -> bool:
        """Whether further time cannot improve any row: without hidden variables a row has one state."""
        return not self.local.hidden

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Make block moves in some rows for about ``seconds``, in time slices; the next call continues."""
        if self.exhausted or not rows.size:
            return
        start, stop = time.perf_counter(), self.sampling.backend.stop.by(time.perf_counter() + seconds)
        concurrent = min(threads, rows.size)
        searches = [BlockSearch(self.graph, self._key, number) for number in range(concurrent)]
        for search in searches:
            search.moves = self._move_count
        row_seconds = max(tuning.CHECK_SECONDS, seconds * concurrent / rows.size)
        for _ in range(0, rows.size, concurrent):
            if stop.over:
                break
            chosen = rows[(self._next_row + np.arange(concurrent)) % rows.size].tolist()
            self._next_row += concurrent
            halt, row_deadline = np.zeros(1, dtype=np.uint8), stop.by(time.perf_counter() + row_seconds)
            rows_of_searches = zip(searches, chosen, strict=True)
            run_until_deadline(
                [partial(self._move, search, row, halt) for search, row in rows_of_searches],
                threads,
                row_deadline,
                halt,
            )
        self._move_count = max(search.moves for search in searches)
        self.seconds += time.perf_counter() - start

    def _move(self, search: BlockSearch, row: int, halt: NDArray[np.uint8]) -> None:
        """Improve a row's state by moves that never lose utility, then anneal it until ``halt`` is set."""
        z = assignment_of(self.local, self.states, row)
        search.improve(z, 2 * STEP_CELLS * len(self.local.hidden), halt)
        search.restart_cycle()
        z = search.anneal(z, int(np.iinfo(np.int64).max), halt)
        self.states[row] = z[: len(self.local.hidden)]

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Replace the hidden values of some rows where the given ones are better; return whether any are."""
        candidates, replaced = self.states.copy(), False
        candidates[rows] = states
        for row in rows.tolist():
            before, now = (
                utility_of_assignment(self.graph, assignment_of(self.local, source, row))
                for source in (self.states, candidates)
            )
            if now > before:
                self.states[row], replaced = candidates[row], True
        return replaced

    def export_rows(self, rows: NDArray[np.int64], draws: int) -> list[Array]:
        """Return the states of some rows, for other ranks."""
        return [self.states[rows]]

    def import_rows(self, rows: NDArray[np.int64], part: Sequence[Array]) -> None:
        """Store the states of some rows that another rank has improved."""
        self.states[rows] = part[0]

    def table(self) -> SampledTable:
        """Return the current table, its values computed from the states."""
        local, states = self.local, self.states
        domains = local.domains[[*local.hidden, *local.interface]].astype(np.int32)
        values = evaluate_rows(local.graph.flat, domains, states, local.interface_shape, self.sampling.arithmetic)
        return SampledTable(
            lower=(EncodedTable(local.interface, values),),
            upper=None,
            witness=stored_witness(local, states.copy()),
            method=NAME,
            seconds=self.seconds,
            updates=self.updates,
        )


def draws_are_frozen(local: LocalProblem, states: NDArray[Any]) -> bool:
    """Return whether single-variable draws hardly ever move, or end with violations, in a sample of an agent's rows.

    Parameters
    ----------
    local : LocalProblem
        The agent.
    states : (rows, hidden) integers
        Hidden values of each row.
    """
    if not local.hidden or not len(states):
        return False
    graph, mobilities, violated = agent_graph(local), list[float](), list[bool]()
    for row in np.unique(np.linspace(0, len(states) - 1, 2 * tuning.FEW_ROWS).astype(np.int64)).tolist():
        z = assignment_of(local, states, row)
        mobilities.append(float(mobility(graph, z, tuning.FROZEN_TEMPERATURE)))
        violated.append(float(utility_of_assignment(graph, z)) <= 0.5 * graph.forbidden_entry)
    return float(np.mean(mobilities)) <= tuning.MAX_FROZEN_MOBILITY or float(np.mean(violated)) >= tuning.MAJORITY_SHARE


def agent_graph(local: LocalProblem) -> FactorGraph:
    """Return an agent's factor graph with penalties for forbidden entries; only hidden variables move."""
    return penalised_graph(local.graph)


def assignment_of(local: LocalProblem, states: NDArray[Any], row: int) -> NDArray[np.int64]:
    """Return a row's hidden values followed by its interface values, (n,) int64."""
    interface = np.unravel_index(row, local.interface_shape) if local.interface else ()
    return np.array([*states[row], *interface], dtype=np.int64)


_RowStates = NDArray[np.int32]


class BlockSolver:
    """The local solver ``blocks``: the best state of every row that annealing with block moves finds."""

    name = NAME
    summary = "annealing that draws blocks of variables of small width exactly given the rest, between Gibbs sweeps"

    def check(self, local: LocalProblem, memory: int, arithmetic: Arithmetic) -> None:
        """Raise a ``ResourceError`` if an agent's rows do not fit the memory."""
        # Per row: one table entry, and 8 bytes (int64) per hidden value.
        row_bytes = local.rows * (arithmetic.dtype.itemsize + 8 * max(1, len(local.hidden)))
        if row_bytes > memory:
            raise ResourceError(
                f"local.method: {self.name}: {len(local.interface)} interface variables make {local.rows:,} rows"
                f" ({row_bytes:,} bytes, budget.memory leaves {memory:,}); use local.method: exact, which does not"
                " enumerate them, or fewer interface variables"
            )

    def solve(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[SampledTable]:
        """Sample every agent, the rows of each agent on all threads, and return their tables."""
        return [chains.table() for chains in self.start(problems, sampling)]

    def start(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[BlockChains]:
        """Sample every agent and return its chains, so that sampling can be continued."""
        rows, all_chains = sum(local.rows for local in problems), list[BlockChains]()
        for local in problems:
            states = np.zeros((local.rows, len(local.hidden)), dtype=np.int32)
            if sampling.incumbent is not None:
                states[:] = sampling.incumbent[list(local.hidden)]
            all_chains.append(sample_agent(local, sampling, states, rows))
            sampling.progress(1)
        return all_chains

    def load(self, problems: Sequence[LocalProblem], sampling: Sampling) -> None:
        """Load the GPU kernels for the agents.

        The kernels are compiled by a minimal run: one chain and one cell of work, on the agent with the fewest hidden
        variables.
        """
        local = min(problems, key=lambda local: len(local.hidden) or math.inf)
        if local.hidden and fits(graph := agent_graph(local)):
            first, key = np.zeros((1, graph.domains.size), dtype=np.int32), np.zeros(2, dtype=np.uint64)
            order = np.arange(graph.free)
            starts = starts_of(graph, order, first[0].astype(np.int64), key, sampling.backend.stop)
            _on_gpu(graph, key, replace(sampling, seconds=None), first, 1, (order, starts))


def sample_agent(local: LocalProblem, sampling: Sampling, states: NDArray[Any], rows: int) -> BlockChains:
    """Sample the rows of one agent, starting from given states.

    Unless ``sampling.starts`` is ``random``, a row starts from its rounded dual solution if that has more utility.

    Parameters
    ----------
    local : LocalProblem
        The agent.
    sampling : Sampling
        The settings.
    states : (rows, hidden) integers
        Hidden values of each row to start from.
    rows : int
        Number of rows of all agents that share the time limit ``sampling.seconds``.

    Returns
    -------
    BlockChains
        The chains, with the states found.
    """
    start, hidden = time.perf_counter(), len(local.hidden)
    work = sampling.runs * sampling.samples * hidden * tuning.CELLS_PER_DRAW
    chains = BlockChains(local, sampling, states)
    if hidden:
        first = np.zeros((local.rows, hidden + len(local.interface)), dtype=np.int32)
        first[:, :hidden] = states
        if local.interface:
            first[:, hidden:] = np.indices(local.interface_shape, dtype=np.int32).reshape(len(local.interface), -1).T
        if sampling.starts != "random" and (dual := dual_states(local, sampling.backend)) is not None:
            first[:, :hidden] = _better(chains.graph, first, np.hstack([dual, first[:, hidden:]]))[:, :hidden]
        chains.states[:] = _sampled(local, sampling, first, work, rows)[:, :hidden]
    chains.seconds = time.perf_counter() - start
    return chains


def _better(graph: FactorGraph, first: _RowStates, second: NDArray[np.int64]) -> _RowStates:
    """Return the better of two states of each row, (rows, n); the first one on a tie."""
    worse = [
        utility_of_assignment(graph, a.astype(np.int64)) < utility_of_assignment(graph, b)
        for a, b in zip(first, second, strict=True)
    ]
    return np.where(np.array(worse)[:, None], second, first).astype(np.int32)


def _sampled(local: LocalProblem, sampling: Sampling, first: _RowStates, work: int, rows: int) -> _RowStates:
    """Return the best state found for each row, from the first states and from mini-bucket starts.

    *Mini-bucket starts* are drawn backwards through the messages of an approximate elimination with bounded tables. The
    first rank of the team decides whether the GPU is used, and then only that rank samples: the others return
    ``first``, which nobody reads.

    Parameters
    ----------
    first : (rows, n) int32
        State of each row to start from, hidden variables first.
    work : int
        Table cells to join per row; less if the time limit requires it.
    rows : int
        Number of rows of all agents that share the time limit ``sampling.seconds``.
    """
    graph, stop = agent_graph(local), sampling.backend.stop
    key = np.array(chain_key(sampling.seed, local.agent), dtype=np.uint64)
    order = order_for_cuts(graph, stop)
    starts = None if order is None else starts_of(graph, order, first[0].astype(np.int64), key, stop)
    on_gpu = sampling.backend.samples_on_gpu(local.rows * work // tuning.CELLS_PER_DRAW) and fits(graph)
    team = sampling.team
    if team.size > 1:
        on_gpu = broadcast_from_first(team, on_gpu)
    if on_gpu and team.rank > 0:
        return first
    if on_gpu:
        states_found = _on_gpu(graph, key, sampling, first, work, (order, starts))
        if states_found is not None:
            return states_found
    if sampling.seconds is not None:
        ranks = 1 if on_gpu else team.size
        seconds = sampling.seconds * ranks * sampling.backend.threads / max(1, rows)
        work = min(work, int(seconds * WORKER_CELLS_PER_SECOND / 10))  # large blocks are slower than the usual speed
    if on_gpu or team.size == 1:
        return _on_cpu(graph, key, sampling, first, work, starts)
    parts = team.allgather(lambda: [_on_cpu(graph, key, sampling, first, work, starts, rows_of_rank(local.rows, team))])
    return np.concatenate([part[0] for part in parts])


def _on_cpu(
    graph: FactorGraph,
    key: NDArray[np.uint64],
    sampling: Sampling,
    first: _RowStates,
    work: int,
    starts: MiniBucketStarts | None,
    share: tuple[int, int] | None = None,
) -> _RowStates:
    """Anneal rows on all threads, all rows or the range ``share`` (first row, row after the last); return their states.

    A row begins at its first state, or at a mini-bucket start if that has more utility. The share ``FIRST_SHARE`` of
    its work is done at temperature 0, the rest by annealing. A row that is not begun before the deadline keeps its
    first state.
    """
    threads, halt = sampling.backend.threads, np.zeros(1, dtype=np.uint8)
    first_row, end = (0, first.shape[0]) if share is None else share
    states = first[first_row:end].copy()

    def sample(begin: int) -> None:
        for row in range(begin, end, threads):
            if halt[0]:
                return
            z = first[row].astype(np.int64)
            search = BlockSearch(graph, key, row)
            if starts is not None:
                z = max(z, starts.draw(row, 0, z), key=search.utility_of)
            search.improve(z, int(tuning.FIRST_SHARE * work), halt)
            states[row - first_row] = search.anneal(z, work - int(tuning.FIRST_SHARE * work), halt)

    tasks = [partial(sample, begin) for begin in range(first_row, min(first_row + threads, end))]
    run_until_deadline(tasks, threads, sampling.backend.stop, halt)
    return states


def _on_gpu(
    graph: FactorGraph,
    key: NDArray[np.uint64],
    sampling: Sampling,
    first: _RowStates,
    work: int,
    known: tuple[NDArray[np.int64] | None, MiniBucketStarts | None],
) -> _RowStates | None:
    """Anneal all rows together on the GPU; return their states, or None if the GPU has too little memory.

    ``known`` has the elimination order along which blocks are cut from the whole graph (None if the graph is too
    large for one), and the mini-bucket starts (None if there are none).
    """
    stop, (order, starts) = sampling.backend.stop, known
    if sampling.seconds is not None:
        stop = stop.by(time.perf_counter() + sampling.seconds)
    with CpuFallback():
        blocks = DeviceBlockChains(graph, key, first, np.arange(graph.free) if order is None else order)
        if starts is not None:
            blocks.start(starts, stop)
        blocks.anneal(work, stop)
        return blocks.best()
    return None


SOLVER = BlockSolver()
