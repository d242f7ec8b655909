"""Block moves between tournament rounds of chains; recent success decides how the time is shared.

The local search alternates two methods: annealed chains of single-variable draws, and block moves, which redraw many
variables at once by elimination. Time spent on chains earns *credit* for block moves; the exchange rate grows while
block moves improve the incumbent and chains do not.
"""

import time
from collections import Counter
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.samplers.blocks.neighbourhood_search import BlockSearch, order_for_cuts, penalised_graph
from dmcmc.samplers.blocks.starts import MiniBucketStarts, starts_of
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.model.chain_model import chain_key

Values = NDArray[np.int64]


class BlockMoves:
    """Workers that make block moves from the best assignment, with a time credit that grows with their success.

    Parameters
    ----------
    graph : FactorGraph
        The original problem.
    seed : int
        Seed of the random numbers.
    threads : int
        Threads for the workers.

    Attributes
    ----------
    last_improved : bool
        Whether the last call of ``run`` found a better assignment; set by the caller.
    _share, _credit, _spent : float
        Share of the time for block moves; seconds saved up for the next call of ``run``, which spends them all; seconds
        spent so far.
    _order, _order_tried
        Elimination order along which blocks are cut from the whole graph, and whether it has been computed; None if the
        graph is too large for one.
    _current : dict
        For each worker, the assignment of its own from which it continues; removed when it gains nothing more.
    """

    def __init__(self, graph: FactorGraph, seed: int, threads: int) -> None:
        self.graph, self.seed, self.threads = graph, seed, threads
        self._fits = (
            0 < graph.data.size <= MEMORY_ACCOUNT.budget_share(tuning.COPY_MEMORY_SHARE / 8, tuning.MAX_COPIED_ENTRIES)
        )
        self._searches: list[BlockSearch] = []
        self._order: NDArray[np.int64] | None = None
        self._share, self._credit, self._spent = 0.5, 0.0, 0.0
        self._order_tried = self.last_improved = False
        self._calls = 0
        self._starts: MiniBucketStarts | None = None
        self._suggested: list[Values] = []
        self._current: dict[int, Values] = {}
        self._drawn: Counter[int] = Counter()

    def add_chain_time(self, seconds: float, gained: bool) -> bool:
        """Credit time to block moves after chains have searched; return whether the credit suffices for a quantum.

        The share of block moves grows if only they improved the incumbent lately, and shrinks if only chains did.

        Parameters
        ----------
        seconds : float
            How long the chains have searched.
        gained : bool
            Whether the chains found a better assignment.
        """
        if self.last_improved and not gained:
            self._share = min(1.0 - tuning.UNTRIED_SHARE, 0.5 * (1.0 + self._share))
        elif gained and not self.last_improved:
            self._share = max(tuning.UNTRIED_SHARE, 0.5 * self._share)
        # The chains' time is the share 1 − s of both; block moves get the share s.
        self._credit += seconds * self._share / (1.0 - self._share)
        return self._fits and self._credit >= tuning.CHECK_SECONDS

    @property
    def chain_share(self) -> float:
        """The share of the time that is left for chains."""
        return 1.0 - self._share if self._fits else 1.0

    def run(self, values: Values, timed: bool, stop: Deadline) -> Values:
        """Spend the credit on block moves from an assignment; return the best assignment of any worker.

        Parameters
        ----------
        values : (n,) int64
            The best known assignment.
        timed : bool
            Whether the credit is spent in seconds; otherwise in table cells, with the same result on any machine.
        stop : Deadline
            Ends the moves early.
        """
        start_time, halt = time.perf_counter(), np.zeros(1, dtype=np.uint8)
        searches = self._workers(min(self.threads, tuning.MAX_WORKERS) if timed else tuning.FIXED_WORKERS, values, stop)
        states = [values.copy() for _ in searches]
        for i in range(len(searches)):
            if self._suggested and i not in self._current:
                self._current[i] = self._suggested.pop(0).copy()
        has_start = [self._starts is not None or i in self._current for i in range(len(searches))]
        work = int(np.iinfo(np.int64).max) if timed else int(self._credit * tuning.WORKER_CELLS_PER_SECOND)

        def improve(i: int) -> None:
            """Make worker i's moves: from its own start, annealed, or from the given assignment, in rotation."""
            number = self._calls + i
            if has_start[i] and number % 2 == 0:
                states[i] = self._continue_start(i, work, halt)
            elif (number // 2 if has_start[i] else number) % 2:
                states[i] = searches[i].anneal(values, work, halt)
            else:
                searches[i].improve(states[i], work, halt)

        deadline = stop.by(start_time + self._credit) if timed else stop
        run_until_deadline([partial(improve, i) for i in range(len(searches))], self.threads, deadline, halt)
        self._spent += time.perf_counter() - start_time if timed else self._credit
        self._credit = 0.0
        self._calls += 1
        return max(states, key=searches[0].utility_of)

    def suggest(self, values: Values) -> None:
        """Add an assignment for a worker to begin at before a new start is drawn; only the last few are retained."""
        self._suggested = [*self._suggested, values][-2 * tuning.MAX_WORKERS :]

    def _continue_start(self, i: int, work: int, halt: NDArray[np.uint8]) -> Values:
        """Make block moves from the worker's current start while they gain; then switch to its next start."""
        if i not in self._current:
            assert self._starts is not None
            self._current[i] = self._starts.draw(i, self._drawn[i])
            self._drawn[i] += 1
        state = self._current[i]
        if self._searches[i].improve(state, work, halt) <= 0:
            del self._current[i]
        return state.copy()

    def _workers(self, count: int, values: Values, stop: Deadline) -> list[BlockSearch]:
        """Return ``count`` workers; compute an elimination order and starts once enough time has been spent."""
        if not self._searches:
            self._searches.append(BlockSearch(penalised_graph(self.graph), self._key))
        if not self._order_tried and self._spent >= tuning.SECONDS_BEFORE_ORDER:
            self._order_tried, self._order = True, order_for_cuts(self._searches[0].graph, stop)
            if self._order is not None:
                self._starts = starts_of(self._searches[0].graph, self._order, values, self._key, stop)
        while len(self._searches) < count:
            self._searches.append(BlockSearch(self._searches[0].graph, self._key, len(self._searches)))
        for search in self._searches:
            if self._order is not None and not search.cuts:
                search.cut(self._order)
        return self._searches[:count]

    @property
    def _key(self) -> NDArray[np.uint64]:
        """The key of the random numbers, (2,) uint64; agents and chains have other keys."""
        return np.array(chain_key(self.seed, -2), dtype=np.uint64)
