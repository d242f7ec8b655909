"""Temperatures: constant, cooled between two given values, or cooled over a range taken from the tables."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.model.chain_model import ChainModel

# Of the typical spread of a conditional; tuned on meeting and uniform problems.
AUTOMATIC = (0.4, 0.15)
# In chain units, of which the smallest difference is about one and the largest 2^30.
COLDEST, HOTTEST = 2.0**-60, 2.0**60
LOOSE = 0.4  # of the penalty of a violation: chains that are this hot still pass through forbidden states


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

    def resolve(self, model: ChainModel, automatic: tuple[float, float] = AUTOMATIC) -> tuple[float, float]:
        """Return first and last temperature in chain units; ``automatic`` is in spreads.

        Where something is forbidden the automatic start is hot enough to break it. Both are what single precision
        carries, and so is their ratio: beyond :data:`COLDEST` and :data:`HOTTEST` a chain does nothing else.
        """
        if self.start is None or self.end is None:
            start, end = max(automatic[0] * model.spread, LOOSE * model.penalty), automatic[1] * model.spread
        else:
            start, end = self.start * model.scale, self.end * model.scale
        if self.start == 0 or self.end == 0:  # asked for: the best value, ties stay
            return start, end
        return min(max(start, COLDEST), HOTTEST), min(max(end, COLDEST), HOTTEST)

    def of_trials(
        self, model: ChainModel, trials: int, automatic: tuple[float, float] = AUTOMATIC, skip: float = 0.0
    ) -> NDArray[np.float32]:
        """Return the temperature of each trial in chain units, shape (trials,).

        ``skip`` leaves the first part of the way from start to end out (0 to 1).
        """
        start, end = self.resolve(model, automatic)
        at = np.linspace(skip, 1.0, trials) if trials > 1 else np.ones(trials)
        values = start + (end - start) * at if self.shape == "linear" else start * (end / start) ** at
        if min(start, end) > 0:  # what a difference of far numbers has lost
            values = np.maximum(values, COLDEST)
        return values.astype(np.float32)
