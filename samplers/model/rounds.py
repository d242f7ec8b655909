"""Divide a sampler's run into rounds, and define where the chains of a round start.

All rows of an agent finish a round before the next begins. So a warm round may start a row's chains from the best
states of its neighbours, the rows that differ in the value of one interface variable: their best states are similar.
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
        One temperature per trial, in chain units. 0 takes the best value.
    warm : bool
        False: chains start from the sampler's ``init`` (only the first round may). True: run 0 of a row starts from the
        row's best state so far, each other run from the best state of a neighbouring row.
    repair : bool
        Whether only rows whose best state violates a hard constraint take part.
    descent : int
        Maximum number of greedy sweeps that improve each chain's best state at the end of the round.
    ladder : float
        With exchange: ratio between the temperatures of the last run and of run 0, which has ``temperatures``; the runs
        between are spaced geometrically.
    """

    temperatures: NDArray[np.float32]
    warm: bool = False
    repair: bool = False
    descent: int = 0
    ladder: float = 1.0

    def rungs(self, runs: int) -> NDArray[np.float32]:
        """Return the factor of ``temperatures`` for each run, ascending from 1.

        Parameters
        ----------
        runs : int
            Number of runs per row.

        Returns
        -------
        (runs,) float32
            The factors.
        """
        return (self.ladder ** np.linspace(0.0, 1.0, runs)).astype(np.float32)


Rounds = Callable[[ChainModel, int, Temperature], list[Round]]


def one_round(model: ChainModel, samples: int, temperature: Temperature) -> list[Round]:
    """Return the run of the paper's samplers: all trials from one start.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    samples : int
        Number of trials.
    temperature : Temperature
        The temperatures.
    """
    return [Round(temperature.of_trials(model, samples))]
