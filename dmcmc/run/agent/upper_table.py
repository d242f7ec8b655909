"""An agent's table from above: a provider's bound, and what is wanted of it."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds import registry
from dmcmc.inference.bounds.contract.protocol import BoundRequest, BoundState, PruningState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.types import Number


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

    def request(self, rows: NDArray[np.int64] | None, limits: NDArray[np.object_] | None) -> BoundRequest:
        """Return what is wanted of the bound: for the rows that can still matter, beyond their limits."""
        assert self.state is not None
        if limits is None or not isinstance(self.state, PruningState):
            return BoundRequest(self.state, rows)
        # Whole utilities beat a limit from the next whole number on; a limit may be none where others are floats.
        need = [beyond(limit) if self.state.whole else limit for limit in limits.tolist()]
        return BoundRequest(self.state, rows, np.array(need, dtype=object))


def beyond(limit: Number) -> Number:
    """Return the least whole number above a limit.

    >>> beyond(3), beyond(3.4), beyond(-0.5)
    (4, 4, 0)
    """
    return limit if math.isinf(limit) else math.floor(limit) + 1
