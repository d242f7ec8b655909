"""Block moves between heats of chains: how long, by what either has brought lately."""

import time
from collections import Counter
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.samplers.blocks.block_workspace import Priced
from dmcmc.samplers.blocks.mini_bucket_starts import Starts, starts_of
from dmcmc.samplers.blocks.neighbourhood_search import BlockSearch, order_for_cuts
from dmcmc.samplers.local_search.factor_graph import Graph
from dmcmc.samplers.model.rng import chain_key

_MOST_ENTRIES, _ENTRIES = 1 << 24, 1 / 16  # of all tables, and the part of the budget for a copy of them
_LEAST = 0.02  # seconds of a turn
_WORKERS, _MOST_WORKERS = 2, 8  # where work is fixed; by the clock one a thread, but not more
_RATE = 1e9  # cells a second, where work is fixed
_SUGGESTED = 16  # starts that are kept
_BEFORE_CUTS = 0.03  # seconds of block moves before an order is looked for
_MOST_SHARE, _LEAST_SHARE = 0.9, 0.1  # of the time

Values = NDArray[np.int64]


class BlockTurns:
    """Workers that make block moves from the best assignment, and what they have earned.

    Parameters
    ----------
    graph : Graph
        The problem as it was asked.
    seed : int
        Of random numbers.
    threads : int

    Attributes
    ----------
    paid : bool
        Whether the last turn has brought a better assignment; set by the caller, who knows.
    """

    def __init__(self, graph: Graph, seed: int, threads: int) -> None:
        self.graph, self.seed, self.threads = graph, seed, threads
        self._fits = 0 < graph.data.size <= ACCOUNT.part(_ENTRIES / 8, _MOST_ENTRIES)
        self._searches: list[BlockSearch] = []
        self._order: NDArray[np.int64] | None = None
        self._share, self._credit, self._spent = 0.5, 0.0, 0.0
        self._ordered = self.paid = False
        self._turns = 0
        self._starts: Starts | None = None
        self._suggested: list[Values] = []
        self._lineages: dict[int, Values] = {}
        self._drawn: Counter[int] = Counter()

    def earn(self, seconds: float, gained: bool) -> bool:
        """Hear how long chains have searched, and whether they found something; return whether it is our turn."""
        if self.paid and not gained:
            self._share = min(_MOST_SHARE, 0.5 * (1.0 + self._share))
        elif gained and not self.paid:
            self._share = max(_LEAST_SHARE, 0.5 * self._share)
        self._credit += seconds * self._share / (1.0 - self._share)
        return self._fits and self._credit >= _LEAST

    @property
    def left(self) -> float:
        """The part of the time that blocks leave to chains."""
        return 1.0 - self._share if self._fits else 1.0

    def turn(self, values: Values, timed: bool, stop: Stop) -> Values:
        """Make block moves from an assignment for what has been earned; return the best that a worker ends with."""
        begun, halt = time.perf_counter(), np.zeros(1, dtype=np.uint8)
        searches = self._workers(min(self.threads, _MOST_WORKERS) if timed else _WORKERS, values, stop)
        states = [values.copy() for _ in searches]
        for i in range(len(searches)):
            if self._suggested and i not in self._lineages:
                self._lineages[i] = self._suggested.pop(0).copy()
        begins = [self._starts is not None or i in self._lineages for i in range(len(searches))]
        work = int(np.iinfo(np.int64).max) if timed else int(self._credit * _RATE)

        def improve(i: int) -> None:
            turn = self._turns + i
            if begins[i] and turn % 2 == 0:
                states[i] = self._go_on(i, work, halt)
            elif (turn // 2 if begins[i] else turn) % 2:
                states[i] = searches[i].anneal(values, work, halt)
            else:
                searches[i].improve(states[i], work, halt)

        until = stop.by(begun + self._credit) if timed else stop
        run_watched([partial(improve, i) for i in range(len(searches))], self.threads, until, halt)
        self._spent += time.perf_counter() - begun if timed else self._credit
        self._credit = 0.0
        self._turns += 1
        return max(states, key=searches[0].worth)

    def suggest(self, values: Values) -> None:
        """Begin here before the next start is drawn; the last few count."""
        self._suggested = [*self._suggested, values][-_SUGGESTED:]

    def _go_on(self, i: int, work: int, halt: NDArray[np.uint8]) -> Values:
        """Make block moves from a worker's start, as long as they gain; then from its next."""
        if i not in self._lineages:
            assert self._starts is not None
            self._lineages[i] = self._starts.draw(i, self._drawn[i])
            self._drawn[i] += 1
        state = self._lineages[i]
        if self._searches[i].improve(state, work, halt) <= 0:
            del self._lineages[i]
        return state.copy()

    def _workers(self, count: int, values: Values, stop: Stop) -> list[BlockSearch]:
        """Return so many workers; an elimination order, and starts, are looked for once they are worth their time."""
        if not self._searches:
            self._searches.append(BlockSearch(priced(self.graph), self._key))
        if not self._ordered and self._spent >= _BEFORE_CUTS:
            self._ordered, self._order = True, order_for_cuts(self._searches[0].graph, stop)
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
        """The two words that key random numbers; no agent, and nothing else here, has this one."""
        return np.array(chain_key(self.seed, -2), dtype=np.uint64)


def priced(graph: Graph) -> Priced:
    """Give violations a price: more than all that could be gained by one."""
    hard = graph.data == graph.never
    data = graph.data.astype(np.float64)
    if graph.rest.size:
        data += graph.rest
    factors, dense = graph.scope_start.size - 1, graph.dense
    high, low = np.where(hard, -np.inf, data), np.where(hard, np.inf, data)
    best, least = np.full(factors, -np.inf), np.full(factors, np.inf)
    if dense:
        best[:dense] = np.maximum.reduceat(high[: graph.first_step], graph.at[:dense])
        least[:dense] = np.minimum.reduceat(low[: graph.first_step], graph.at[:dense])
    layers = data[graph.first_step :][~hard[graph.first_step :]]
    span = float((best - least)[np.isfinite(best)].sum() + np.abs(layers).sum())
    never = -(2.0 * span + float(np.abs(data[~hard]).max(initial=0.0)) + 1.0)
    data[hard] = never
    best[dense:] = 0.0
    best[~np.isfinite(best)] = never
    return Priced(
        graph.domains, dense, graph.scope_start, graph.scope, graph.stride, graph.at, data, graph.following,
        graph.first_step, never, graph.start, graph.factor, best, graph.domains.size,
    )  # fmt: skip
