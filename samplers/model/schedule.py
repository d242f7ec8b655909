"""Temperatures over a run, and its rounds.

Temperature schedules: constant, cooled between two given values, or cooled over a range derived from the tables.

Divide a sampler's run into rounds, and define where the chains of a round start.

A row is an assignment of the agent's boundary variables; the chains that sample its hidden variables are called runs.
All rows of an agent finish a round before the next one begins. So the chains of a row may start from the best states of
neighbouring rows, which differ in the value of one boundary variable: their best states are similar.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.model.chain_model import ChainModel

# First and last temperature, in units of the model's ``spread``; tuned on meeting and uniform problems.
AUTOMATIC = (0.4, 0.15)
# In chain units. Differences of utilities are between about 1 and 2^30.
COLDEST = 2.0**-60
HOTTEST = 2.0**60
START_PER_PENALTY = 0.4  # start temperature per unit of penalty: chains still pass through forbidden states


@dataclass(frozen=True)
class Temperature:
    """A temperature schedule.

    Attributes
    ----------
    start, end : float or None
        First and last temperature, in units of utility; None derives both from the tables.
    shape : {"geometric", "linear"}
        Interpolation between them. With a from 0 to 1 over the trials, linear is start + (end − start) · a, geometric
        is start · (end / start)^a. Where one of them is 0, :data:`COLDEST` stands for it between the ends.
    """

    start: float | None = None
    end: float | None = None
    shape: str = "geometric"

    @classmethod
    def constant(cls, value: float) -> "Temperature":
        """Return a schedule with the same temperature, in units of utility, for all trials; the DMCMC paper uses 1."""
        return cls(value, value)

    def resolve(self, model: ChainModel, automatic: tuple[float, float] = AUTOMATIC) -> tuple[float, float]:
        """Return the first and the last temperature in chain units.

        If an entry is forbidden, the automatic start is hot enough to violate it. Both temperatures are limited to the
        range from :data:`COLDEST` to :data:`HOTTEST`, so that they and their ratio fit single precision; a chain
        behaves no differently beyond these limits. A temperature of 0 stays 0: a chain then takes the best value, and
        the present one at ties.

        Parameters
        ----------
        model : ChainModel
            The agent's columns.
        automatic : (float, float)
            First and last temperature in units of ``model.spread``, used if none are given.
        """
        if self.start is None or self.end is None:
            start = max(automatic[0] * model.spread, START_PER_PENALTY * model.penalty)
            end = automatic[1] * model.spread
        else:
            start, end = self.start * model.scale, self.end * model.scale
        return 0.0 if self.start == 0 else _limited(start), 0.0 if self.end == 0 else _limited(end)

    def of_trials(
        self, model: ChainModel, trials: int, automatic: tuple[float, float] = AUTOMATIC, skip: float = 0.0
    ) -> NDArray[np.float32]:
        """Return the temperature of each trial in chain units, shape (trials,) float32.

        Parameters
        ----------
        model : ChainModel
            The agent's columns.
        trials : int
            Number of trials.
        automatic : (float, float)
            First and last temperature in units of ``model.spread``, used if none are given.
        skip : float
            Fraction of the way from start to end to leave out at the beginning, 0 to 1.
        """
        start, end = self.resolve(model, automatic)
        if start == end:
            return np.full(trials, start, dtype=np.float32)
        at = np.linspace(skip, 1.0, trials) if trials > 1 else np.ones(trials)
        first, last = max(start, COLDEST), max(end, COLDEST)
        values = first + (last - first) * at if self.shape == "linear" else first * (last / first) ** at
        values = np.maximum(values, COLDEST)  # rounding may give 0 or less where start and end differ widely
        values[at == 0], values[at == 1] = start, end
        return values.astype(np.float32)


def _limited(temperature: float) -> float:
    """Return the nearest temperature from :data:`COLDEST` to :data:`HOTTEST`."""
    return min(max(temperature, COLDEST), HOTTEST)


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
