"""Sample an agent's rows with block moves, and detect rows in which single-variable draws are frozen.

A *row* is an assignment of the agent's boundary variables (its interface). A *block move* redraws a set of hidden
variables exactly, given all others; its work is counted in *cells*, the entries of the tables that its elimination
joins. Draws are *frozen* if they hardly ever change a value.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.blocks.block_workspace import penalised_graph
from dmcmc.samplers.blocks.neighbourhood_search import BlockSearch
from dmcmc.samplers.blocks.sweep_kernels import mobility, utility_of_assignment
from dmcmc.samplers.contract.protocol import SampledTable, Sampling
from dmcmc.samplers.model.evaluation import evaluate_rows
from dmcmc.samplers.model.rng import chain_key
from dmcmc.samplers.tuning import chains as tuning
from dmcmc.samplers.tuning import common
from dmcmc.samplers.tuning.blocks import STEP_CELLS

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
        row_seconds = max(common.CHECK_SECONDS, seconds * concurrent / rows.size)
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
            witness=partial(_witness, local, states.copy()),
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
    for row in np.unique(np.linspace(0, len(states) - 1, 2 * common.FEW_ROWS).astype(np.int64)).tolist():
        z = assignment_of(local, states, row)
        mobilities.append(float(mobility(graph, z, tuning.FROZEN_TEMPERATURE)))
        violated.append(float(utility_of_assignment(graph, z)) <= 0.5 * graph.forbidden_entry)
    return float(np.mean(mobilities)) <= tuning.MAX_FROZEN_MOBILITY or float(np.mean(violated)) >= common.MAJORITY_SHARE


def agent_graph(local: LocalProblem) -> FactorGraph:
    """Return an agent's factor graph with penalties for forbidden entries; only hidden variables move."""
    return penalised_graph(local.graph)


def assignment_of(local: LocalProblem, states: NDArray[Any], row: int) -> NDArray[np.int64]:
    """Return a row's hidden values followed by its interface values, (n,) int64."""
    interface = np.unravel_index(row, local.interface_shape) if local.interface else ()
    return np.array([*states[row], *interface], dtype=np.int64)


def _witness(local: LocalProblem, states: NDArray[np.int64], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values stored for a row."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))
