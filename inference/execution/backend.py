"""Where eliminations run: on the CPU, or shared between CPU and GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dmcmc.inference.elimination.cuda.bucket_group_kernels import best_threshold
from dmcmc.inference.elimination.cuda.divide_work import divide_work
from dmcmc.inference.elimination.eliminate import Elimination, eliminate, flat_tables
from dmcmc.inference.elimination.merge_plans import Merged, merged_once
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.execution import cost_model
from dmcmc.inference.execution.small_batch import eliminate_side_by_side
from dmcmc.inference.minibuckets.moment_matching import Matched, eliminate_matched
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.model.cuda.device_table import stays_from
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.device import gpu_problem, is_out_of_memory, opened, resolve_device, shared_device

_BUCKETS = np.array([1 << 18, 1 << 15, 1 << 12, 0])  # joined cells from which a bucket may be worth the GPU

_LITTLE = 1 << 19  # joined cells, and entries of tables, of plans that take less together than to begin each of them


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
        When eliminations, sampling and bounds are to end.
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
            If :attr:`stop` says so.
        """
        threshold = self._gpu_threshold(plan)
        if threshold is None:
            return eliminate(tables, plan, arithmetic, self.threads, semiring, self.stop)
        from dmcmc.inference.elimination.cuda.eliminate import eliminate_hybrid
        from dmcmc.inference.elimination.cuda.streaming import Streaming, eliminate_streamed

        hybrid, limit = divide_work(plan, threshold, stays_from()), self.limit()
        try:
            if hybrid.device_entries * arithmetic.dtype.itemsize <= limit:
                return eliminate_hybrid(tables, hybrid, arithmetic, self.threads, semiring, stop=self.stop)
            flat = flat_tables(tables, arithmetic)
            return eliminate_streamed(flat, plan, arithmetic, self.threads, Streaming(limit), semiring, stop=self.stop)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        shared_device().release()
        flat = flat_tables(tables, arithmetic)
        try:  # with what is left of the device
            limit = min(limit, shared_device().unused() // (2 * self.sharers))
            return eliminate_streamed(flat, plan, arithmetic, self.threads, Streaming(limit), semiring, stop=self.stop)
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

        As :func:`dmcmc.inference.minibuckets.moment_matching.eliminate_matched`. What does not fit the device is left to the
        CPU.
        """
        threshold = self._gpu_threshold(plan)
        if threshold is not None:
            from dmcmc.inference.minibuckets.cuda.moment_matching import eliminate_matched_hybrid

            flat = flat_tables(tables, arithmetic)
            hybrid, limit = divide_work(plan, threshold), self.limit()
            cells = hybrid.plan.program.cells[hybrid.first : hybrid.last]  # between large buckets there are small ones
            worth = (
                2 * float(cells.sum(dtype=float)) * cost_model.COSTS.cell
                > cost_model.COSTS.trip + cost_model.COSTS.matched * cells.size
            )
            try:
                if worth and hybrid.device_entries * arithmetic.dtype.itemsize <= limit:
                    return eliminate_matched_hybrid(flat, plan, hybrid, arithmetic, room, stop=self.stop)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                shared_device().release()
        return eliminate_matched(tables, plan, arithmetic, self.threads, room, self.stop)

    def eliminate_all(
        self, flat: FlatTables, plans: Sequence[Plan], arithmetic: Arithmetic, semiring: Semiring = MAX_PLUS
    ) -> Iterator[list[Elimination]]:
        """Carry out plans in their order; yields those that were done at once.

        A GPU takes as many as it holds, the CPU all if they are small.

        Parameters
        ----------
        flat
            Encoded tables: those of the first plan, then those of the second, ...
        """
        given = [plan.tables - plan.buckets for plan in plans]
        little = sum(plan.cells + plan.entries for plan in plans) < _LITTLE
        merged = merged_once(plans) if len(plans) > 1 and (little or self.device != "cpu") else None
        if merged is not None:
            threshold = self._gpu_threshold(merged.plan)
            if threshold is not None:
                found = self._eliminate_batch(flat, plans, merged, threshold, arithmetic, semiring)
                if found is not None:
                    yield found
                    return
                half = len(plans) // 2
                middle = sum(given[:half])
                yield from self.eliminate_all(flat.part(0, middle), plans[:half], arithmetic, semiring)
                yield from self.eliminate_all(flat.part(middle, flat.tables), plans[half:], arithmetic, semiring)
                return
            if little:
                yield eliminate_side_by_side(flat, plans, merged, arithmetic, semiring, self.stop)
                return
        start = 0
        for plan, tables in zip(plans, given, strict=True):
            yield [self.eliminate(flat.part(start, start + tables), plan, arithmetic, semiring)]
            start += tables

    def _eliminate_batch(
        self,
        flat: FlatTables,
        plans: Sequence[Plan],
        merged: Merged,
        threshold: int,
        arithmetic: Arithmetic,
        semiring: Semiring,
    ) -> list[Elimination] | None:
        """Carry out plans at once; None where they take more than half of the device's memory, or that is used up."""
        from dmcmc.inference.elimination.cuda.batch import eliminate_batch

        hybrid = divide_work(merged.plan, threshold, stays_from())
        if hybrid.device_entries * arithmetic.dtype.itemsize > self.limit() // 2:
            return None
        try:
            return eliminate_batch(flat, plans, merged, hybrid, arithmetic, self.threads, semiring, self.stop)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        shared_device().release()
        return None

    def samples_on_gpu(self, updates: int) -> bool:
        """Return whether so many draws would take the CPU longer than the way to the GPU and back."""
        if self.device == "cpu":
            return False
        seconds = updates * cost_model.COSTS.update / self.threads
        if self.device == "auto" and not opened():
            return seconds > cost_model.COSTS.opening and gpu_problem() is None
        return seconds > cost_model.COSTS.trip

    def bounds_on_gpu(self, seconds: float) -> bool:
        """Return whether bounds that take one core so many seconds are worth the way to the GPU and back."""
        if self.device == "cpu":
            return False
        if self.device == "auto" and not opened():
            return seconds > 2 * cost_model.COSTS.opening * self.threads and gpu_problem() is None
        return seconds > 10 * cost_model.COSTS.trip

    def worth(self, seconds: float) -> bool:
        """Return whether what takes one core so many seconds is worth the GPU."""
        return self.device != "cpu" and self._worth_a_gpu(seconds)

    def takes_at_once(self, plans: Sequence[Plan]) -> bool:
        """Return whether :meth:`eliminate_all` would carry out plans together, on the GPU."""
        merged = None if len(plans) < 2 or self.device == "cpu" else merged_once(plans)
        return merged is not None and self._gpu_threshold(merged.plan) is not None

    def limit(self) -> int:
        """Return the bytes of device memory that this process may use."""
        return shared_device().limit // self.sharers

    def _gpu_threshold(self, plan: Plan) -> int | None:
        """Return the joined cells from which buckets should go to the GPU; None if the CPU is done sooner alone."""
        program = plan.program
        alone = float(plan.cells) * cost_model.COSTS.cell
        if not self._worth_a_gpu(alone):
            return None
        threshold, shared = best_threshold(
            program.variable, program.input_start, program.inputs, program.cells, plan.tables - plan.buckets,
            _BUCKETS, cost_model.COSTS.cell, cost_model.COSTS.wave,
        )  # fmt: skip
        return int(threshold) if self._worth_a_gpu(alone - shared) else None

    def _worth_a_gpu(self, seconds: float) -> bool:
        """Return whether so many seconds of one core are worth the way to the GPU and back."""
        if self.device == "cpu" or seconds <= cost_model.COSTS.trip:
            return False
        if self.device == "auto" and not opened():
            return seconds > cost_model.COSTS.opening * self.threads and gpu_problem() is None
        return True


CPU = Backend()
