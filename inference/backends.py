"""Where eliminations run: on the CPU, or shared between CPU and GPU."""

from dataclasses import dataclass

from dmcmc.inference.arithmetic import Arithmetic
from dmcmc.inference.device import resolve_device
from dmcmc.inference.elimination import Elimination, eliminate
from dmcmc.inference.flat import FlatTables
from dmcmc.inference.plan import Plan
from dmcmc.inference.semirings import MAX_PLUS, Semiring

_BUCKET = 1 << 18  # joined cells from which a bucket is worth a launch
_STREAM = 1 << 24  # joined cells from which a bucket is worth copying its tables there and back
# Seconds: of a joined cell on one core, of the copies there and back, of a bucket's launches from Python.
_CELL, _TRIP, _LAUNCH = 0.7e-9, 1.2e-3, 8e-5


@dataclass(frozen=True)
class Backend:
    """A device and the threads beside it.

    Attributes
    ----------
    device : str
        ``cpu`` or ``cuda``.
    threads : int
    """

    device: str = "cpu"
    threads: int = 1

    @classmethod
    def of(cls, wish: str, threads: int) -> "Backend":
        """Return the backend for ``auto``, ``cpu`` or ``cuda``; :class:`Unavailable` for ``cuda`` without a GPU."""
        return cls(resolve_device(wish), threads)

    def eliminate(
        self, tables: FlatTables, plan: Plan, arithmetic: Arithmetic, semiring: Semiring = MAX_PLUS
    ) -> Elimination:
        """Carry out a plan where each bucket is cheap; the tables are the same, to the bit, for integers."""
        large = plan.program.cells[plan.program.cells >= _BUCKET]
        if self.device == "cuda" and large.sum(dtype=float) * _CELL > _TRIP + _LAUNCH * large.size:
            from dmcmc.inference.device import shared_device
            from dmcmc.inference.gpu_elimination import eliminate_hybrid
            from dmcmc.inference.hybrid import divide_work
            from dmcmc.inference.streaming import eliminate_streamed

            hybrid, limit = divide_work(plan, _BUCKET), shared_device().limit
            if hybrid.device_entries * arithmetic.dtype.itemsize <= limit:
                return eliminate_hybrid(tables, hybrid, arithmetic, self.threads, semiring)
            return eliminate_streamed(tables, plan, arithmetic, self.threads, limit, _STREAM, semiring)
        return eliminate(tables, plan, arithmetic, self.threads, semiring)
