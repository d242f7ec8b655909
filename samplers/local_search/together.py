"""Chains that all ranks run together: each moves its own agents, one colour at a time, and tells boundary values.

Agents of one colour share no factor, so what they draw does not depend on each other: chains make the same moves in one
process. Chains begin with different colours, so no rank idles.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.samplers.local_search.anneal_kernels import adopt, step
from dmcmc.samplers.local_search.chains import ColumnChain, ColumnField, Values
from dmcmc.samplers.local_search.exchange import Exchange

Places = NDArray[np.int64]  # of variables in a column field


class Together:
    """Who moves what, and who has to know.

    Parameters
    ----------
    agents
        Of each rank.
    """

    def __init__(
        self, field: ColumnField, problem: Problem, agents: Sequence[Sequence[int]], exchange: Exchange
    ) -> None:
        self.field, self.exchange = field, exchange
        rank_of = np.zeros(max(1, problem.n_agents), dtype=np.int64)
        for rank, own in enumerate(agents):
            rank_of[list(own)] = rank
        owner = rank_of[problem.owner]
        shared = np.zeros(problem.n_variables, dtype=np.bool_)
        for factor in problem.factors:
            scope = list(factor.scope)
            if scope and (owner[scope] != owner[scope[0]]).any():
                shared[scope] = True
        owner, shared = owner[field.order.variables], shared[field.order.variables]
        colours = field.order.colours
        parts = [np.arange(a, b) for a, b in pairwise(colours)]
        blocks = field.turns[1]
        ranks = range(exchange.size)
        self._boundary = [[part[(owner[part] == rank) & shared[part]] for part in parts] for rank in ranks]
        self._own = [np.flatnonzero(owner == rank) for rank in ranks]
        self._spans = [_spans(part[owner[part] == exchange.rank], blocks) for part in parts]

    def run(self, chains: Sequence[ColumnChain], stop: Stop) -> None:
        """Let chains make all their sweeps, or as many as there is time for."""
        for chain in chains:
            chain.begin()
        through = np.zeros(len(chains), dtype=np.bool_)
        for t in range(0, max(chain.sweeps for chain in chains), self.field.visit):
            gained, over = self._sweep(chains, t, through, stop)
            for c, chain in enumerate(chains):
                chain.utilities[0] += gained[c]
                if chain.utilities[0] > chain.utilities[1]:
                    chain.utilities[1] = chain.utilities[0]
                    chain.kept[:] = chain.z
                elif chain.temperatures[t] <= 0 and gained[c] == 0:
                    through[c] = True
            if over or through.all():
                break

    def gathered(self, chain: ColumnChain) -> Values:
        """Return a chain's best assignment, put together of all ranks' own variables."""
        state = chain.kept.copy()
        parts = self.exchange.all(chain.kept[self._own[self.exchange.rank]].astype(np.int64))
        for own, values in zip(self._own, parts, strict=True):
            state[own] = values
        return chain.numbered(state)

    def _sweep(
        self, chains: Sequence[ColumnChain], t: int, through: NDArray[np.bool_], stop: Stop
    ) -> tuple[NDArray[np.int64], bool]:
        """Let every colour have its turn; return what each chain gained, and whether some rank is out of time."""
        colours, gained, over = len(self._spans), np.zeros(len(chains), dtype=np.int64), False
        for i in range(colours):
            parts = [(chain.start.number + i) % colours for chain in chains]
            mine = [0 if through[c] else self._move(chain, parts[c], t) for c, chain in enumerate(chains)]
            bound = self._boundary[self.exchange.rank]
            told = [chain.z[bound[part]] for chain, part in zip(chains, parts, strict=True)]
            given = self.exchange.all(np.concatenate([[stop.over], mine, *told]).astype(np.int64))
            for rank, numbers in enumerate(given):
                over = over or bool(numbers[0])
                gained += numbers[1 : 1 + len(chains)]
                if rank != self.exchange.rank:
                    self._hear(chains, [self._boundary[rank][part] for part in parts], numbers[1 + len(chains) :])
            if over:
                break
        return gained, over

    def _move(self, chain: ColumnChain, part: int, t: int) -> int:
        """Let this rank's agents of one colour have their turns; return the gain."""
        halt, model, start = np.zeros(1, dtype=np.uint8), chain.model, chain.start
        spans, temperatures = self._spans[part], chain.temperatures[t : t + self.field.visit]
        gained = step(
            model, spans, chain.z, chain.scores, chain.scratch, temperatures, start.key, start.number, 1 + t, halt
        )
        return int(gained)

    def _hear(self, chains: Sequence[ColumnChain], where: Sequence[Places], values: NDArray[np.int64]) -> None:
        """Take over another rank's boundary values."""
        at = 0
        for chain, places in zip(chains, where, strict=True):
            adopt(self.field.model, chain.z, chain.scores, places, values[at : at + places.size])
            at += places.size


def _spans(places: Places, blocks: Places) -> NDArray[np.int64]:
    """Return ascending places as (spans, 2): first place, and one more than the last; blocks are spans of their own."""
    if not places.size:
        return np.zeros((0, 2), dtype=np.int64)
    cuts = np.flatnonzero((np.diff(places) != 1) | np.isin(places[1:], blocks)) + 1
    begins, ends = np.append(0, cuts), np.append(cuts, places.size) - 1
    return np.stack([places[begins], places[ends] + 1], axis=1)
