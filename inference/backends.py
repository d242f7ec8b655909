"""Where eliminations run: on the CPU, or shared between CPU and GPU."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dmcmc.inference.arithmetic import Arithmetic, Table
from dmcmc.inference.device import gpu_problem, is_out_of_memory, opened, resolve_device, shared_device
from dmcmc.inference.elimination import Elimination, eliminate, flat_tables
from dmcmc.inference.flat import FlatTables
from dmcmc.inference.moment_matching import Matched, eliminate_matched
from dmcmc.inference.plan import Plan
from dmcmc.inference.semirings import MAX_PLUS, Semiring
from dmcmc.inference.stop import NO_STOP, Stop

_BUCKET = 1 << 18  # joined cells from which a bucket is worth a launch
_STREAM = 1 << 24  # joined cells from which a bucket is worth copying its tables there and back
# Seconds: of a joined cell and of a draw on one core, of the copies there and back, of a bucket's launches, of opening
# a GPU and loading the kernels.
_CELL, _UPDATE, _TRIP, _LAUNCH, _OPEN = 0.7e-9, 5e-8, 1.2e-3, 8e-5, 2.0


@dataclass(frozen=True)
class Backend:
    """What eliminations may use.

    Attributes
    ----------
    device : {"auto", "cpu", "cuda"}
        ``auto`` opens a GPU, if there is one, at the first elimination that is worth it.
    threads : int
    sharers : int
        Processes that use the same GPU: each takes its part of the memory.
    stop : Stop
        When eliminations on the CPU, sampling and bounds are to end.
    """

    device: str = "cpu"
    threads: int = 1
    sharers: int = 1
    stop: Stop = field(default=NO_STOP, compare=False)

    @classmethod
    def of(cls, wish: str, threads: int, sharers: int = 1) -> "Backend":
        """Return the backend for ``auto``, ``cpu`` or ``cuda``; :class:`Unavailable` for ``cuda`` without a GPU."""
        if wish == "cuda":
            resolve_device(wish)
        return cls(wish, threads, sharers)

    def eliminate(
        self,
        tables: Sequence[Table] | FlatTables,
        plan: Plan,
        arithmetic: Arithmetic,
        semiring: Semiring = MAX_PLUS,
    ) -> Elimination:
        """Carry out a plan where each bucket is cheap; the tables are the same, to the bit, for integers.

        What does not fit the device is streamed through it in chunks; a device that runs out of memory all the same
        (others use it too) leaves the work to the CPU.

        Raises
        ------
        OutOfTime
            If :attr:`stop` says so, on the CPU.
        """
        if not self._worth_a_gpu(plan):
            return eliminate(tables, plan, arithmetic, self.threads, semiring, self.stop)
        from dmcmc.inference.gpu_elimination import eliminate_hybrid
        from dmcmc.inference.hybrid import divide_work
        from dmcmc.inference.streaming import eliminate_streamed

        flat = flat_tables(tables, arithmetic)
        hybrid, limit = divide_work(plan, _BUCKET), shared_device().limit // self.sharers
        try:
            if hybrid.device_entries * arithmetic.dtype.itemsize <= limit:
                return eliminate_hybrid(flat, hybrid, arithmetic, self.threads, semiring)
            return eliminate_streamed(flat, plan, arithmetic, self.threads, limit, _STREAM, semiring)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        shared_device().release()
        try:  # with what is left of the device
            limit = min(limit, shared_device().unused() // (2 * self.sharers))
            return eliminate_streamed(flat, plan, arithmetic, self.threads, limit, _STREAM, semiring)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        return eliminate(flat, plan, arithmetic, self.threads, semiring, self.stop)

    def eliminate_matched(
        self,
        tables: Sequence[Table] | FlatTables,
        plan: Plan,
        arithmetic: Arithmetic,
        room: int | float | None = None,
    ) -> Matched:
        """Carry out a mini-bucket plan with moment matching; integers are the same, to the bit, wherever it runs.

        As :func:`dmcmc.inference.moment_matching.eliminate_matched`. What does not fit the device is left to the CPU.
        """
        if self._worth_a_gpu(plan):
            from dmcmc.inference.hybrid import divide_work
            from dmcmc.inference.matched_cuda import eliminate_matched_hybrid

            flat = flat_tables(tables, arithmetic)
            hybrid, limit = divide_work(plan, _BUCKET), shared_device().limit // self.sharers
            cells = hybrid.plan.program.cells[hybrid.first : hybrid.last]  # between large buckets there are small ones
            worth = 2 * float(cells.sum(dtype=float)) * _CELL > _TRIP + _LAUNCH * cells.size
            try:
                if worth and hybrid.device_entries * arithmetic.dtype.itemsize <= limit:
                    return eliminate_matched_hybrid(flat, plan, hybrid, arithmetic, room)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                shared_device().release()
        return eliminate_matched(tables, plan, arithmetic, self.threads, room, self.stop)

    def samples_on_gpu(self, updates: int) -> bool:
        """Return whether so many draws would take the CPU longer than the way to the GPU and back."""
        if self.device == "cpu":
            return False
        seconds = updates * _UPDATE / self.threads
        if self.device == "auto" and not opened():
            return seconds > _OPEN and gpu_problem() is None
        return seconds > _TRIP

    def bounds_on_gpu(self, seconds: float) -> bool:
        """Return whether bounds that take one core so many seconds are worth the way to the GPU and back."""
        if self.device == "cpu":
            return False
        if self.device == "auto" and not opened():
            return seconds > 2 * _OPEN * self.threads and gpu_problem() is None
        return seconds > 10 * _TRIP

    def _worth_a_gpu(self, plan: Plan) -> bool:
        """Return whether the large buckets would take the CPU longer than the way to the GPU and back."""
        if self.device == "cpu":
            return False
        large = plan.program.cells[plan.program.cells >= _BUCKET]
        seconds = float(large.sum(dtype=float)) * _CELL
        if seconds <= _TRIP + _LAUNCH * large.size:
            return False
        if self.device == "auto" and not opened():
            return seconds > _OPEN * self.threads and gpu_problem() is None
        return True


CPU = Backend()
