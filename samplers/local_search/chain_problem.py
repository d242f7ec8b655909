"""The problem that annealed chains search: entries that the incumbent dominates are forbidden in its tables."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import FactorGraph, build_graph
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.presolve.dominated_entries import forbid_dominated, slack_of
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.samplers.local_search.chains import (
    Candidate,
    ChainFactory,
    ChainStart,
    ColumnChainFactory,
    GraphChainFactory,
    TemperatureRange,
)
from dmcmc.samplers.local_search.race_round import TournamentRound
from dmcmc.samplers.local_search.successive_halving import (
    HARD_CONSTRAINT_RANGES,
    TEMPERATURE_RANGES,
    ScheduledChain,
)
from dmcmc.samplers.local_search.sweep_order import sweep_order
from dmcmc.samplers.tuning import common
from dmcmc.samplers.tuning import local_search as tuning

Values = NDArray[np.int64]


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
            common.COPY_MEMORY_SHARE / 4, tuning.MAX_COLUMN_ENTRIES
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
