"""Chains over the whole assignment: all variables in one model, in the order that sweeps take."""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.problem import Problem
from dmcmc.samplers.local_search.anneal_kernels import anneal, begin
from dmcmc.samplers.local_search.order import sweep_order
from dmcmc.samplers.model.chain_model import build_model
from dmcmc.samplers.model.rng import chain_key
from dmcmc.samplers.model.schedule import LOOSE
from dmcmc.samplers.model.state_kernels import new_arrays

_HOT, _COLD = 0.4, 0.1  # of the typical spread of a conditional
_DESCENT = 20  # sweeps


class SearchModel:
    """All variables of a problem as chains see them."""

    def __init__(self, problem: Problem) -> None:
        self.order = sweep_order(problem)
        n = problem.n_variables
        number = np.zeros(n, dtype=np.int64)
        number[self.order.variables] = np.arange(n)
        flat = problem.flat
        flat = flat._replace(scope=number[flat.scope])
        local = LocalProblem(0, (), tuple(range(n)), problem.factors, problem.domains[self.order.variables])
        self.chains = build_model(local, flat)

    def cooling(self, sweeps: int, warm: bool) -> NDArray[np.float32]:
        """Return the temperatures of a run; a warm one begins half-way down."""
        model = self.chains
        hot, cold = max(_HOT * model.spread, LOOSE * model.penalty), _COLD * model.spread
        start = (hot * cold) ** 0.5 if warm else hot
        return np.append(np.geomspace(start, cold, sweeps), np.zeros(_DESCENT)).astype(np.float32)


class Chain:
    """One chain: where it is, and the best state it has seen."""

    def __init__(self, model: SearchModel, start: NDArray[np.int64], seed: int, number: int) -> None:
        self.model, self.number = model, number
        self.z, self.scores, self.scratch = new_arrays(model.chains)
        self.z[:] = start[model.order.variables]
        self.kept = self.z.copy()
        self.worth = np.zeros(2, dtype=np.int64)
        self.key = np.array(chain_key(seed, -1), dtype=np.uint64)

    @property
    def utility(self) -> int:
        """Of the best state, in chain units."""
        return int(self.worth[1])

    def run(self, temperatures: NDArray[np.float32], halt: NDArray[np.int64]) -> None:
        """Make sweeps from the start."""
        model = self.model
        self.worth[:] = begin(model.chains, self.z, self.scores)
        colours = model.order.colours
        anneal(
            model.chains,
            colours,
            self.number % max(1, colours.size - 1),
            self.z,
            self.scores,
            self.scratch,
            self.kept,
            self.worth,
            temperatures,
            1,
            self.key,
            self.number,
            halt,
        )

    def values(self) -> NDArray[np.int64]:
        """Return the best state in the order of the problem's variables."""
        values = np.zeros(self.kept.size, dtype=np.int64)
        values[self.model.order.variables] = self.kept
        return values
