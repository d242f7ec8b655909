"""Provider ``semidefinite``: dual ascent on pairs, and a lift of its rows where that is of use."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import Pruned, Rows
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite.relaxation import Lift
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, Table

_STEPS = 10  # of the lift for a sweep
_LIFT = 0.8  # of the time


class LiftedState:
    """A bound by dual ascent on pairs and a semidefinite lift; a :class:`.PruningState`.

    Attributes
    ----------
    dual : DualState
        Has the bounds of both.
    lift : Lift
    """

    def __init__(self, local: LocalProblem, backend: Backend = CPU) -> None:
        self.dual = DualState(local, triangles=False, backend=backend)
        self.lift = Lift(self.dual)

    @property
    def backend(self) -> Backend:
        """What work may take."""
        return self.dual.backend

    @backend.setter
    def backend(self, backend: Backend) -> None:
        self.dual.backend = backend

    @property
    def whole(self) -> bool:
        """Whether all utilities are integers."""
        return self.dual.whole

    @property
    def exhausted(self) -> bool:
        """Whether no time would make the bound tighter."""
        return self.dual.exhausted and self.lift.exhausted

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound: the lift first, then the ascent."""
        self.dual.improve(self._lift(seconds, sweeps, rows, None), sweeps, rows)

    def prune(
        self,
        thresholds: NDArray[Any],
        rows: Rows | None = None,
        seconds: float | None = None,
        sweeps: int | None = None,
    ) -> Pruned:
        """Tighten the bound, and remove values with which a row cannot reach its threshold."""
        left = self._lift(seconds, sweeps, rows, thresholds)
        return replace(self.dual.prune(thresholds, rows, left, sweeps), state=self)

    def lower(self, rows: Rows, values: Sequence[int | float]) -> None:
        """Take bounds that are known from elsewhere, one a row."""
        self.dual.lower(rows, values)

    def tables(self, arithmetic: Arithmetic) -> tuple[Table, ...]:
        """Return one table over the interface; small ones over its parts where it has too many rows."""
        return self.dual.tables(arithmetic)

    def _lift(
        self, seconds: float | None, sweeps: int | None, rows: Rows | None, limits: NDArray[Any] | None
    ) -> float | None:
        """Lift rows; return the seconds that are left for the ascent."""
        if self.lift.exhausted:
            return seconds
        steps = None if seconds is not None else _STEPS * (10 if sweeps is None else sweeps)
        self.lift.improve(None if seconds is None else _LIFT * seconds, steps, rows, limits)
        return None if seconds is None else (1 - _LIFT) * seconds


class Semidefinite:
    """Adds the square of a linear function of the assignment, whatever it is, that makes the sum of maxima small."""

    name = "semidefinite"
    summary = "the semidefinite relaxation, by descent: for many variables that nearly all share factors"

    def start(self, local: LocalProblem, backend: Backend = CPU) -> LiftedState:
        """Return an agent's bound after one sweep with the interface free."""
        return LiftedState(local, backend)


PROVIDER = Semidefinite()
