"""What a provider of bounds is: it makes a state of a local problem, which gets tighter whenever it is asked to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic, Table

Rows = Sequence[int] | NDArray[np.int64]


@dataclass(frozen=True)
class Pruned:
    """What is left of some rows without the values that cannot reach a row's threshold.

    Attributes
    ----------
    rows : (k,) int64
        The rows that may still reach theirs.
    thresholds : (k,) float64 or object
        Utilities: every hidden assignment of at least that is still among the live values.
    live : (k, hidden variables, W) bool
        The values that are left, in the order of ``LocalProblem.hidden``; W is the largest padded domain.
    """

    rows: NDArray[np.int64]
    thresholds: NDArray[Any]
    live: NDArray[np.bool_]


class BoundState(Protocol):
    """One agent's bound, at any time sound: its tables' sum W_i(b) ≥ U_i(b) for every row b, and only ever lower.

    A state may have more attributes. A run sets ``stop``, a :class:`dmcmc.inference.runtime.stop.Stop` that long work
    looks at, and ``backend``, a :class:`dmcmc.inference.execution.backend.Backend` with a GPU to use; ``exhausted``
    says that no time at all would make the bound tighter.
    """

    def improve(
        self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None, threads: int = 1
    ) -> None:
        """Tighten the bound.

        Parameters
        ----------
        seconds
            About how long to work. The result then depends on the machine.
        sweeps
            In place of seconds: how much work, in the provider's own unit.
        rows
            Those that still matter, numbered in C order over the interface; None for all.
        threads
            Over how many threads rows are spread. The result does not depend on it.
        """
        ...

    def tables(self, arithmetic: Arithmetic) -> tuple[Table, ...]:
        """Return encoded tables over parts of the interface whose sum is W_i."""
        ...


class PruningState(BoundState, Protocol):
    """A bound that can also tell which values matter."""

    @property
    def whole(self) -> bool:
        """Whether all utilities are integers."""
        ...

    def prune(
        self,
        thresholds: NDArray[Any],
        rows: Rows | None = None,
        seconds: float | None = None,
        sweeps: int | None = None,
        threads: int = 1,
    ) -> Pruned:
        """Remove values with which a row cannot reach its threshold; rows that do not reach it get lower bounds.

        Parameters
        ----------
        thresholds : (rows of the interface,)
            Utilities: what a row has below it does not matter. −inf removes nothing.
        rows, seconds, sweeps, threads
            As in :meth:`improve`.
        """
        ...

    def lower(self, rows: Rows, values: Sequence[int | float]) -> None:
        """Take bounds that are known from elsewhere, one a row."""
        ...


class BoundProvider(Protocol):
    """A plug-in: a name, a line of help, and a state for each agent."""

    @property
    def name(self) -> str:
        """What configurations call it."""
        ...

    @property
    def summary(self) -> str:
        """One line of help."""
        ...

    def start(self, local: LocalProblem) -> BoundState:
        """Return an agent's bound before any work, sound already.

        Raises
        ------
        DmcmcError
            If the agent is not for this provider.
        """
        ...
