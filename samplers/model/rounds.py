"""A sampler's run as a list of rounds, and where the chains of a round start.

All rows of an agent finish a round before the next begins. So a warm round may start a row's chains from the best
states of its neighbours, which differ in the value of one interface variable: nearby rows have much in common.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.schedule import Temperature


class Round(NamedTuple):
    """Trials that all rows make before any goes on.

    Attributes
    ----------
    temperatures : (trials,) float32
        In chain units. 0 takes the best value.
    warm : bool
        False: chains start anywhere (the first round must, no other may). True: run 0 of a row starts from the row's
        best state so far, each other run from that of a neighbouring row.
    repair : bool
        Only rows whose best state violates something take part.
    descent : int
        Afterwards the best state of each chain is improved greedily, by at most so many sweeps.
    ladder : float
        With exchange: how much hotter than ``temperatures`` the last run is; those between divide this geometrically.
    """

    temperatures: NDArray[np.float32]
    warm: bool = False
    repair: bool = False
    descent: int = 0
    ladder: float = 1.0

    def rungs(self, runs: int) -> NDArray[np.float32]:
        """Return what each run's rung multiplies ``temperatures`` by, shape (runs,), ascending from 1."""
        return (self.ladder ** np.linspace(0.0, 1.0, runs)).astype(np.float32)


Rounds = Callable[[ChainModel, int, Temperature], list[Round]]


def one_round(model: ChainModel, samples: int, temperature: Temperature) -> list[Round]:
    """Return the run of the paper's samplers: all trials from one random start."""
    return [Round(temperature.of_trials(model, samples))]
