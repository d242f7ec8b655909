"""Rows of one agent sampled on with block moves, and whether single draws are frozen where they are."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.blocks.block_workspace import Priced
from dmcmc.samplers.blocks.neighbourhood_search import BlockSearch
from dmcmc.samplers.blocks.sweep_kernels import mobility, total
from dmcmc.samplers.contract.protocol import SampledTable, Sampling
from dmcmc.samplers.local_search.block_moves import priced
from dmcmc.samplers.local_search.factor_graph import build_graph
from dmcmc.samplers.model.chain_model import flatten_local
from dmcmc.samplers.model.evaluation import evaluate_rows
from dmcmc.samplers.model.rng import chain_key

NAME = "blocks"
_ROWS = 8  # that say whether chains are frozen
_TEMPERATURE = 0.2  # at which single draws are tried, in typical spreads: where chains spend much of their time
_FROZEN = 0.02  # of all draws move, at most, or
_VIOLATED = 0.5  # of the rows break something, at least
_TURN = 0.02  # seconds of a row's turn, at least
_DESCENT = 1 << 15  # cells of moves that only gain, for each variable, before a turn anneals


class BlockChains:
    """The best states of an agent's rows, made better by block moves; a :class:`.Resumable`.

    Attributes
    ----------
    states : (rows, hidden) int64
    seconds : float
        That have gone into them, elsewhere too.
    updates : int
        Draws that were made elsewhere.
    """

    def __init__(
        self, local: LocalProblem, sampling: Sampling, states: NDArray[Any], seconds: float = 0.0, updates: int = 0
    ) -> None:
        self.local, self.sampling, self.graph = local, sampling, graph_of(local)
        self.states: NDArray[Any] = np.array(states, dtype=np.int64)
        self.seconds, self.updates = seconds, updates
        self._key = np.array(chain_key(sampling.seed, local.agent), dtype=np.uint64)
        self._next = self._moves = 0  # turns, and block moves of one search, so far

    @property
    def exhausted(self) -> bool:
        """Whether nothing more is to be gained: without hidden variables a row is one state."""
        return not self.local.hidden

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Make block moves in some rows for about some seconds; where there are many, some have their turn later."""
        if self.exhausted or not rows.size:
            return
        begun, stop = time.perf_counter(), self.sampling.backend.stop.by(time.perf_counter() + seconds)
        together = min(threads, rows.size)
        searches = [BlockSearch(self.graph, self._key, number) for number in range(together)]
        for search in searches:
            search.moves = self._moves
        each = max(_TURN, seconds * together / rows.size)
        for _ in range(0, rows.size, together):
            if stop.over:
                break
            chosen = rows[(self._next + np.arange(together)) % rows.size].tolist()
            self._next += together
            halt, until = np.zeros(1, dtype=np.uint8), stop.by(time.perf_counter() + each)
            pairs = zip(searches, chosen, strict=True)
            run_watched([partial(self._move, search, row, halt) for search, row in pairs], threads, until, halt)
        self._moves = max(search.moves for search in searches)
        self.seconds += time.perf_counter() - begun

    def _move(self, search: BlockSearch, row: int, halt: NDArray[np.uint8]) -> None:
        """Make a row's state better by moves that only gain, then anneal it until it is time to halt."""
        z = assignment_of(self.local, self.states, row)
        search.improve(z, _DESCENT * len(self.local.hidden), halt)
        search.forget()
        z = search.anneal(z, int(np.iinfo(np.int64).max), halt)
        self.states[row] = z[: len(self.local.hidden)]

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Take other hidden values of some rows where they are better."""
        others, some = self.states.copy(), False
        others[rows] = states
        for row in rows.tolist():
            before, now = (total(self.graph, assignment_of(self.local, each, row)) for each in (self.states, others))
            if now > before:
                self.states[row], some = others[row], True
        return some

    def part(self, rows: NDArray[np.int64], draws: int) -> list[Array]:
        """Return the states of some rows, for other ranks."""
        return [self.states[rows]]

    def take(self, rows: NDArray[np.int64], part: Sequence[Array]) -> None:
        """Take what another rank has made of some rows."""
        self.states[rows] = part[0]

    def table(self) -> SampledTable:
        """Return the table as it is, its values computed anew from the states."""
        local, states = self.local, self.states
        domains = local.domains[[*local.hidden, *local.interface]].astype(np.int32)
        values = evaluate_rows(flatten_local(local), domains, states, local.interface_shape, self.sampling.arithmetic)
        return SampledTable(
            lower=(Table(local.interface, values),),
            upper=None,
            witness=partial(_witness, local, states.copy()),
            method=NAME,
            seconds=self.seconds,
            updates=self.updates,
        )


def frozen(local: LocalProblem, states: NDArray[Any]) -> bool:
    """Return whether single draws hardly move anything, or end with violations, in a sample of an agent's rows."""
    if not local.hidden or not len(states):
        return False
    graph, moves, broken = graph_of(local), list[float](), list[bool]()
    for row in np.unique(np.linspace(0, len(states) - 1, _ROWS).astype(np.int64)).tolist():
        z = assignment_of(local, states, row)
        moves.append(float(mobility(graph, z, _TEMPERATURE)))
        broken.append(float(total(graph, z)) <= 0.5 * graph.never)
    return float(np.mean(moves)) <= _FROZEN or float(np.mean(broken)) >= _VIOLATED


def graph_of(local: LocalProblem) -> Priced:
    """Return an agent's factors with prices, hidden variables first; the interface never moves."""
    variables = [*local.hidden, *local.interface]
    number = {v: i for i, v in enumerate(variables)}
    factors = tuple(Factor(tuple(number[v] for v in f.scope), f.table) for f in local.factors)
    names, owner = tuple(f"x{v}" for v in variables), np.zeros(len(variables), dtype=np.int64)
    problem = Problem(names, local.domains[variables], ("agent",), owner, factors)
    return priced(build_graph(problem))._replace(free=len(local.hidden))


def assignment_of(local: LocalProblem, states: NDArray[Any], row: int) -> NDArray[np.int64]:
    """Return a row's hidden values with its interface behind them."""
    interface = np.unravel_index(row, local.interface_shape) if local.interface else ()
    return np.array([*states[row], *interface], dtype=np.int64)


def _witness(local: LocalProblem, states: NDArray[np.int64], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values kept for a row."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))
