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
from dmcmc.samplers.local_search.chains import ColumnChain, ColumnField, Contestant, Field, GraphField, Pairs, Start
from dmcmc.samplers.local_search.exchange import ALONE, Exchange
from dmcmc.samplers.local_search.order import sweep_order
from dmcmc.samplers.local_search.race import Race
from dmcmc.samplers.local_search.together import Together

# Entries of all columns, and the part of the budget for them: chains on larger problems read the tables themselves.
_MOST_COLUMNS, _COLUMNS = 1 << 28, 1 / 16
_ASKED = 3  # exchanges that say what one takes
_DRAW, _TOUCH = 3e-8, 1e-8  # seconds of a draw, and of a column that it moves

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
        self._together: Together | None = None
        self._apart = False

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
            How long; None for fixed work, with the same answer on any number of ranks. By the clock ranks may end with
            different ones; the caller takes the best.
        sweeps
            Of all chains together, where work is fixed.
        found
            Called with every better assignment at once.
        """
        self._apart = seconds is not None and self.exchange.size > 1 and self._dear()
        best = self._agreed(self.polish(values))
        if self.better(best, values):
            found(best)
        until = None if seconds is None else time.perf_counter() + seconds
        left = sweeps
        while self.original.n_variables and (length := self._length(until, left)) > 0:
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

    def _length(self, until: float | None, left: int) -> int:
        """Return how many sweeps the chains of the next heat make: as many as the race wants, or there is time for.

        Parameters
        ----------
        until
            When to end (``time.perf_counter``); None where ``left`` says how many sweeps all chains may make.
        """
        race = self._race
        length = race.sweeps
        if self.stop.over:
            length = 0
        elif until is None:
            length = min(length, left // len(race.entries))
        else:
            lanes = -(-len(race.entries) // self.threads) if self._alone else len(race.entries)
            seconds = until - time.perf_counter()
            length = int(min(length, seconds / (lanes * self._pace))) if self._pace else length * (seconds > 0)
        return int(self._agreed(np.array([length]))[0])

    @property
    def _alone(self) -> bool:
        """Whether this rank runs its chains by itself."""
        return self.exchange.size == 1 or self._apart

    def _dear(self) -> bool:
        """Return whether telling boundary values takes longer than what is drawn between; the same on all ranks.

        Then, by the clock, ranks search each on their own, from other random numbers; the caller takes the best.
        """
        field, waited = self._field, float("inf")
        for _ in range(_ASKED):
            begun = time.perf_counter()
            self.exchange.all(np.zeros(1, dtype=np.int64))
            waited = min(waited, time.perf_counter() - begun)
        work = 0.0
        if isinstance(field, ColumnField):
            touches = field.model.touch_variable.size
            sweep = _DRAW * field.order.variables.size + _TOUCH * touches
            work = sweep * len(self._race.entries) / ((field.order.colours.size - 1) * self.exchange.size)
        told = self.exchange.all(np.array([waited > work], dtype=np.int64))
        return bool(told[0][0])

    def _agreed(self, numbers: Values) -> Values:
        """Return what the first rank has: by the clock, ranks may have stopped at different moments."""
        if self._alone:
            return numbers
        return self.exchange.all(numbers if self.exchange.rank == 0 else numbers[:0])[0]

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
        seed = self.seed + (self.exchange.rank << 96 if self._apart else 0)
        chains = []
        for number, entry in enumerate(race.entries, self._chains):
            start = Start(own if entry.values is None else entry.values, seed, number, entry.utility)
            chains.append(field.chain(start, entry.span, length))
        self._chains += len(chains)
        pairs = None
        if self._paired is None or not np.array_equal(own, self._paired):
            pairs, self._paired = field.pairs(Start(own, self.seed, 0)), own
        begun = time.perf_counter()
        stop = self.stop if until is None else self.stop.by(until)
        if self._alone:
            winner = self._run([*chains, *([pairs] if pairs else [])], stop)
        else:
            winner = self._run_together(chains, pairs, stop)
        lanes = min(self.threads, len(chains)) if self._alone else 1
        self._pace = (time.perf_counter() - begun) * lanes / sum(chain.sweeps for chain in chains)
        race.next(chains, self.original.domains)
        if not field.may_beat(winner.worth, own):
            return None
        return self._completed(self._agreed(self.ascent.climb(self._values(winner))))

    def _run(self, contestants: Sequence[Contestant], stop: Stop) -> Contestant:
        """Run contestants on all threads, until they are through or it is time to end; return the best."""
        halt = np.zeros(1, dtype=np.uint8)
        run_watched([partial(contestant.run, halt) for contestant in contestants], self.threads, stop, halt)
        return max(contestants, key=lambda contestant: contestant.worth)

    def _joined(self) -> Together | None:
        """Return how ranks run chains together; None where each runs all of them."""
        field = self._field
        if self._together is None and isinstance(field, ColumnField):
            agents = [mine.tolist() for mine in self.exchange.all(np.array(self.agents, dtype=np.int64))]
            self._together = Together(field, self.problem, agents, self.exchange)
        return self._together

    def _run_together(self, chains: Sequence[Contestant], pairs: Pairs | None, stop: Stop) -> Contestant:
        """Run chains on all ranks, each of which moves its agents; the first moves pairs. Return the best."""
        together = self._joined()
        if together is None:
            return self._run(chains, stop)
        together.run([chain for chain in chains if isinstance(chain, ColumnChain)], stop)
        best = max(chains, key=lambda chain: chain.worth)
        if pairs is None:
            return best
        if self.exchange.rank == 0:
            self._run([pairs], stop)
        moved = self._agreed(np.append(pairs.values(), pairs.worth if self.exchange.rank == 0 else 0))
        if moved[-1] <= best.worth:
            return best
        pairs.take(moved[:-1], int(moved[-1]))
        return pairs

    def _values(self, winner: Contestant) -> Values:
        """Return the best assignment of a contestant, from all ranks' parts where it ran on all of them."""
        if not self._alone and isinstance(winner, ColumnChain) and self._together is not None:
            return self._together.gathered(winner)
        return winner.values()

    def _completed(self, own: Values) -> Values:
        """Return an assignment of the original variables together with the hidden states that follow from it."""
        values = np.append(own, np.zeros(self.problem.n_variables - own.size, dtype=np.int64))
        for factor in self._links:  # in the order of the states: of each, one is allowed at most
            allowed = factor.table[tuple(values[list(factor.scope[:-1])])]
            values[factor.scope[-1]] = int(np.argmax(allowed))
        return values
