"""Tournaments of annealed chains, with block moves between rounds: by the clock, or fixed work on all ranks."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.samplers.local_search.block_moves import BlockMoves
from dmcmc.samplers.local_search.chain_problem import ChainProblem
from dmcmc.samplers.local_search.chains import Candidate
from dmcmc.samplers.local_search.race_round import TournamentRound
from dmcmc.samplers.local_search.rank_exchange import first_rank_says, from_first_rank
from dmcmc.samplers.local_search.successive_halving import SuccessiveHalving, tournament_of_rank
from dmcmc.samplers.tuning import common
from dmcmc.samplers.tuning import local_search as tuning

if TYPE_CHECKING:
    from dmcmc.samplers.local_search.local_search import SharedSearch


Values = NDArray[np.int64]
OnBetter = Callable[[Values], object]
ImproveConstraints = Callable[[Values, float, int, OnBetter], Values]


class TournamentSearch:
    """The chains of a rank, and the block moves between their rounds.

    Parameters
    ----------
    shared : SharedSearch
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

    def __init__(self, shared: "SharedSearch") -> None:
        # A weak reference, because the local search owns this object: so both are freed as soon as the search ends.
        owner: SharedSearch = proxy(shared)
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
                    if self._turn_of_blocks(until - time.perf_counter(), gained=False):
                        candidate = self._move_blocks(best, shared.stop.by(until), timed=True)
                        if self._blocks.last_improved:
                            yield candidate
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
                found = improve_constraints(best, min(2 * common.SLICE_SECONDS, left), 0, lambda values: None)
                if found is not best:
                    best = found
                    yield best
            this_round, begun = self._round, time.perf_counter()
            self._run(this_round.unfinished, shared.stop.by(min(until, begun + 2 * common.SLICE_SECONDS)))
            elapsed = time.perf_counter() - begun
            this_round.seconds += elapsed
            self._seconds_per_sweep = this_round.seconds_per_sweep(shared.threads)
            if not this_round.unfinished:
                self._tournament.next_round(this_round.chains, shared.original.domains)
                self._round, self.rounds = None, self.rounds + 1
            winner, before = this_round.best, best
            if self.chain_problem.factory.may_beat(winner.best_score, shared.original_values(best)):
                candidate = shared.extended(shared.ascent.climb(winner.best_values()))
                if shared.better(candidate, best):
                    best = candidate
                    yield best
            if self._turn_of_blocks(elapsed, gained=best is not before) and not shared.stop.over:
                candidate = self._move_blocks(best, shared.stop.by(until), timed=True)
                if self._blocks.last_improved:
                    best = candidate
                    yield best

    def _violates(self, values: Values) -> bool:
        """Return whether an assignment violates a hard constraint."""
        shared = self._shared
        return shared.original.appraise(shared.original_values(values))[0].violation > 0

    def _is_last_slice(self, left: float) -> bool:
        """Return whether almost no time remains for the search after the next ``left`` seconds."""
        shared = self._shared
        return left >= common.PLANNED_SHARE * self._blocks.chain_share * (shared.stop.until - time.perf_counter())

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
            before, drawn = best, round_sweeps * len(this_round.chains) * shared.original.n_variables
            if self.chain_problem.factory.may_beat(winner.best_score, shared.original_values(best)):
                candidate = shared.extended(from_first_rank(shared.exchange, shared.ascent.climb(winner.best_values())))
                if shared.better(candidate, best):
                    best = candidate
                    yield best
            if self._turn_of_blocks(tuning.DRAW_SECONDS * drawn, gained=best is not before) and not first_rank_says(
                shared.exchange, shared.stop.over
            ):
                candidate = self._move_blocks(best, shared.stop, timed=False)
                if self._blocks.last_improved:
                    best = candidate
                    yield best

    def _turn_of_blocks(self, seconds: float, gained: bool) -> bool:
        """Count seconds of chains; return whether block moves have their turn."""
        return self.may_move_blocks() and self._blocks.add_chain_time(seconds, gained)

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
