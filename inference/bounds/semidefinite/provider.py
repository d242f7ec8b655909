"""Bound provider ``semidefinite``: dual ascent on pairs, and a semidefinite relaxation of the rows where that helps."""

from typing import Any

from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite.relaxation import SemidefiniteRelaxation
from dmcmc.inference.bounds.tuning.semidefinite import PLANNED_TIME_SHARE, STEPS_PER_CHECK
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.subproblem import Subproblem


class SemidefiniteState:
    """Bound of an agent's rows by dual ascent on pairs and a semidefinite relaxation; a ``PruningState``.

    Attributes
    ----------
    dual : DualState
        Holds the bounds, which both methods lower.
    relaxation : SemidefiniteRelaxation
        The relaxation of the rows.
    """

    def __init__(self, local: Subproblem, backend: Backend = CPU) -> None:
        self.dual = DualState(local, triangles=False, backend=backend)
        self.relaxation = SemidefiniteRelaxation(self.dual)

    @property
    def backend(self) -> Backend:
        """Resources that the work may use."""
        return self.dual.backend

    @backend.setter
    def backend(self, backend: Backend) -> None:
        self.dual.backend = backend

    @property
    def integral(self) -> bool:
        """Whether all utilities are integers."""
        return self.dual.integral

    @property
    def exhausted(self) -> bool:
        """Whether neither method can tighten the bound any further."""
        return self.dual.exhausted and self.relaxation.exhausted

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound: first by the relaxation, then by the dual ascent."""
        self.dual.improve(self._improve_relaxation(seconds, sweeps, rows, None), sweeps, rows)

    def prune(
        self,
        thresholds: NDArray[Any],
        rows: Rows | None = None,
        seconds: float | None = None,
        sweeps: int | None = None,
    ) -> None:
        """Tighten the bounds of rows; values with which a row cannot reach its threshold do not count."""
        seconds_left = self._improve_relaxation(seconds, sweeps, rows, thresholds)
        self.dual.prune(thresholds, rows, seconds_left, sweeps)

    def tables(self, arithmetic: Arithmetic) -> tuple[EncodedTable, ...]:
        """Return the bound as one table over the interface; as tables over parts of it if it has too many rows."""
        return self.dual.tables(arithmetic)

    def _improve_relaxation(
        self, seconds: float | None, sweeps: int | None, rows: Rows | None, cutoffs: NDArray[Any] | None
    ) -> float | None:
        """Improve the rows' bounds by the relaxation; return the seconds that are left for the dual ascent.

        The result is None without a time budget, and all of ``seconds`` if the relaxation is exhausted. Without a time
        budget the relaxation makes ``STEPS_PER_CHECK`` steps per sweep of the ascent, whose default are 10 sweeps.
        """
        if self.relaxation.exhausted:
            return seconds
        # 10 sweeps: the default of the dual ascent
        steps = None if seconds is not None else STEPS_PER_CHECK * (10 if sweeps is None else sweeps)
        self.relaxation.improve(None if seconds is None else PLANNED_TIME_SHARE * seconds, steps, rows, cutoffs)
        return None if seconds is None else (1 - PLANNED_TIME_SHARE) * seconds
