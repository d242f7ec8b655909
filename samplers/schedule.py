"""Temperatures: constant, cooled between two given values, or cooled over a range taken from the tables."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.model import ChainModel

_HOT = 0.45  # of the typical spread of a conditional; the two were tuned on meeting and uniform problems
_COLD = 0.13


@dataclass(frozen=True)
class Temperature:
    """A temperature for every trial.

    Attributes
    ----------
    start, end : float or None
        First and last temperature, in units of utility; None takes them from the tables.
    shape : {"geometric", "linear"}
    """

    start: float | None = None
    end: float | None = None
    shape: str = "geometric"

    @classmethod
    def constant(cls, value: float) -> "Temperature":
        """Return the same temperature for all trials; 1 is the DMCMC paper's."""
        return cls(value, value)

    def of_trials(self, model: ChainModel, trials: int) -> NDArray[np.float32]:
        """Return the temperature of each trial, shape (trials,)."""
        start, end = self.start, self.end
        if start is None or end is None:
            start, end = _HOT * model.spread, _COLD * model.spread
        at = np.linspace(0.0, 1.0, trials) if trials > 1 else np.ones(trials)
        values = start + (end - start) * at if self.shape == "linear" else start * (end / start) ** at
        return values.astype(np.float32)
