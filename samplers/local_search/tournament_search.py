"""A tournament of searches: rounds, halving, and exchange between ranks.

Tournaments of annealed chains, with block moves between rounds: by the clock, or fixed work on all ranks.

The problem that annealed chains search: entries that the incumbent dominates are forbidden in its tables.

One round of a tournament (successive halving) of annealed chains; an interrupted round continues later.

Choose the temperatures that suit a problem by successive halving (Jamieson and Talwalkar, 2016).

Chains over several temperature ranges run in rounds of a *tournament*; after each round the better half continues with
twice the sweeps. A range's chain continues where it ended in the previous round. So hot ranges, which forget their
start, are compared with cold ranges, which improve it, by their results from the same start.

Communication between MPI ranks that search together.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import FactorGraph, build_graph
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.presolve.dominance import forbid_dominated, slack_of
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.local_search.block_moves import BlockMoves
from dmcmc.samplers.local_search.chains import (
    Candidate,
    ChainFactory,
    ChainStart,
    ColumnChainFactory,
    GraphChainFactory,
    PairDescent,
    TemperatureRange,
    sweep_order,
)

if TYPE_CHECKING:
    from dmcmc.samplers.local_search.local_search import LocalSearch


T = TypeVar("T")
Values = NDArray[np.int64]


class Exchange(Protocol):
    """Collective exchange of values between ranks; all ranks must make the same calls."""

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    def all(self, value: T) -> list[T]:
        """Gather the values of all ranks, in rank order, on every rank."""
        ...


class SingleProcess:
    """The exchange of a run with one process."""

    rank = 0
    size = 1

    def all(self, value: T) -> list[T]:
        """Return a list of the one value."""
        return [value]


SINGLE_PROCESS = SingleProcess()


def from_first_rank(exchange: Exchange, numbers: Values) -> Values:
    """Return the numbers of the first rank, on every rank."""
    if exchange.size == 1:
        return numbers
    return exchange.all(numbers if exchange.rank == 0 else numbers[:0])[0]


def first_rank_says(exchange: Exchange, over: bool) -> bool:
    """Return the first rank's decision to stop, on every rank."""
    return bool(from_first_rank(exchange, np.array([over], dtype=np.int64))[0])


class CandidateResult(NamedTuple):
    """The result of a candidate, as it is sent to the other ranks, or comes from the GPU.

    Attributes
    ----------
    best_score, end_score
        Scores of the best and of the final assignment, see ``Candidate``.
    best : (n,) int32 or None
        The best assignment; None if it is not sent, because another candidate of the same rank is better.
    end : (n,) int32
        The final assignment.
    """

    best_score: Any
    end_score: Any
    best: NDArray[np.int32] | None
    end: NDArray[np.int32]

    @classmethod
    def of(cls, candidate: Candidate, is_best: bool) -> "CandidateResult":
        """Return the result of a candidate; ``is_best`` says whether it is the best of its rank."""
        return cls(
            candidate.best_score,
            candidate.end_score,
            candidate.best_values().astype(np.int32) if is_best else None,
            candidate.end_values().astype(np.int32),
        )

    def best_values(self) -> NDArray[np.int64]:
        """Return the best assignment; only for the best of all candidates."""
        assert self.best is not None, "another one is better"
        return self.best.astype(np.int64)

    def end_values(self) -> NDArray[np.int64]:
        """Return the final assignment."""
        return self.end.astype(np.int64)


