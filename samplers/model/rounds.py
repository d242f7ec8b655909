"""Divide a sampler's run into rounds, and define where the chains of a round start.

A row is an assignment of the agent's boundary variables; the chains that sample its hidden variables are called runs.
All rows of an agent finish a round before the next one begins. So the chains of a row may start from the best states of
neighbouring rows, which differ in the value of one boundary variable: their best states are similar.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.schedule import Temperature


class Round(NamedTuple):
    """Trials that all rows complete before any row continues.

    Attributes
    ----------
    temperatures : (trials,) float32
        One temperature per trial, in chain units. At temperature 0 the best value is taken.
    warm : bool
        Whether chains have a warm start. False (only in the first round): they start from the sampler's ``init``. True:
        run 0 of a row starts from the row's best state so far, each other run from the best state of a neighbouring
        row.
    repair : bool
        Whether only rows whose best state violates a hard constraint take part.
    descent : int
        Maximum number of greedy sweeps that improve each chain's best state at the end of the round.
    ladder : float
        For samplers whose runs exchange states (parallel tempering): ratio between the temperatures of the last run and
        of run 0, which has ``temperatures``; the runs between are spaced geometrically.
    """

    temperatures: NDArray[np.float32]
    warm: bool = False
    repair: bool = False
    descent: int = 0
    ladder: float = 1.0

    def ladder_factors(self, runs: int) -> NDArray[np.float32]:
        """Return the factor of ``temperatures`` for each run: a geometric sequence from 1 to ``ladder``.

        Parameters
        ----------
        runs : int
            Number of runs per row.

        Returns
        -------
        (runs,) float32
            The factors.
        """
        if self.ladder == 1.0:
            return np.ones(runs, dtype=np.float32)
        return (self.ladder ** np.linspace(0.0, 1.0, runs)).astype(np.float32)


Rounds = Callable[[ChainModel, int, Temperature], list[Round]]


def one_round(model: ChainModel, samples: int, temperature: Temperature) -> list[Round]:
    """Return a single round without a warm start, as in the paper's samplers.

    Parameters
    ----------
    model : ChainModel
        The agent's problem as the chains read it.
    samples : int
        Number of trials.
    temperature : Temperature
        The temperature schedule.
    """
    return [Round(temperature.of_trials(model, samples))]
