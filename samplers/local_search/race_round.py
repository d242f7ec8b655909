"""One round of a tournament (successive halving) of annealed chains; an interrupted round continues later."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.local_search.chains import Candidate, PairDescent
from dmcmc.samplers.local_search.rank_exchange import Exchange


class CandidateResult(NamedTuple):
    """The result of a candidate, as it is sent to the other ranks.

    Attributes
    ----------
    best_score, end_score
        Scores of the best and of the final assignment, see ``Candidate``.
    best : (n,) int32 or None
        The best assignment; None if another candidate of the same rank is better.
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
