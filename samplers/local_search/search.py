"""Local search over the whole assignment, agent by agent: an agent moves its variables given its neighbours' values."""

import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.samplers.local_search.ascent import Ascent
from dmcmc.samplers.local_search.chains import ColumnField, Contestant, Field, GraphField, Start
from dmcmc.samplers.local_search.exchange import ALONE, Exchange
from dmcmc.samplers.local_search.order import sweep_order
from dmcmc.samplers.local_search.race import Race

# Entries of all columns, and the part of the budget for them: chains on larger problems read the tables themselves.
_MOST_COLUMNS, _COLUMNS = 1 << 28, 1 / 16

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
        self.ascent = Ascent(original, threads, stop)
        first = original.n_variables
        self._links = [factor for factor in problem.factors if factor.scope and factor.scope[-1] >= first]
        self._race, self._chains, self._pace = Race(), 0, 0.0
        self._paired: Values | None = None

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
            Of all chains together, where work is fixed.
        found
            Called with every better assignment at once.
        """
        best = self.polish(values)
        if self.better(best, values):
            found(best)
        until = None if seconds is None else time.perf_counter() + seconds
        left = sweeps
        while self.original.n_variables and not self.stop.over:
            if until is None:
                length = min(self._race.sweeps, left // len(self._race.entries))
            else:
                length = self._fitting(until - time.perf_counter())
            if length < 1:
                break
            left -= length * len(self._race.entries)
            candidate = self._heat(best, length, until)
            if candidate is not None and self.better(candidate, best):
                best = candidate
                found(best)
        return best

    def better(self, one: Values, other: Values) -> bool:
        """Return whether an assignment is better than another: fewer violations, or as many and more utility."""
        n = self.original.n_variables
        return self.ascent.better(one[:n], other[:n])

    def _fitting(self, seconds: float) -> int:
        """Return how many sweeps the chains of a heat can make in some seconds, at most those that the race wants."""
        race = self._race
        lanes = -(-len(race.entries) // self.threads)
        return int(min(race.sweeps, seconds / (lanes * self._pace))) if self._pace else race.sweeps

    @cached_property
    def _field(self) -> Field:
        """Columns where they fit, else the problem as it was asked."""
        graph = self.ascent.graph
        if graph.dense == graph.scope_start.size - 1 and graph.columns <= ACCOUNT.part(_COLUMNS / 4, _MOST_COLUMNS):
            return ColumnField(self.problem)
        return GraphField(graph, sweep_order(self.original).variables)

    def _heat(self, best: Values, length: int, until: float | None) -> Values | None:
        """Let chains cool from the best assignment; return what they have found, polished, where it may be better.

        Beside them, pairs of variables move where that has not been tried.
        """
        own, field, race = best[: self.original.n_variables], self._field, self._race
        numbers = range(self._chains, self._chains + len(race.entries))
        self._chains += len(race.entries)
        chains = [
            field.chain(Start(own if entry.values is None else entry.values, self.seed, number), entry.span, length)
            for number, entry in zip(numbers, race.entries, strict=True)
        ]
        pairs = None
        if self._paired is None or not np.array_equal(own, self._paired):
            pairs, self._paired = field.pairs(Start(own, self.seed, 0)), own
        contestants = [*chains, *([pairs] if pairs else [])]
        begun = time.perf_counter()
        self._run(contestants, until)
        spent = (time.perf_counter() - begun) * min(self.threads, len(contestants))
        self._pace = spent / sum(contestant.sweeps for contestant in contestants)
        race.next(chains, self.original.domains)
        winner = max(contestants, key=lambda contestant: contestant.worth)
        if not field.may_beat(winner.worth, own):
            return None
        return self._completed(self.ascent.climb(winner.values()))

    def _run(self, contestants: Sequence[Contestant], until: float | None) -> None:
        """Run contestants on all threads, until they are through or it is time to end."""
        halt = np.zeros(1, dtype=np.uint8)
        tasks = [partial(contestant.run, halt) for contestant in contestants]
        stop = self.stop if until is None else self.stop.by(until)
        run_watched(tasks, self.threads, stop, halt)

    def _completed(self, own: Values) -> Values:
        """Return an assignment of the original variables together with the hidden states that follow from it."""
        values = np.append(own, np.zeros(self.problem.n_variables - own.size, dtype=np.int64))
        for factor in self._links:  # in the order of the states: of each, one is allowed at most
            allowed = factor.table[tuple(values[list(factor.scope[:-1])])]
            values[factor.scope[-1]] = int(np.argmax(allowed))
        return values
