"""The assignments that branch and bound over the union of all agents reaches, until they become incumbents."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.contract.protocol import SampledTable


class Leaves:
    """Takes the assignments that a search reaches, in place of an agent's chains; a ``Resumable`` without sampling.

    Attributes
    ----------
    utility : int, float or None
        Encoded utility of the incumbent: the lower table.
    """

    exhausted = True

    def __init__(self, arithmetic: Arithmetic) -> None:
        self._arithmetic = arithmetic
        self.utility: Number | None = None
        self._found: list[NDArray[np.int64]] = []

    @property
    def states(self) -> NDArray[Any]:
        """No states are kept."""
        return np.zeros((1, 0), dtype=np.int64)

    def lower(self) -> tuple[EncodedTable, ...]:
        """Return the lower table."""
        lowest = self._arithmetic.lowest
        return (EncodedTable((), np.array(lowest if self.utility is None else self.utility, self._arithmetic.dtype)),)

    def table(self) -> SampledTable:
        """Return a table without a bound."""
        return SampledTable(self.lower(), None, lambda values: {}, "union", 0.0)

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Do nothing: the local search samples the whole problem."""

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Keep assignments for :meth:`pop_all`; return False, since the table stays as it is."""
        self._found += list(np.asarray(states, dtype=np.int64))
        return False

    def pop_all(self) -> list[NDArray[np.int64]]:
        """Return and remove the assignments."""
        found, self._found = self._found, []
        return found
