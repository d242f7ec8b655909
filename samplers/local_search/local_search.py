"""Local search over complete assignments: annealed chains in tournament rounds, with block moves between the rounds.

A chain makes Gibbs *sweeps*, draws of every variable given the others, at falling temperature. A *tournament* compares
temperature ranges by successive halving: in each round the better half of the chains continue, with twice the sweeps. A
*block move* redraws many variables at once by elimination. An assignment is *1-opt* if no change of a single variable
improves it.

With fixed work the ranks share the chains of a round and exchange the results once per round. By the clock each rank
searches independently.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import FactorGraph, build_graph
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.samplers.constraint_search.constraint_search import ConstraintSearch
from dmcmc.samplers.local_search.ascent import Ascent, ascent_of
from dmcmc.samplers.local_search.block_moves import BlockMoves
from dmcmc.samplers.local_search.chains import (
    Candidate,
    ChainFactory,
    ChainStart,
    ColumnChainFactory,
    GraphChainFactory,
    TemperatureRange,
)
from dmcmc.samplers.local_search.dominated_entries import forbid_dominated, slack_of
from dmcmc.samplers.local_search.race_round import CandidateResult, TournamentRound
from dmcmc.samplers.local_search.rank_exchange import SINGLE_PROCESS, Exchange
from dmcmc.samplers.local_search.successive_halving import (
    HARD_CONSTRAINT_RANGES,
    TEMPERATURE_RANGES,
    SuccessiveHalving,
    tournament_of_rank,
)
from dmcmc.samplers.local_search.sweep_order import sweep_order

# Score columns are used up to these limits; chains on larger problems read the tables themselves.
_MAX_COLUMN_ENTRIES = 1 << 28  # entries
_COLUMN_MEMORY_SHARE = 1 / 16  # share of the memory budget
_CHAIN_QUANTUM = 0.5  # seconds of chains between two chances for block moves
_LARGE_ENTRIES = 1 << 22  # table entries above which the greedy assignment is reported before hill climbing
_DRAW_SECONDS = 3e-8  # seconds per draw, assumed with fixed work
_LAST_SLICE_SHARE = 0.8  # A time slice of at least this share of the remaining time counts as the last one.

Values = NDArray[np.int64]
OnBetter = Callable[[Values], object]


class LocalSearch:
    """Local search over the variables of all agents.

    Parameters
    ----------
    original : Problem
        The original problem, by which assignments are compared.
    problem : Problem
        The same problem as dense tables; variables beyond the original ones are states of automata.
    seed : int
        Seed of the chains.
    threads : int
        Threads of this rank.
    stop : Deadline
        Checked by all searches.
    exchange : Exchange
        Joins the ranks; all ranks must call the same methods with the same arguments.
    ascent : Ascent or None
        Hill climbing on ``original`` that exists already; None to make it.

    Attributes
    ----------
    ascent : Ascent
        Hill climbing on the original problem.
    behind : bool
        Whether chains leave the cores to other work of the process.
    rounds : int
        Number of rounds completed by the clock.
    may_move_blocks : callable
        Returns whether block moves may be made; they need more kernels than the chains.
    may_search_constraints : callable
        Returns whether a timed search of a problem of tables alternates with the search on constraints, as long as a
        hard constraint is violated; it needs further kernels.
    _tournament : SuccessiveHalving or None
        None until the first search; from then on the chains' graph (``_slack``) is fixed.
    _round : TournamentRound or None
        By the clock: the current round, which the next call continues if it was interrupted; None between rounds.
    _slack : float
        Bound on the utility that an improving assignment can lose in one factor; entries that lose more are forbidden.
    """

    def __init__(
        self,
        original: Problem,
        problem: Problem,
        seed: int,
        threads: int,
        stop: Deadline,
        exchange: Exchange = SINGLE_PROCESS,
        ascent: Ascent | None = None,
    ) -> None:
        self.original, self.problem = original, problem
        self.seed, self.threads, self.stop, self.exchange = seed, threads, stop, exchange
        self.ascent, self.behind = ascent or ascent_of(original, threads, stop), False
        first = original.n_variables
        added = problem.factors if problem.n_variables > first else ()
        self._state_factors = [factor for factor in added if factor.scope and factor.scope[-1] >= first]
        self._tournament: SuccessiveHalving | None = None
        self._round: TournamentRound | None = None
        self._chains, self._seconds_per_sweep, self.rounds = 0, 0.0, 0
        self._pairs_tried_from: Values | None = None
        self._suggested: list[Values] = []
        self.may_move_blocks: Callable[[], bool] = lambda: True
        self.may_search_constraints: Callable[[], bool] = lambda: False
        self._slack = float("inf")  # entries that lose more than this are dominated by the incumbent

    def first(self, on_better: OnBetter = lambda values: None, start: Values | None = None) -> Values:
        """Return a first assignment: greedy by factors, then 1-opt hill climbing.

        Parameters
        ----------
        on_better : callable
            Called with the greedy assignment of a large problem: hill climbing takes some hundredths of a second.
        start : (n,) int64 or None
            An assignment of the original variables to climb from; None for the greedy one.
        """
        greedy = self.ascent.greedy() if start is None else start
        if self.original.tabular and self.ascent.graph.data.size > _LARGE_ENTRIES:
            on_better(self._with_states(greedy))
        return self._with_states(self.ascent.climb(greedy))

    def one_opt(self, values: Values) -> Values:
        """Return a 1-opt assignment that is at least as good as the one given.

        An assignment is better if it has fewer violations, or as many and more utility, as counted by
        :meth:`dmcmc.inference.model.problem.Problem.evaluate`. If the deadline passes, the result may not be 1-opt.
        """
        return self._with_states(self.ascent.climb(values[: self.original.n_variables]))

    def improve(
        self, values: Values, seconds: float | None, sweeps: int, on_better: OnBetter = lambda values: None
    ) -> Values:
        """Continue the search from an assignment; return one that is at least as good.

        Parameters
        ----------
        values : (n,) int64
            The assignment.
        seconds : float or None
            Time limit; None for fixed work, with the same result on any number of ranks. By the clock each rank
            searches independently with its share of the temperature ranges, and the caller takes the best result.
            A round that is interrupted continues in the next call.
        sweeps : int
            With fixed work: number of sweeps, summed over all chains.
        on_better : callable
            Called at once with every better assignment.
        """
        best = self.one_opt(values) if seconds is not None else self._from_first_rank(self.one_opt(values))
        if self.better(best, values):
            on_better(best)
        if not self.original.tabular:
            return self._improve_constraints(best, seconds, sweeps, on_better)
        if self.original.n_variables:
            if self._tournament is None:
                self._slack = slack_of(self.problem, best)
            improvements = (
                self._improve_timed(best, seconds) if seconds is not None else self._improve_by_sweeps(best, sweeps)
            )
            for better in improvements:
                best = better
                on_better(best)
        return best

    def _improve_constraints(self, best: Values, seconds: float | None, sweeps: int, on_better: OnBetter) -> Values:
        """Search on the global constraints themselves, by the clock on each rank or by moves on the first rank."""
        n = self.original.n_variables

        def take(found: Values) -> None:
            nonlocal best
            candidate = self._with_states(found)
            if self.better(candidate, best):
                best = candidate
                on_better(best)

        while self._suggested and not self.stop.over:
            take(self.ascent.climb(self._suggested.pop(0)))
        if seconds is None:
            search, moves = self._constraint_search, sweeps * n
            found = search.improve_by_moves(best[:n], moves, self.stop) if self.exchange.rank == 0 else best[:n]
            take(self._from_first_rank(found))
        else:
            self._constraint_search.improve(best[:n], seconds, self.threads, self.stop, take)
        return best

    @cached_property
    def _constraint_search(self) -> ConstraintSearch:
        """The search of this rank on global constraints."""
        return ConstraintSearch(self.original, self.seed, self.exchange.rank)

    def suggest(self, values: Values) -> None:
        """Add a start assignment for the next search by the clock."""
        self._suggested.append(values[: self.original.n_variables])

    def better(self, one: Values, other: Values) -> bool:
        """Return whether ``one`` is better than ``other``: fewer violations, or equally many and more utility."""
        n = self.original.n_variables
        return self.ascent.better(one[:n], other[:n])

    def _improve_timed(self, best: Values, seconds: float) -> Iterator[Values]:
        """Search for some seconds on this rank; yield each better assignment, made 1-opt."""
        until = time.perf_counter() + seconds
        while self._suggested and not self.stop.over:
            start = self.ascent.climb(self._suggested.pop(0))
            self._blocks.suggest(start)
            if self.better(start, best):
                best = self._with_states(start)
                yield best
        if self._tournament is None:
            place, slow = (self.exchange.rank, self.exchange.size), self._factory.slow
            self._tournament = tournament_of_rank(self._ranges, *place, self.threads, slow)
        while not self.stop.over and (left := until - time.perf_counter()) > 0:
            left *= self._blocks.chain_share
            if self._round is None:
                round_sweeps = self._sweeps_that_fit(left)
                if not round_sweeps:  # the remaining time is for block moves
                    if self._turn_of_blocks(until - time.perf_counter(), gained=False):
                        candidate = self._move_blocks(best, self.stop.by(until), timed=True)
                        if self._blocks.last_improved:
                            yield candidate
                    return
                # Seeds of other ranks differ above bit 96, beyond all seeds of configurations.
                self._round = self._next_round(best, round_sweeps, self.seed + (self.exchange.rank << 96))
            elif self._is_last_slice(left):
                self._round.fit(left, self._seconds_per_sweep / self.threads)
            if self.may_search_constraints() and self._violates(best):
                found = self._improve_constraints(best, min(_CHAIN_QUANTUM, left), 0, lambda values: None)
                if found is not best:
                    best = found
                    yield best
            this_round, begun = self._round, time.perf_counter()
            self._run(this_round.unfinished, self.stop.by(min(until, begun + _CHAIN_QUANTUM)))
            elapsed = time.perf_counter() - begun
            this_round.seconds += elapsed
            self._seconds_per_sweep = this_round.seconds_per_sweep(self.threads)
            if not this_round.unfinished:
                self._tournament.next_round(this_round.chains, self.original.domains)
                self._round, self.rounds = None, self.rounds + 1
            winner, before = this_round.best, best
            if self._factory.may_beat(winner.best_score, best[: self.original.n_variables]):
                candidate = self._with_states(self.ascent.climb(winner.best_values()))
                if self.better(candidate, best):
                    best = candidate
                    yield best
            if self._turn_of_blocks(elapsed, gained=best is not before) and not self.stop.over:
                candidate = self._move_blocks(best, self.stop.by(until), timed=True)
                if self._blocks.last_improved:
                    best = candidate
                    yield best

    def _violates(self, values: Values) -> bool:
        """Return whether an assignment violates a hard constraint."""
        return self.original.appraise(values[: self.original.n_variables])[0].violation > 0

    def _is_last_slice(self, left: float) -> bool:
        """Return whether almost no time remains for the search after the next ``left`` seconds."""
        return left >= _LAST_SLICE_SHARE * self._blocks.chain_share * (self.stop.until - time.perf_counter())

    def _sweeps_that_fit(self, left: float) -> int:
        """Return the number of sweeps per chain of the next round: the tournament's number, or down to half of it.

        A longer round is interrupted and continues in the next call. In the last time slice the number is cut to fit; 0
        if no sweep fits.
        """
        assert self._tournament is not None
        round_sweeps, lanes = self._tournament.sweeps, -(-len(self._tournament.entries) // self.threads)
        if not self._seconds_per_sweep:
            return round_sweeps
        fits = int(left / (lanes * self._seconds_per_sweep))
        return min(round_sweeps, fits) if self._is_last_slice(left) or 2 * fits >= round_sweeps else round_sweeps

    def _improve_by_sweeps(self, best: Values, sweeps: int) -> Iterator[Values]:
        """Make ``sweeps`` sweeps in total on all ranks together; yield each better assignment, made 1-opt."""
        tournament = self._tournament = self._tournament or SuccessiveHalving(self._ranges)
        while (
            not self._first_rank_says(self.stop.over)
            and (round_sweeps := min(tournament.sweeps, sweeps // len(tournament.entries))) > 0
        ):
            sweeps -= round_sweeps * len(tournament.entries)
            this_round = self._next_round(best, round_sweeps, self.seed)
            results = self._run_on_ranks(this_round)
            winner = max(results, key=lambda result: result.best_score)
            tournament.next_round(results[: len(this_round.chains)], self.original.domains)
            before, drawn = best, round_sweeps * len(this_round.chains) * self.original.n_variables
            if self._factory.may_beat(winner.best_score, best[: self.original.n_variables]):
                candidate = self._with_states(self._from_first_rank(self.ascent.climb(winner.best_values())))
                if self.better(candidate, best):
                    best = candidate
                    yield best
            if self._turn_of_blocks(_DRAW_SECONDS * drawn, gained=best is not before) and not self._first_rank_says(
                self.stop.over
            ):
                candidate = self._move_blocks(best, self.stop, timed=False)
                if self._blocks.last_improved:
                    best = candidate
                    yield best

    def _turn_of_blocks(self, seconds: float, gained: bool) -> bool:
        """Count seconds of chains; return whether block moves have their turn."""
        return self.may_move_blocks() and self._blocks.add_chain_time(seconds, gained)

    def _move_blocks(self, best: Values, stop: Deadline, timed: bool) -> Values:
        """Improve an assignment by block moves; with fixed work the first rank makes them for all ranks."""
        original_values, self._blocks.threads = best[: self.original.n_variables], self.threads
        if timed or self.exchange.rank == 0:
            original_values = self.ascent.climb(self._blocks.run(original_values, timed, stop))
        candidate = self._with_states(original_values if timed else self._from_first_rank(original_values))
        self._blocks.last_improved = self.better(candidate, best)
        return candidate

    @cached_property
    def _blocks(self) -> BlockMoves:
        """The block moves of this rank."""
        return BlockMoves(self._graph, self.seed + (self.exchange.rank << 96), self.threads)

    def _first_rank_says(self, over: bool) -> bool:
        """Return the first rank's decision to stop, on every rank."""
        return bool(self._from_first_rank(np.array([over], dtype=np.int64))[0])

    def _from_first_rank(self, numbers: Values) -> Values:
        """Return the numbers of the first rank, on every rank."""
        if self.exchange.size == 1:
            return numbers
        return self.exchange.all(numbers if self.exchange.rank == 0 else numbers[:0])[0]

    def graph_from(self, values: Values) -> FactorGraph:
        """Return the factor graph for the chains; until they begin, entries dominated by ``values`` are forbidden."""
        if self._tournament is None:
            self._slack = min(self._slack, slack_of(self.problem, values))
        return self._graph

    @cached_property
    def _graph(self) -> FactorGraph:
        """The factor graph of the original problem without dominated entries."""
        strict = forbid_dominated(self.original, self._slack)
        return self.ascent.graph if strict is self.original else build_graph(strict)

    @cached_property
    def _factory(self) -> ChainFactory:
        """Makes chains with score columns if these fit in memory, else chains on the factor graph."""
        graph = self._graph
        if graph.dense == graph.scope_start.size - 1 and graph.columns <= MEMORY_ACCOUNT.budget_share(
            _COLUMN_MEMORY_SHARE / 4, _MAX_COLUMN_ENTRIES
        ):
            return ColumnChainFactory(forbid_dominated(self.problem, self._slack))
        return GraphChainFactory(graph, sweep_order(self.original).variables)

    @property
    def _ranges(self) -> Sequence[TemperatureRange]:
        """Temperature ranges of the tournament."""
        return TEMPERATURE_RANGES + HARD_CONSTRAINT_RANGES if self._factory.hard else TEMPERATURE_RANGES

    def _next_round(self, best: Values, round_sweeps: int, seed: int) -> TournamentRound:
        """Return the next round: chains that anneal from the best assignment or continue where they ended.

        Moves of pairs of variables are added if they have not been tried from the best assignment.
        """
        assert self._tournament is not None
        original_values, factory, chains = best[: self.original.n_variables], self._factory, list[Candidate]()
        for number, entry in enumerate(self._tournament.entries, self._chains):
            start = ChainStart(original_values if entry.values is None else entry.values, seed, number, entry.utility)
            chains.append(factory.chain(start, entry.span, round_sweeps))
        self._chains += len(chains)
        pairs = None
        if self._pairs_tried_from is None or not np.array_equal(original_values, self._pairs_tried_from):
            pairs, self._pairs_tried_from = factory.pairs(ChainStart(original_values, self.seed, 0)), original_values
        return TournamentRound(chains, pairs)

    def _run(self, candidates: Sequence[Candidate], stop: Deadline) -> None:
        """Run candidates on all threads until they are finished or the deadline passes."""
        halt = np.zeros(1, dtype=np.uint8)
        run_watched([partial(candidate.run, halt) for candidate in candidates], self.threads, stop, halt, self.behind)

    def _run_on_ranks(self, this_round: TournamentRound) -> list[CandidateResult]:
        """Run each candidate of a round on one of the ranks; return all results on every rank."""
        rank, size, results = self.exchange.rank, self.exchange.size, list[CandidateResult]()
        local_candidates = this_round.candidates[rank::size]
        self._run(local_candidates, self.stop)
        best = max(local_candidates, key=lambda one: one.best_score, default=None)
        parts = self.exchange.all([CandidateResult.of(one, is_best=one is best) for one in local_candidates])
        for place in range(len(this_round.candidates)):
            results.append(parts[place % size][place // size])
        return results

    def _with_states(self, original_values: Values) -> Values:
        """Extend an assignment of the original variables by the automaton states that follow from it."""
        values = np.append(original_values, np.zeros(self.problem.n_variables - original_values.size, dtype=np.int64))
        for factor in self._state_factors:  # in the order of the states; each has one allowed value at most
            allowed = factor.table[tuple(values[list(factor.scope[:-1])])]
            values[factor.scope[-1]] = int(np.argmax(allowed))
        return values
