"""Local search over the whole assignment, agent by agent: an agent moves its variables given its neighbours' values.

Ranks share out the chains of a heat, and tell each other once how they have ended.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.samplers.local_search.ascent import Ascent
from dmcmc.samplers.local_search.block_moves import BlockTurns
from dmcmc.samplers.local_search.chains import ColumnField, Contestant, Field, GraphField, Range, Start
from dmcmc.samplers.local_search.dominated_entries import slack_of, without_hopeless
from dmcmc.samplers.local_search.factor_graph import Graph, build_graph
from dmcmc.samplers.local_search.race_round import Ended, Heat
from dmcmc.samplers.local_search.rank_exchange import ALONE, Exchange
from dmcmc.samplers.local_search.successive_halving import RANGES, STRICT, Race, part_of_race
from dmcmc.samplers.local_search.sweep_order import sweep_order

# Entries of all columns, and the part of the budget for them: chains on larger problems read the tables themselves.
_MOST_COLUMNS, _COLUMNS = 1 << 28, 1 / 16
_AT_ONCE = 0.5  # seconds of chains before blocks may have a turn
_LARGE = 1 << 22  # entries of a problem whose first assignment takes its time
_DRAW = 3e-8  # seconds of a draw, where work is fixed
_ALL = 0.8  # of the time that is left is as good as all

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
    seed, threads
        Of chains.
    stop : Stop
        Looked at by all that is done here.
    exchange : Exchange
        Joins the ranks; all of them call the same methods with the same arguments.

    Attributes
    ----------
    behind : bool
        Whether chains have what other work leaves of the cores.
    heats : int
        That have been run to their ends, by the clock.
    """

    def __init__(
        self,
        original: Problem,
        problem: Problem,
        seed: int,
        threads: int,
        stop: Stop,
        exchange: Exchange = ALONE,
    ) -> None:
        self.original, self.problem = original, problem
        self.seed, self.threads, self.stop, self.exchange = seed, threads, stop, exchange
        self.ascent, self.behind = Ascent(original, threads, stop), False
        first = original.n_variables
        added = problem.factors if problem.n_variables > first else ()
        self._links = [factor for factor in added if factor.scope and factor.scope[-1] >= first]
        self._race: Race | None = None
        self._heat: Heat | None = None
        self._chains, self._pace, self.heats = 0, 0.0, 0
        self._paired: Values | None = None
        self._suggested: list[Values] = []
        self._slack = float("inf")  # what an entry may lose in an assignment better than that which chains began with

    def first(self, found: Found = lambda values: None) -> Values:
        """Return a first assignment: greedy by factors, then each variable's best value until none is better.

        Parameters
        ----------
        found
            Called with the greedy one of a large problem, where the way up takes some hundredths of a second.
        """
        greedy = self.ascent.greedy()
        if self.ascent.graph.data.size > _LARGE:
            found(self._completed(greedy))
        return self._completed(self.ascent.climb(greedy))

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
            How long; None for fixed work, with the same answer on any number of ranks. By the clock each rank searches
            on its own, with its part of the temperatures; the caller takes the best. What the seconds cut short is gone
            on with the next time.
        sweeps
            Of all chains together, where work is fixed.
        found
            Called with every better assignment at once.
        """
        best = self.polish(values) if seconds is not None else self._agreed(self.polish(values))
        if self.better(best, values):
            found(best)
        if self.original.n_variables:
            if self._race is None:
                self._slack = slack_of(self.problem, best)
            heats = self._by_the_clock(best, seconds) if seconds is not None else self._by_work(best, sweeps)
            for better in heats:
                best = better
                found(best)
        return best

    def suggest(self, values: Values) -> None:
        """Begin here, too, when there is a search by the clock the next time."""
        self._suggested.append(values[: self.original.n_variables])

    def better(self, one: Values, other: Values) -> bool:
        """Return whether an assignment is better than another: fewer violations, or as many and more utility."""
        n = self.original.n_variables
        return self.ascent.better(one[:n], other[:n])

    def _by_the_clock(self, best: Values, seconds: float) -> Iterator[Values]:
        """Yield ever better assignments that this rank's heats find in some seconds, polished."""
        until = time.perf_counter() + seconds
        while self._suggested and not self.stop.over:
            start = self.ascent.climb(self._suggested.pop(0))
            self._blocks.suggest(start)
            if self.better(start, best):
                best = self._completed(start)
                yield best
        if self._race is None:
            own, slow = (self.exchange.rank, self.exchange.size), self._field.slow
            self._race = part_of_race(self._ranges, *own, self.threads, slow)
        while not self.stop.over and (left := until - time.perf_counter()) > 0:
            left *= self._blocks.left
            if self._heat is None:
                length = self._fitting(left)
                if not length:  # what is left is for blocks
                    if self._blocks.earn(until - time.perf_counter(), gained=False):
                        candidate = self._turn_of_blocks(best, self.stop.by(until), timed=True)
                        if self._blocks.paid:
                            yield candidate
                    return
                self._heat = self._next_heat(best, length, self.seed + (self.exchange.rank << 96))
            elif self._last(left):
                self._heat.fit(left, self._pace / self.threads)
            heat, begun = self._heat, time.perf_counter()
            self._run(heat.open, self.stop.by(min(until, begun + _AT_ONCE)))
            took = time.perf_counter() - begun
            heat.seconds += took
            self._pace = heat.pace(self.threads)
            if not heat.open:
                self._race.next(heat.chains, self.original.domains)
                self._heat, self.heats = None, self.heats + 1
            winner, before = heat.best, best
            if self._field.may_beat(winner.worth, best[: self.original.n_variables]):
                candidate = self._completed(self.ascent.climb(winner.values()))
                if self.better(candidate, best):
                    best = candidate
                    yield best
            if self._blocks.earn(took, gained=best is not before) and not self.stop.over:
                candidate = self._turn_of_blocks(best, self.stop.by(until), timed=True)
                if self._blocks.paid:
                    best = candidate
                    yield best

    def _last(self, left: float) -> bool:
        """Return whether there is little time for the search when so many seconds are over."""
        return left >= _ALL * self._blocks.left * (self.stop.until - time.perf_counter())

    def _fitting(self, left: float) -> int:
        """Return how many sweeps the chains of the next heat make: as many as the race wants, or down to half of that.

        What takes longer is cut short, and gone on with the next time; where there will be none, all that there is time
        for.
        """
        assert self._race is not None
        length, lanes = self._race.sweeps, -(-len(self._race.entries) // self.threads)
        if not self._pace:
            return length
        fits = int(left / (lanes * self._pace))
        return min(length, fits) if self._last(left) or 2 * fits >= length else length

    def _by_work(self, best: Values, sweeps: int) -> Iterator[Values]:
        """Yield ever better assignments that so many sweeps of all chains find, polished; on all ranks together."""
        race = self._race = self._race or Race(self._ranges)
        while not self._told(self.stop.over) and (length := min(race.sweeps, sweeps // len(race.entries))) > 0:
            sweeps -= length * len(race.entries)
            heat = self._next_heat(best, length, self.seed)
            ended = self._divided(heat)
            winner = max(ended, key=lambda one: one.worth)
            race.next(ended[: len(heat.chains)], self.original.domains)
            before, drawn = best, length * len(heat.chains) * self.original.n_variables
            if self._field.may_beat(winner.worth, best[: self.original.n_variables]):
                candidate = self._completed(self._agreed(self.ascent.climb(winner.values())))
                if self.better(candidate, best):
                    best = candidate
                    yield best
            if self._blocks.earn(_DRAW * drawn, gained=best is not before) and not self._told(self.stop.over):
                candidate = self._turn_of_blocks(best, self.stop, timed=False)
                if self._blocks.paid:
                    best = candidate
                    yield best

    def _turn_of_blocks(self, best: Values, stop: Stop, timed: bool) -> Values:
        """Return what block moves make of an assignment; where work is fixed, the first rank makes them for all."""
        own, self._blocks.threads = best[: self.original.n_variables], self.threads
        if timed or self.exchange.rank == 0:
            own = self.ascent.climb(self._blocks.turn(own, timed, stop))
        found = self._completed(own if timed else self._agreed(own))
        self._blocks.paid = self.better(found, best)
        return found

    @cached_property
    def _blocks(self) -> BlockTurns:
        return BlockTurns(self._graph, self.seed + (self.exchange.rank << 96), self.threads)

    def _told(self, over: bool) -> bool:
        """Return whether the first rank is out of time."""
        return bool(self._agreed(np.array([over], dtype=np.int64))[0])

    def _agreed(self, numbers: Values) -> Values:
        """Return what the first rank has."""
        if self.exchange.size == 1:
            return numbers
        return self.exchange.all(numbers if self.exchange.rank == 0 else numbers[:0])[0]

    def graph_from(self, values: Values) -> Graph:
        """Return the problem as chains see it; before they begin, without what no better assignment than this has."""
        if self._race is None:
            self._slack = min(self._slack, slack_of(self.problem, values))
        return self._graph

    @cached_property
    def _graph(self) -> Graph:
        """The problem as it was asked, what no better assignment has forbidden."""
        strict = without_hopeless(self.original, self._slack)
        return self.ascent.graph if strict is self.original else build_graph(strict)

    @cached_property
    def _field(self) -> Field:
        """Columns where they fit, else the problem as it was asked."""
        graph = self._graph
        if graph.dense == graph.scope_start.size - 1 and graph.columns <= ACCOUNT.part(_COLUMNS / 4, _MOST_COLUMNS):
            return ColumnField(without_hopeless(self.problem, self._slack))
        return GraphField(graph, sweep_order(self.original).variables)

    @property
    def _ranges(self) -> Sequence[Range]:
        """What chains cool through."""
        return RANGES + STRICT if self._field.hard else RANGES

    def _next_heat(self, best: Values, length: int, seed: int) -> Heat:
        """Return chains that cool from the best assignment, or go on from where they were.

        Beside them, pairs of variables move where that has not been tried.
        """
        assert self._race is not None
        own, field, chains = best[: self.original.n_variables], self._field, list[Contestant]()
        for number, entry in enumerate(self._race.entries, self._chains):
            start = Start(own if entry.values is None else entry.values, seed, number, entry.utility)
            chains.append(field.chain(start, entry.span, length))
        self._chains += len(chains)
        pairs = None
        if self._paired is None or not np.array_equal(own, self._paired):
            pairs, self._paired = field.pairs(Start(own, self.seed, 0)), own
        return Heat(chains, pairs)

    def _run(self, contestants: Sequence[Contestant], stop: Stop) -> None:
        """Run contestants on all threads, until they are through or it is time to end."""
        halt = np.zeros(1, dtype=np.uint8)
        run_watched(
            [partial(contestant.run, halt) for contestant in contestants], self.threads, stop, halt, self.behind
        )

    def _divided(self, heat: Heat) -> list[Ended]:
        """Run a heat's contestants, each on one of the ranks; return on all of them how all have ended."""
        rank, size, ended = self.exchange.rank, self.exchange.size, list[Ended]()
        mine = heat.all[rank::size]
        self._run(mine, self.stop)
        best = max(mine, key=lambda one: one.worth, default=None)
        parts = self.exchange.all([Ended.of(one, best=one is best) for one in mine])
        for place in range(len(heat.all)):
            ended.append(parts[place % size][place // size])
        return ended

    def _completed(self, own: Values) -> Values:
        """Return an assignment of the original variables together with the hidden states that follow from it."""
        values = np.append(own, np.zeros(self.problem.n_variables - own.size, dtype=np.int64))
        for factor in self._links:  # in the order of the states: of each, one is allowed at most
            allowed = factor.table[tuple(values[list(factor.scope[:-1])])]
            values[factor.scope[-1]] = int(np.argmax(allowed))
        return values
