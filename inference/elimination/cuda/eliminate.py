"""Run a plan on CPU and GPU together: small buckets on the CPU, large ones on the GPU, one copy in each direction.

``divide_work`` orders the buckets into three groups: A runs on the CPU and needs no result of the GPU, G runs on the
GPU, and C runs on the CPU afterwards. It also gives all tables one address space, in entries; the host holds its first
part, the device its last part, and the overlap is copied.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.arena_kernels import choose_values_in_rows
from dmcmc.inference.elimination.cuda.divide_work import HybridPlan
from dmcmc.inference.elimination.cuda.join_kernels import choose_kernel
from dmcmc.inference.elimination.cuda.waves import LaunchQueue, Waves, describe_waves, run_waves
from dmcmc.inference.elimination.eliminate import Elimination, flat_tables, place_tables, run_on_cpu
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.cuda.device_table import DeviceTable, split_by_location
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import Device, shared_device
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT

_MAX_GRID_Y = (1 << 16) - 1  # CUDA's limit on the blocks in the second dimension of a grid


@dataclass(frozen=True)
class GpuElimination(Elimination):
    """An elimination whose group G ran on the GPU; its tables stay there as long as this object lives.

    Attributes
    ----------
    hybrid : HybridPlan
        The plan divided between CPU and GPU.
    device : Device
        The device.
    device_arena : list of one device array
        The tables on the device; appended once, when the memory is leased.
    """

    hybrid: HybridPlan
    device: Device
    device_arena: list[Any] = field(default_factory=list)

    def table(self, t: int) -> EncodedTable:
        """Return table ``t`` of the plan as a view; a table on the GPU is copied when its entries are read."""
        location, begin = self.plan.locations[t], self.hybrid.device_begin
        if location.end <= self.hybrid.host_entries:
            return super().table(t)
        entries = self.device_arena[0][location.begin - begin : location.end - begin]
        return DeviceTable.of(location.scope, location.shape, entries, self)

    def choose(self, values: NDArray[np.int64]) -> None:
        """Set the maximising values; see :meth:`Elimination.choose`. Group G takes one launch."""
        self.choose_all(values[None])

    def choose_all(self, values: NDArray[np.int64]) -> None:
        """Set the maximising values for several assignments; see :meth:`Elimination.choose_all`."""
        hybrid = self.hybrid
        self.choose_rows(
            values, np.array([[0, hybrid.first], [hybrid.first, hybrid.last], [hybrid.last, hybrid.plan.buckets]])
        )

    def choose_rows(self, values: NDArray[np.int64], ranges: NDArray[np.int64]) -> None:
        """Set the maximising values for several assignments of the kept variables in one launch.

        Parameters
        ----------
        values : (rows, variables) int64, in C order
            Each row holds the values of the kept variables; the eliminated ones are written in place.
        ranges : (3, ranges + 1) int64
            Boundaries of consecutive ranges of buckets, for each of A, G and C. No range reads a variable that another
            sets.
        """
        hybrid, program = self.hybrid, self.plan.program
        (first_a, last_a), (first_g, last_g), (first_c, last_c) = ranges[:, [0, -1]].tolist()
        lowest = self.arithmetic.dtype.type(self.arithmetic.lowest)
        if last_c > first_c:
            choose_values_in_rows(program, self.arena, values, lowest, first_c, last_c)
        if last_g > first_g:
            descriptor = self.device.upload("words", _choose_descriptor(hybrid))
            device_values = self.device.upload("values", values.reshape(-1))
            device_ranges = self.device.upload("ranges", ranges[1])
            rows, count = values.shape[0], ranges.shape[1] - 1
            scores_per_range = rows * int(program.domains.max(initial=1))
            scores = self.device.buffer("scores", scores_per_range * min(count, _MAX_GRID_Y), self.arithmetic.dtype)
            for first in range(0, count, _MAX_GRID_Y):
                grid, part = (rows, min(_MAX_GRID_Y, count - first)), device_ranges[first:]
                # 64 threads per block share the values of a variable
                choose_kernel[grid, 64](self.device_arena[0], descriptor, part, device_values, lowest, scores)
            device_values[: values.size].copy_to_host(values.reshape(-1))
        if last_a > first_a:
            choose_values_in_rows(program, self.arena, values, lowest, first_a, last_a)


def _choose_descriptor(hybrid: HybridPlan) -> NDArray[np.int64]:
    """Return the descriptor of a plan for ``choose_kernel``; cached."""
    found: NDArray[np.int64] | None = hybrid.launch_cache.get("words")
    if found is None:
        p = hybrid.plan.program
        parts = [p.domains, p.scope_start, p.scope, p.at, p.variable, p.input_start, p.inputs]
        sizes = np.array([*(part.size for part in parts), -hybrid.device_begin], dtype=np.int64)
        hybrid.launch_cache["words"] = found = np.concatenate([sizes, *parts])
    return found


def _waves(hybrid: HybridPlan, dtype: np.dtype[Any], operation: int) -> Waves:
    """Return the launches of group G; cached."""
    found: Waves | None = hybrid.launch_cache.get((dtype, operation))
    if found is None:
        first, last = hybrid.first, hybrid.last
        found = describe_waves(hybrid.plan.program, first, last, hybrid.device_begin, dtype, operation)
        hybrid.launch_cache[dtype, operation] = found
    return found


def eliminate_hybrid(
    tables: Sequence[EncodedTable] | FlatTables,
    hybrid: HybridPlan,
    arithmetic: Arithmetic,
    threads: int = 1,
    semiring: Semiring = MAX_PLUS,
    device: Device | None = None,
    stop: Deadline = NO_DEADLINE,
) -> GpuElimination:
    """Run a plan that is divided between CPU and GPU.

    Parameters
    ----------
    tables
        Encoded tables, one for each input of the plan; those on the device are used there.
    hybrid
        From :func:`dmcmc.inference.elimination.cuda.divide_work.divide_work`.
    arithmetic
        The arithmetic of the tables.
    threads
        Number of CPU threads.
    semiring
        The semiring.
    device
        The device; the process's shared device if None.
    stop
        The deadline.

    Returns
    -------
    GpuElimination

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    device = device or shared_device()
    lowest = arithmetic.dtype.type(arithmetic.lowest)
    MEMORY_ACCOUNT.claim(hybrid.host_entries * arithmetic.dtype.itemsize, "tables on the host")
    arena = np.empty(max(1, hybrid.host_entries), dtype=arithmetic.dtype)
    given, on_gpu = split_by_location(tables, hybrid.device_inputs if semiring.sign > 0 else ())
    flat = flat_tables(given, arithmetic, semiring)
    done = GpuElimination(hybrid.plan, arena, arithmetic, hybrid, device, semiring=semiring)
    on_device = device.lease(hybrid.device_entries, arithmetic.dtype, done)
    done.device_arena.append(on_device)
    for first, part in _host_runs(flat, on_gpu):
        place_tables(_without_first(hybrid.plan, first), arena, part, lowest, stop)
    if hybrid.first:
        run_on_cpu(done, 0, hybrid.first, semiring, threads, stop)
    if hybrid.last > hybrid.first:
        begin, up, down = hybrid.device_begin, hybrid.upload_end, hybrid.download_end
        for start, end in _upload_ranges(hybrid, on_gpu):
            on_device[start - begin : end - begin].copy_to_device(arena[start:end])
        for t, table in on_gpu.items():
            table.place(on_device, int(hybrid.plan.program.at[t]) - begin, hybrid.plan.scope(t))
        waves = _waves(hybrid, arithmetic.dtype, semiring.operation)
        queue = LaunchQueue(device, stop=stop)
        run_waves(queue, on_device, waves, device.upload("meta", waves.descriptors), lowest, semiring.operation)
        device.run_overlapped_work()
        if down > up:
            on_device[up - begin : down - begin].copy_to_host(arena[up:down])
    if hybrid.last < hybrid.plan.buckets:
        run_on_cpu(done, hybrid.last, hybrid.plan.buckets, semiring, threads, stop)
    return done


