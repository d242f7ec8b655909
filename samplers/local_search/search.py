"""Local search over the whole assignment, agent by agent: an agent moves its variables given its neighbours' values."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.exact_sum import Exact
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.threads import run_parallel, run_watched
from dmcmc.samplers.local_search.ascent import Ascent
from dmcmc.samplers.local_search.chains import Chain, SearchModel
from dmcmc.samplers.local_search.exchange import ALONE, Exchange

_CHAINS = 4  # at once, where work is fixed
_FIRST = 16  # sweeps of the first round
_GROWTH = 2

Values = NDArray[np.int64]
Found = Callable[[Values], object]


class LocalSearch:
    """Local search over all agents' variables.

    Parameters
    ----------
    original : Problem
        As it was asked; what assignments are judged by.
    problem : Problem
        The same as dense tables; variables beyond the original ones are hidden states.
    agents
        This rank's own.
    seed, threads
        Of chains.
    stop : Stop
        Looked at by all that is done here.
    exchange : Exchange
        Joins the ranks; all of them call the same methods with the same arguments.
    """

    def __init__(
        self,
        original: Problem,
        problem: Problem,
        agents: Sequence[int],
        seed: int,
        threads: int,
        stop: Stop,
        exchange: Exchange = ALONE,
    ) -> None:
        self.original, self.problem, self.agents = original, problem, list(agents)
        self.seed, self.threads, self.stop, self.exchange = seed, threads, stop, exchange
        self.ascent = Ascent(original, stop)
        self._model: SearchModel | None = None
        self._rounds = 0

    def first(self) -> Values:
        """Return a first assignment: greedy by factors, then each variable's best value until none is better."""
        return self._completed(self.ascent.climb(self.ascent.greedy()))

    def polish(self, values: Values) -> Values:
        """Return an assignment that no change of a single variable makes better; never worse than the one given.

        Better is fewer violations, then more utility, as :meth:`dmcmc.inference.model.problem.Problem.evaluate` counts
        them. When it is time to stop, the assignment may still have better neighbours.
        """
        return self._completed(self.ascent.climb(values[: self.original.n_variables]))

    def improve(self, values: Values, seconds: float | None, sweeps: int, found: Found = lambda values: None) -> Values:
        """Search on from an assignment; return one that is at least as good.

        Parameters
        ----------
        seconds
            How long; None for fixed work, with the same answer on any number of ranks.
        sweeps
            Of each chain together, where work is fixed.
        found
            Called with every better assignment at once.
        """
        best = self.polish(values)
        worth = self.worth(best)
        if worth > self.worth(values):
            found(best)
        if self.ascent.graph.dense < self.ascent.graph.scope_start.size - 1 or not self.problem.n_variables:
            return best
        if self._model is None:
            self._model = SearchModel(self.problem)
        until = None if seconds is None else time.perf_counter() + seconds
        done, length = 0, _FIRST
        while (until is None and done < sweeps) or (until is not None and time.perf_counter() < until):
            if until is None:
                length = min(length, sweeps - done)
            candidate = self._completed(self.ascent.climb(self._round(best, length, until)))
            if (now := self.worth(candidate)) > worth:
                best, worth = candidate, now
                found(best)
            done += length
            length *= _GROWTH
            if self.stop.over:
                break
        return best

    def worth(self, values: Values) -> tuple[int, Exact]:
        """Return what assignments are ordered by: fewer violations, then exact utility."""
        own = values[: self.original.n_variables]
        return -self.original.evaluate(own).violation, self.original.utility_inside(own)

    def _round(self, best: Values, length: int, until: float | None) -> Values:
        """Let chains cool; return the best state that one of them has found."""
        assert self._model is not None
        model, halt = self._model, np.zeros(1, dtype=np.int64)
        count = _CHAINS if until is None else max(1, self.threads)
        chains = [Chain(model, best, self.seed, self._rounds + i) for i in range(count)]
        tasks = [
            partial(chain.run, model.cooling(length, warm=(self._rounds + i) % 2 == 0), halt)
            for i, chain in enumerate(chains)
        ]
        self._rounds += count
        if until is None:
            run_parallel(tasks, self.threads)
        else:
            run_watched(tasks, self.threads, self.stop.by(until), halt)
        return max(chains, key=lambda chain: chain.utility).values()

    def _completed(self, own: Values) -> Values:
        """Return an assignment of the original variables together with the hidden states that follow from it."""
        return np.append(own, np.zeros(self.problem.n_variables - own.size, dtype=np.int64))
