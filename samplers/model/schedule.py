"""Temperature schedules: constant, cooled between two given values, or cooled over a range derived from the tables."""

from dataclasses import dataclass

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
            start, end = (
                max(automatic[0] * model.spread, START_PER_PENALTY * model.penalty),
                automatic[1] * model.spread,
            )
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