@dataclass
class TournamentRound:
    """The candidates of a round, which search from their starts independently.

    Attributes
    ----------
    chains : sequence of Candidate
        Annealed chains.
    pairs : PairDescent or None
        A search by moves of pairs of variables, if the round has one.
    seconds : float
        Time that the round has taken so far.
    """

    chains: Sequence[Candidate]
    pairs: PairDescent | None
    seconds: float = 0.0

    @property
    def candidates(self) -> list[Candidate]:
        """All candidates."""
        return [*self.chains, *([self.pairs] if self.pairs else [])]

    @property
    def unfinished(self) -> list[Candidate]:
        """The candidates that are not finished."""
        return [candidate for candidate in self.candidates if not candidate.finished]

    @property
    def best(self) -> Candidate:
        """The candidate with the best score."""
        return max(self.candidates, key=lambda candidate: candidate.best_score)

    def seconds_per_sweep(self, threads: int) -> float:
        """Return the seconds that one thread needs for a sweep of one chain; 0 if unknown."""
        sweeps = sum(chain.sweeps_done for chain in self.chains)
        return self.seconds * min(threads, len(self.chains)) / sweeps if sweeps else 0.0

    def fit(self, left: float, seconds_per_sweep: float) -> None:
        """Drop sweeps if the remaining ones would take longer than the remaining time.

        Parameters
        ----------
        left : float
            Remaining time, seconds.
        seconds_per_sweep : float
            Time per remaining sweep with all threads at work, seconds; 0 if unknown.
        """
        needed = (
            sum(chain.sweeps - chain.sweeps_done for chain in self.chains if not chain.finished) * seconds_per_sweep
        )
        if needed > left:
            for chain in self.chains:
                chain.skip_sweeps(left / needed)

    def run_on_ranks(self, exchange: Exchange, run: Callable[[Sequence[Candidate]], object]) -> list[CandidateResult]:
        """Run each candidate on one of the ranks; return all results on every rank.

        Parameters
        ----------
        exchange : Exchange
            Joins the ranks.
        run : callable
            Runs some candidates on this rank.
        """
        rank, size, results = exchange.rank, exchange.size, list[CandidateResult]()
        local_candidates = self.candidates[rank::size]
        run(local_candidates)
        best = max(local_candidates, key=lambda one: one.best_score, default=None)
        parts = exchange.all([CandidateResult.of(one, is_best=one is best) for one in local_candidates])
        for place in range(len(self.candidates)):
            results.append(parts[place % size][place // size])
        return results


TEMPERATURE_RANGES: tuple[TemperatureRange, ...] = tuple(TemperatureRange(*span) for span in tuning.COMPETING_RANGES)
HARD_CONSTRAINT_RANGES: tuple[TemperatureRange, ...] = tuple(TemperatureRange(*span) for span in tuning.HARD_RANGES)


@dataclass
class ScheduledChain:
    """A chain of the next round.

    Attributes
    ----------
    span : TemperatureRange
        Its temperatures.
    values : (n,) int64 or None
        Where it begins; None for the best known assignment.
    utility
        Score of ``values``, see ``ChainStart``; None if unknown.
    """

    span: TemperatureRange
    values: Values | None = None
    utility: Any = None


class SuccessiveHalving:
    """The chains of the next round and their number of sweeps.

    Parameters
    ----------
    spans : sequence of TemperatureRange
        The ranges to compare.
    survivors : int
        Number of ranges that remain until the end of a tournament.
    slow : bool
        Whether sweeps take so long that few rounds are expected.

    Attributes
    ----------
    entries : list of ScheduledChain
        Chains that continue, then as many that reheat the best assignment. In the first round of a tournament: one
        chain per range, from the best assignment or (in every other tournament) from random values.
    sweeps : int
        Sweeps of each chain in the next round; doubled from round to round. A tournament ends after
        ``MAX_ROUND_SWEEPS``; the next one begins with four times the first round's sweeps, but at most a
        quarter of that.
    """

    def __init__(
        self,
        spans: Sequence[TemperatureRange] = TEMPERATURE_RANGES,
        survivors: int = 2,
        slow: bool = False,
    ) -> None:
        self._spans, self._survivors = spans, survivors
        self._reduction = 4 if slow else 2  # one of this many chains continues
        self.sweeps = self._first_sweeps = tuning.FIRST_ROUND_SWEEPS * (tuning.SLOW_SWEEP_FACTOR if slow else 1)
        self._tournaments = 0
        self.entries = [ScheduledChain(span) for span in spans]
        self._continued = len(spans)

    def next_round(self, chains: Sequence[Candidate | CandidateResult], domains: NDArray[np.int64]) -> None:
        """Advance to the next round or to a new tournament; every other tournament begins at random values.

        Parameters
        ----------
        chains : sequence of Candidate or CandidateResult
            Results of the entries, in the same order.
        domains : (n,) int64
            Domain sizes.
        """
        ranking = sorted(range(self._continued), key=lambda i: (chains[i].end_score, -i), reverse=True)
        surviving = ranking[: max(self._survivors, self._continued // self._reduction)]
        self.sweeps *= 2
        if self.sweeps <= tuning.MAX_ROUND_SWEEPS:
            self.entries = [
                ScheduledChain(self.entries[i].span, chains[i].end_values(), chains[i].end_score)
                for i in sorted(surviving)
            ]
            self._continued = len(self.entries)
            self.entries += [ScheduledChain(_reheated(entry.span)) for entry in self.entries]
            return
        self._tournaments += 1
        self._first_sweeps = self.sweeps = min(self._first_sweeps * 4, tuning.MAX_ROUND_SWEEPS // 4)
        start = np.random.default_rng(self._tournaments).integers(0, domains) if self._tournaments % 2 else None
        self.entries, self._continued = [ScheduledChain(span, start) for span in self._spans], len(self._spans)


def tournament_of_rank(
    ranges: Sequence[TemperatureRange], rank: int, size: int, threads: int, slow: bool = False
) -> SuccessiveHalving:
    """Return the tournament of one of several ranks that search independently, with its share of the ranges.

    All ranks together have at least one chain per thread and one per range, and as many survivors as a single rank.
    """
    total = max(len(ranges), threads * size)
    spans = [ranges[i % len(ranges)] for i in range(rank, total, size)]
    return SuccessiveHalving(spans, max(1, max(2, threads * size // 2) // size), slow)


def _reheated(span: TemperatureRange) -> TemperatureRange:
    """Return a range that begins at a lower temperature, for chains that start from the best assignment."""
    return span._replace(first=max(span.last, 0.5 * span.first))


class ChainProblem:
    """The tables that chains read; they are laid out at the first use.

    Parameters
    ----------
    original, problem : Problem
        The original problem, and the same as dense tables.
    original_graph : callable
        Returns the factor graph of the original problem.
    seed : int
        Seed of the moves of pairs of variables.

    Attributes
    ----------
    _slack : float
        Bound on the utility that an improving assignment can lose in one factor; entries that lose more are forbidden.
    """

    def __init__(
        self, original: Problem, problem: Problem, original_graph: Callable[[], FactorGraph], seed: int
    ) -> None:
        self._original, self._problem, self._original_graph, self._seed = original, problem, original_graph, seed
        self._slack = float("inf")
        self._chains = 0
        self._pairs_tried_from: Values | None = None

    def tighten(self, values: Values) -> None:
        """Forbid entries that an assignment dominates, in what is laid out from now on."""
        self._slack = min(self._slack, slack_of(self._problem, values))

    @cached_property
    def graph(self) -> FactorGraph:
        """The factor graph of the original problem without dominated entries."""
        strict = forbid_dominated(self._original, self._slack)
        return self._original_graph() if strict is self._original else build_graph(strict)

    @cached_property
    def factory(self) -> ChainFactory:
        """Makes chains with score columns if these fit in memory, else chains on the factor graph."""
        graph = self.graph
        if graph.dense == graph.scope_start.size - 1 and graph.columns <= MEMORY_ACCOUNT.budget_share(
            tuning.COPY_MEMORY_SHARE / 4, tuning.MAX_COLUMN_ENTRIES
        ):
            return ColumnChainFactory(forbid_dominated(self._problem, self._slack))
        return GraphChainFactory(graph, sweep_order(self._original).variables)

    @property
    def ranges(self) -> Sequence[TemperatureRange]:
        """Temperature ranges of the tournament."""
        return TEMPERATURE_RANGES + HARD_CONSTRAINT_RANGES if self.factory.hard else TEMPERATURE_RANGES

    def round_of(
        self, entries: Sequence[ScheduledChain], best: Values, round_sweeps: int, seed: int
    ) -> TournamentRound:
        """Return a round: chains that anneal from the best assignment or continue where they ended.

        Moves of pairs of variables are added if they have not been tried from the best assignment.

        Parameters
        ----------
        entries : sequence of ScheduledChain
            The chains of the tournament's next round.
        best : (n,) int64
            The best assignment of the original variables.
        round_sweeps : int
            Sweeps per chain.
        seed : int
            Seed of the chains.
        """
        factory, chains = self.factory, list[Candidate]()
        for number, entry in enumerate(entries, self._chains):
            start = ChainStart(best if entry.values is None else entry.values, seed, number, entry.utility)
            chains.append(factory.chain(start, entry.span, round_sweeps))
        self._chains += len(chains)
        pairs = None
        if self._pairs_tried_from is None or not np.array_equal(best, self._pairs_tried_from):
            pairs, self._pairs_tried_from = factory.pairs(ChainStart(best, self._seed, 0)), best
        return TournamentRound(chains, pairs)


OnBetter = Callable[[Values], object]
ImproveConstraints = Callable[[Values, float, int, OnBetter], Values]


class TournamentSearch:
    """The chains of a rank, and the block moves between their rounds.

    Parameters
    ----------
    shared : LocalSearch
        The problem, the deadline and the ranks.

    Attributes
    ----------
    chain_problem : ChainProblem
        The tables that the chains read.
    rounds : int
        Number of rounds completed by the clock.
    may_move_blocks : callable
        Returns whether block moves may be made; they need more kernels than the chains.
    may_search_constraints : callable
        Returns whether a timed search of a problem of tables alternates with the search on constraints, as long as a
        hard constraint is violated; it needs further kernels.
    _tournament : SuccessiveHalving or None
        None until the first search.
    _round : TournamentRound or None
        By the clock: the current round, which the next call continues if it was interrupted; None between rounds.
    """

    def __init__(self, shared: "LocalSearch") -> None:
        # A weak reference, because the local search owns this object: so both are freed as soon as the search ends.
        owner: LocalSearch = proxy(shared)
        self._shared = owner
        self.chain_problem = ChainProblem(shared.original, shared.problem, lambda: owner.ascent.graph, shared.seed)
        self._tournament: SuccessiveHalving | None = None
        self._round: TournamentRound | None = None
        self._seconds_per_sweep, self.rounds = 0.0, 0
        self.may_move_blocks: Callable[[], bool] = lambda: True
        self.may_search_constraints: Callable[[], bool] = lambda: False

    def tighten(self, values: Values) -> None:
        """Forbid entries that an assignment dominates in the tables of the chains, until the first search."""
        if self._tournament is None:
            self.chain_problem.tighten(values)

    def improve_timed(self, best: Values, seconds: float, improve_constraints: ImproveConstraints) -> Iterator[Values]:
        """Search for some seconds on this rank; yield each better assignment, made 1-opt."""
        shared = self._shared
        until = time.perf_counter() + seconds
        while shared.suggested and not shared.stop.over:
            start = shared.ascent.climb(shared.suggested.pop(0))
            self._blocks.suggest(start)
            if shared.better(start, best):
                best = shared.extended(start)
                yield best
        if self._tournament is None:
            place, slow = (shared.exchange.rank, shared.exchange.size), self.chain_problem.factory.slow
            self._tournament = tournament_of_rank(self.chain_problem.ranges, *place, shared.threads, slow)
        while not shared.stop.over and (left := until - time.perf_counter()) > 0:
            left *= self._blocks.chain_share
            if self._round is None:
                round_sweeps = self._sweeps_that_fit(left)
                if not round_sweeps:  # the remaining time is for block moves
                    yield from self._turn_of_blocks(best, until - time.perf_counter(), False, shared.stop.by(until))
                    return
                # Seeds of other ranks differ above bit 96, beyond all seeds of configurations.
                self._round = self.chain_problem.round_of(
                    self._tournament.entries,
                    shared.original_values(best),
                    round_sweeps,
                    shared.seed + (shared.exchange.rank << 96),
                )
            elif self._is_last_slice(left):
                self._round.fit(left, self._seconds_per_sweep / shared.threads)
            if self.may_search_constraints() and self._violates(best):
                found = improve_constraints(best, min(2 * tuning.SLICE_SECONDS, left), 0, lambda values: None)
                if found is not best:
                    best = found
                    yield best
            this_round, begun = self._round, time.perf_counter()
            self._run(this_round.unfinished, shared.stop.by(min(until, begun + 2 * tuning.SLICE_SECONDS)))
            elapsed = time.perf_counter() - begun
            this_round.seconds += elapsed
            self._seconds_per_sweep = this_round.seconds_per_sweep(shared.threads)
            if not this_round.unfinished:
                self._tournament.next_round(this_round.chains, shared.original.domains)
                self._round, self.rounds = None, self.rounds + 1
            for better in self._better_of_round(best, this_round.best, elapsed, shared.stop.by(until)):
                best = better
                yield best

    def _violates(self, values: Values) -> bool:
        """Return whether an assignment violates a hard constraint."""
        shared = self._shared
        return shared.original.appraise(shared.original_values(values))[0].violation > 0

    def _is_last_slice(self, left: float) -> bool:
        """Return whether almost no time remains for the search after the next ``left`` seconds."""
        shared = self._shared
        return left >= tuning.PLANNED_SHARE * self._blocks.chain_share * (shared.stop.until - time.perf_counter())

    def _sweeps_that_fit(self, left: float) -> int:
        """Return the number of sweeps per chain of the next round: the tournament's number, or down to half of it.

        A longer round is interrupted and continues in the next call. In the last time slice the number is cut to fit; 0
        if no sweep fits.
        """
        shared = self._shared
        assert self._tournament is not None
        round_sweeps, lanes = self._tournament.sweeps, -(-len(self._tournament.entries) // shared.threads)
        if not self._seconds_per_sweep:
            return round_sweeps
        fits = int(left / (lanes * self._seconds_per_sweep))
        return min(round_sweeps, fits) if self._is_last_slice(left) or 2 * fits >= round_sweeps else round_sweeps

    def improve_by_sweeps(self, best: Values, sweeps: int) -> Iterator[Values]:
        """Make ``sweeps`` sweeps in total on all ranks together; yield each better assignment, made 1-opt."""
        shared = self._shared
        tournament = self._tournament = self._tournament or SuccessiveHalving(self.chain_problem.ranges)
        while (
            not first_rank_says(shared.exchange, shared.stop.over)
            and (round_sweeps := min(tournament.sweeps, sweeps // len(tournament.entries))) > 0
        ):
            sweeps -= round_sweeps * len(tournament.entries)
            this_round = self.chain_problem.round_of(
                tournament.entries, shared.original_values(best), round_sweeps, shared.seed
            )
            results = this_round.run_on_ranks(shared.exchange, partial(self._run, stop=shared.stop))
            winner = max(results, key=lambda result: result.best_score)
            tournament.next_round(results[: len(this_round.chains)], shared.original.domains)
            seconds = tuning.DRAW_SECONDS * round_sweeps * len(this_round.chains) * shared.original.n_variables
            for better in self._better_of_round(best, winner, seconds, None):
                best = better
                yield best

    def _better_of_round(
        self, best: Values, winner: Candidate | CandidateResult, seconds: float, stop: Deadline | None
    ) -> Iterator[Values]:
        """Yield the best assignment of a round, made 1-opt, and that of block moves, each if it is better.

        Parameters
        ----------
        best : (n,) int64
            The best known assignment.
        winner : Candidate or CandidateResult
            The best candidate of the round.
        seconds : float
            Time of the round.
        stop : Deadline or None
            Ends block moves by the clock; None for fixed work, which the first rank does for all ranks.
        """
        shared, known = self._shared, best
        if self.chain_problem.factory.may_beat(winner.best_score, shared.original_values(best)):
            climbed = shared.ascent.climb(winner.best_values())
            candidate = shared.extended(from_first_rank(shared.exchange, climbed) if stop is None else climbed)
            if shared.better(candidate, best):
                best = candidate
                yield best
        yield from self._turn_of_blocks(best, seconds, best is not known, stop)

    def _turn_of_blocks(self, best: Values, seconds: float, gained: bool, stop: Deadline | None) -> Iterator[Values]:
        """Count seconds of chains, and make block moves if they have their turn; yield a better assignment."""
        if not (self.may_move_blocks() and self._blocks.add_chain_time(seconds, gained)):
            return
        shared, is_timed = self._shared, stop is not None
        if shared.stop.over if is_timed else first_rank_says(shared.exchange, shared.stop.over):
            return
        candidate = self._move_blocks(best, stop or shared.stop, is_timed)
        if self._blocks.last_improved:
            yield candidate

    def _move_blocks(self, best: Values, stop: Deadline, timed: bool) -> Values:
        """Improve an assignment by block moves; with fixed work the first rank makes them for all ranks."""
        shared = self._shared
        original_values, self._blocks.threads = shared.original_values(best), shared.threads
        if timed or shared.exchange.rank == 0:
            original_values = shared.ascent.climb(self._blocks.run(original_values, timed, stop))
        candidate = shared.extended(original_values if timed else from_first_rank(shared.exchange, original_values))
        self._blocks.last_improved = shared.better(candidate, best)
        return candidate

    @cached_property
    def _blocks(self) -> BlockMoves:
        """The block moves of this rank."""
        shared = self._shared
        return BlockMoves(self.chain_problem.graph, shared.seed + (shared.exchange.rank << 96), shared.threads)

    def _run(self, candidates: Sequence[Candidate], stop: Deadline) -> None:
        """Run candidates on all threads until they are finished or the deadline passes."""
        shared = self._shared
        halt = np.zeros(1, dtype=np.uint8)
        run_until_deadline(
            [partial(candidate.run, halt) for candidate in candidates], shared.threads, stop, halt, shared.behind
        )
