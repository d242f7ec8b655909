"""What a provider of bounds is: it makes a state of a local problem, which gets tighter whenever it is asked to.

A state is a :class:`BoundState`; one that can also tell which values matter is a :class:`PruningState`, and is asked
for that as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, Table

Rows = Sequence[int] | NDArray[np.int64]


class BoundState(Protocol):
    """One agent's bound, at any time sound: its tables' sum W_i(b) ≥ U_i(b) for every row b, and only ever lower.

    Attributes
    ----------
    backend : Backend
        The threads, the device and the time that work may take; another one can be set between two calls. The number of
        threads does not change a result.
    """

    backend: Backend

    @property
    def exhausted(self) -> bool:
        """Whether no time at all would make the bound tighter."""
        ...

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound.

        Parameters
        ----------
        seconds
            About how long to work. The result then depends on the machine.
        sweeps
            In place of seconds: how much work, in the provider's own unit.
        rows
            Those that still matter, numbered in C order over the interface; None for all.
        """
        ...

    def tables(self, arithmetic: Arithmetic) -> tuple[Table, ...]:
        """Return encoded tables over parts of the interface whose sum is W_i."""
        ...


@runtime_checkable
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
    ) -> "Pruned":
        """Remove values with which a row cannot reach its threshold; rows that do not reach it get lower bounds.

        Parameters
        ----------
        thresholds : (rows of the interface,)
            Utilities: what a row has below it does not matter. −inf removes nothing.
        rows, seconds, sweeps
            As in :meth:`improve`.
        """
        ...

    def lower(self, rows: Rows, values: Sequence[int | float]) -> None:
        """Take bounds that are known from elsewhere, one a row."""
        ...


@dataclass(frozen=True)
class Pruned:
    """What is left of some rows without the values that cannot reach a row's threshold.

    Attributes
    ----------
    state : PruningState
        Whose rows they are.
    rows : (k,) int64
        The rows that may still reach theirs.
    thresholds : (k,) float64 or object
        Utilities: every hidden assignment of at least that is still among the live values.
    live : (k, hidden variables, W) bool
        The values that are left, in the order of ``LocalProblem.hidden``; W is the largest padded domain.
    """

    state: PruningState
    rows: NDArray[np.int64]
    thresholds: NDArray[Any]
    live: NDArray[np.bool_]


class BoundRequest(NamedTuple):
    """What is wanted of one agent's bound.

    Attributes
    ----------
    state : BoundState
    rows : sequence of int or None
        Those that still matter; None for all.
    thresholds : (rows of the interface,) or None
        As in :meth:`PruningState.prune`; None, and a state that cannot prune, removes no values.
    """

    state: BoundState
    rows: Rows | None = None
    thresholds: NDArray[Any] | None = None

    def carry_out(self, seconds: float | None = None, sweeps: int | None = None) -> Pruned | None:
        """Tighten the bound; return what is left of its rows, None where no values were removed."""
        if self.thresholds is None or not isinstance(self.state, PruningState):
            self.state.improve(seconds, sweeps, self.rows)
            return None
        return self.state.prune(self.thresholds, self.rows, seconds, sweeps)


@runtime_checkable
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

    def start(self, local: LocalProblem, backend: Backend = CPU) -> BoundState:
        """Return an agent's bound before any work, sound already.

        Parameters
        ----------
        backend
            What its work may take from then on.

        Raises
        ------
        DmcmcError
            If the agent is not for this provider.
        """
        ...