def _host_runs(flat: FlatTables, on_gpu: Mapping[int, EncodedTable]) -> Iterator[tuple[int, FlatTables]]:
    """Yield runs of consecutive input tables on the host, with the plan's number of each run's first table.

    Parameters
    ----------
    on_gpu
        The input tables that lie on the device, by their number.
    """
    before = 0  # host tables so far
    for first, last in pairwise([-1, *sorted(on_gpu), flat.tables + len(on_gpu)]):
        count = last - first - 1
        if count or not on_gpu:
            yield first + 1, flat.table_range(before, before + count)
        before += count


def _without_first(plan: EliminationPlan, first: int) -> EliminationPlan:
    """Return the plan without its first ``first`` tables, for copying inputs."""
    program = plan.program
    if not first:
        return plan
    return replace(plan, program=program._replace(at=program.at[first:], scope_start=program.scope_start[first:]))


def _upload_ranges(hybrid: HybridPlan, on_gpu: Mapping[int, EncodedTable]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the address space to upload: those that are not on the device yet."""
    start, program = hybrid.device_begin, hybrid.plan.program
    for t in sorted(on_gpu, key=lambda t: int(program.at[t])):
        at = int(program.at[t])
        if at > start:
            yield start, at
        start = at + int(hybrid.plan.sizes[t])
    if hybrid.upload_end > start:
        yield start, hybrid.upload_end
