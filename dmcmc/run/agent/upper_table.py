"""An agent's table from above: a provider's bound, and what is wanted of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds import registry
from dmcmc.inference.bounds.contract.protocol import BoundRequest, BoundState, PruningState
from dmcmc.inference.bounds.dual.rounding import roundings
from dmcmc.inference.bounds.dual.state import DualState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, Table

_MOST = np.iinfo(np.int64).max


@dataclass
class UpperTable:
    """What a table from above comes from: ``state`` is the provider's, None where there is no bound."""

    state: BoundState | None = None

    @property
    def exhausted(self) -> bool:
        """Whether no time would make the bound tighter."""
        return self.state is None or self.state.exhausted

    def start(self, provider: str, local: LocalProblem, backend: Backend) -> None:
        """Make the bound, sound already."""
        self.state = registry.get(provider).start(local, backend)

    def tables(self, arithmetic: Arithmetic) -> tuple[Table, ...]:
        """Return the bound as it is, encoded."""
        assert self.state is not None
        return self.state.tables(arithmetic)

    def roundings(self, seed: int) -> Iterator[NDArray[np.int64]]:
        """Yield assignments that a dual ascent's shares say are good, hidden variables first; none without shares."""
        state = getattr(self.state, "dual", self.state)
        return roundings(state, seed) if isinstance(state, DualState) else iter(())

    def request(self, rows: NDArray[np.int64] | None, limits: NDArray[Any] | None) -> BoundRequest:
        """Return what is wanted of the bound: for the rows that can still matter, beyond their limits."""
        assert self.state is not None
        if limits is None or not isinstance(self.state, PruningState):
            return BoundRequest(self.state, rows)
        # Whole utilities beat a limit from the next whole number on; a limit may be none where others are floats.
        return BoundRequest(self.state, rows, beyond(limits) if self.state.whole else limits)


def beyond(limits: NDArray[Any]) -> NDArray[Any]:
    """Return the least whole numbers above limits; the largest number that there is stays.

    >>> beyond(np.array([3, 2**63 - 1])).tolist(), beyond(np.array([3.4, -0.5, np.inf])).tolist()
    ([4, 9223372036854775807], [4.0, 0.0, inf])
    """
    above: NDArray[Any] = np.floor(limits) + 1 if limits.dtype.kind == "f" else limits + (limits < _MOST)
    return above
