"""Protocols that a bound provider implements: the provider, and the bound of one agent.

A provider creates a ``BoundState`` for each agent's local problem. The state holds upper bounds of the agent's rows,
which later calls tighten. A row is one assignment of the agent's boundary variables (its interface). A state that can
also leave out values of hidden variables implements ``PruningState``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable

if TYPE_CHECKING:
    from dmcmc.inference.dpop.division import LocalProblem

Rows = Sequence[int] | NDArray[np.int64]


class BoundState(Protocol):
    """Upper bounds of one agent's rows: the sum of its tables is W_i(b) >= U_i(b) for every row b, at any time.

    U_i(b) is the largest utility that the agent's hidden variables can add to row b. The bounds never rise.

    Attributes
    ----------
    backend : Backend
        Threads, device and deadline of the work; may be replaced between two calls. The number of threads must not
        change a result.
    """

    backend: Backend

    @property
    def exhausted(self) -> bool:
        """Whether no further work can tighten the bound."""
        ...

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound.

        If neither ``seconds`` nor ``sweeps`` is given, the provider chooses the amount of work.

        Parameters
        ----------
        seconds : float, optional
            Approximate time to work, in seconds. The result then depends on the machine.
        sweeps : int, optional
            Amount of work in the provider's own unit, instead of ``seconds``. The result is then reproducible.
        rows : sequence of int or (k,) int64, optional
            The rows whose bounds still matter, numbered in C order over the interface; all rows if None.
        """
        ...

    def tables(self, arithmetic: Arithmetic) -> tuple[EncodedTable, ...]:
        """Return tables over parts of the interface whose sum is W_i.

        Parameters
        ----------
        arithmetic : Arithmetic
            The number type and encoding of the tables' entries. Rounding must not take W_i below U_i.

        Returns
        -------
        tuple of EncodedTable
            Each table's scope is a subset of the interface.
        """
        ...


@runtime_checkable
class PruningState(BoundState, Protocol):
    """A bound that can also leave out values of hidden variables that no row needs."""

    @property
    def integral(self) -> bool:
        """Whether all utilities are integers."""
        ...

    def prune(
        self,
        thresholds: NDArray[Any],
        rows: Rows | None = None,
        seconds: float | None = None,
        sweeps: int | None = None,
    ) -> None:
        """Tighten the bound of rows; values with which a row cannot reach its threshold do not count.

        The bound of a row that turns out not to reach its threshold is lowered to just below it.

        Parameters
        ----------
        thresholds : (rows of the interface,) int64, float64 or object
            A utility for each row: assignments of the row with less do not matter. -inf removes no value.
        rows : sequence of int or (k,) int64, optional
            The rows that still matter, numbered in C order over the interface; all rows if None.
        seconds : float, optional
            Approximate time to work, in seconds.
        sweeps : int, optional
            Amount of work in the provider's own unit, instead of ``seconds``.
        """
        ...


class BoundRequest(NamedTuple):
    """A request to tighten the bound of one agent.

    Attributes
    ----------
    state : BoundState
        The bound.
    rows : sequence of int or (k,) int64 or None
        The rows that still matter; None for all.
    thresholds : (rows of the interface,) array or None
        As in ``PruningState.prune``. No values are removed if it is None or the state cannot prune.
    """

    state: BoundState
    rows: Rows | None = None
    thresholds: NDArray[Any] | None = None

    def carry_out(self, seconds: float | None = None, sweeps: int | None = None) -> None:
        """Tighten the bound.

        Parameters
        ----------
        seconds, sweeps
            As in ``BoundState.improve``.
        """
        if self.thresholds is None or not isinstance(self.state, PruningState):
            self.state.improve(seconds, sweeps, self.rows)
        else:
            self.state.prune(self.thresholds, self.rows, seconds, sweeps)


@runtime_checkable
class BoundProvider(Protocol):
    """Plug-in that creates the bound of each agent.

    Register an object with these members under the entry-point group ``dmcmc.bounds``.
    """

    @property
    def name(self) -> str:
        """Name of the provider in configurations."""
        ...

    @property
    def summary(self) -> str:
        """One line of help."""
        ...

    def start(self, local: "LocalProblem", backend: Backend = CPU) -> BoundState:
        """Return the initial bound of an agent, which is valid already.

        Parameters
        ----------
        local : LocalProblem
            The agent's factors, hidden variables and interface.
        backend : Backend
            Threads, device and deadline of the work.

        Returns
        -------
        BoundState
            May implement ``PruningState`` as well.

        Raises
        ------
        DmcmcError
            If the provider cannot bound this agent.
        """
        ...
