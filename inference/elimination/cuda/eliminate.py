"""Bucket elimination on a GPU, and how its work is divided among blocks.

Run a plan on CPU and GPU together: small buckets on the CPU, large ones on the GPU, one copy in each direction.

``divide_work`` orders the buckets into three groups: A runs on the CPU and needs no result of the GPU, G runs on the
GPU, and C runs on the CPU afterwards. It also gives all tables one address space, in entries; the host holds its first
part, the device its last part, and the overlap is copied.

Divide an elimination between CPU and GPU: which bucket runs where, and where each table lies.

The buckets form three groups A, G and C; what each bucket computes does not change. A runs on the CPU and needs no
result of the GPU, G runs on the GPU, and C runs on the CPU afterwards. All tables share one address space::

    messages of C | messages of A | inputs | messages of A for G | messages of G for C | other messages of G
    |------------------------------ host ------------------------------------------|
                                    |------------------------ device ----------------------------------|

One copy therefore uploads everything that the GPU needs, and one copy downloads everything that the CPU needs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference import tuning
from dmcmc.inference.elimination.arena_kernels import choose_values_in_rows
from dmcmc.inference.elimination.cuda.join_kernels import choose_kernel, group_buckets
from dmcmc.inference.elimination.cuda.waves import LaunchQueue, Waves, describe_waves, run_waves
from dmcmc.inference.elimination.eliminate import (
    Elimination,
    MergedPlan,
    assignments_of,
    flat_tables,
    place_tables,
    run_on_cpu,
)
from dmcmc.inference.elimination.plan import BucketProgram, EliminationPlan
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.device_table import NEVER_RESIDENT, DeviceTable, split_by_location
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import Device, shared_device
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.tuning import MAX_LOOKUPS_PER_PLAN


@dataclass(frozen=True)
class HybridPlan:
    """A plan with its buckets in the order A, G, C, and its address space.

    Attributes
    ----------
    plan : EliminationPlan
        The reordered plan; ``program.at`` holds offsets in the common address space.
    first, last : int
        The buckets of G are ``first`` to ``last`` − 1; none if equal.
    renumbered : (tables,) int64
        The new number of each table of the original plan.
    device_begin, device_end : int
        The part of the address space that the device holds, in entries.
    upload_end, download_end : int
        ``device_begin:upload_end`` is uploaded before G runs, ``upload_end:download_end`` is downloaded afterwards.
    launch_cache : dict
        Launches and descriptors computed so far, by what they depend on.
    """

    plan: EliminationPlan
    first: int
    last: int
    renumbered: Ints
    device_begin: int
    upload_end: int
    download_end: int
    device_end: int
    launch_cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def host_entries(self) -> int:
        """Number of entries of the address space that the host holds."""
        return self.download_end

    @property
    def device_entries(self) -> int:
        """Number of entries that the device holds."""
        return self.device_end - self.device_begin

    @property
    def device_inputs(self) -> list[int]:
        """The input tables that only the device reads."""
        p, given = self.plan.program, self.plan.tables - self.plan.buckets
        device_inputs = p.inputs[p.input_start[self.first] : p.input_start[self.last]]
        found: list[int] = device_inputs[device_inputs < given].tolist()
        return found


def divide_work(plan: EliminationPlan, threshold: int, min_resident: int = NEVER_RESIDENT) -> HybridPlan:
    """Assign buckets to CPU or GPU; the result is cached in the plan.

    Buckets of at least ``threshold`` joined cells, and the buckets between two of them, go to the GPU.

    Parameters
    ----------
    plan
        The plan to divide.
    threshold
        Joined cells (entries of a bucket's joined table) from which a bucket goes to the GPU.
    min_resident
        Number of entries from which a remaining table, one that no bucket consumes, is left on the device;
        ``NEVER_RESIDENT`` exceeds the size of every table.
    """
    found: HybridPlan | None = plan.derived_plans.get((threshold, min_resident))
    if found is None:
        plan.derived_plans[threshold, min_resident] = found = _divide(plan, threshold, min_resident)
    return found


def _divide(plan: EliminationPlan, threshold: int, min_resident: int) -> HybridPlan:
    """Compute the division for :func:`divide_work`."""
    program = plan.program
    given = plan.tables - plan.buckets
    group, consumer = group_buckets(
        program.variable, program.input_start, program.inputs, program.cells, given, threshold
    )
    bucket_order = np.argsort(group, kind="stable")
    first, last = int((group == 0).sum()), int((group <= 1).sum())
    new_bucket = np.empty_like(bucket_order)
    new_bucket[bucket_order] = np.arange(bucket_order.size)
    renumbered = np.concatenate([np.arange(given), given + new_bucket]).astype(np.int64)
    # Remaining tables count as consumed by the CPU (2), since the host reads them; large ones stay on the device (3).
    remaining_group = np.where(plan.sizes[given:] >= min_resident, 3, 2)
    consumer_group = np.where(consumer >= 0, group[consumer], remaining_group)
    # The section of the address space of each table of the original plan, numbered 0 to 5 in the order of the diagram.
    section = np.empty(plan.tables, dtype=np.int64)
    section[:given] = 2
    section[given:] = np.select(
        [group == 2, (group == 0) & (consumer_group != 1), group == 0, consumer_group == 2], [0, 1, 3, 4], 5
    )
    order = np.argsort(section, kind="stable")
    ends = np.cumsum(plan.sizes[order])
    at = np.empty(plan.tables, dtype=np.int64)
    at[order] = ends - plan.sizes[order]
    section_end = [int(plan.sizes[section <= s].sum()) for s in range(6)]
    tables = np.concatenate([np.arange(given), given + bucket_order]).astype(np.int64)  # new number -> old
    input_start, input_index = _gather(program.input_start, bucket_order)
    scope_start, scope_index = _gather(program.scope_start, tables)
    reordered = BucketProgram(
        domains=program.domains,
        scope_start=scope_start,
        scope=program.scope[scope_index],
        at=at[tables],
        variable=program.variable[bucket_order],
        input_start=input_start,
        inputs=renumbered[program.inputs[input_index]],
        cells=program.cells[bucket_order],
        row_axes=program.row_axes[bucket_order],
    )
    remaining = tuple(renumbered[list(plan.remaining)].tolist())
    return HybridPlan(
        EliminationPlan(reordered, plan.sizes[tables], remaining),
        first,
        last,
        renumbered,
        section_end[1],
        section_end[3],
        section_end[4],
        section_end[5],
    )


def _gather(start: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Select pieces of a concatenated array.

    Parameters
    ----------
    start : (pieces + 1,) int64
        Start of each piece.
    chosen : (chosen,) int64
        The pieces to select, in order.

    Returns
    -------
    begin : (chosen + 1,) int64
        Starts of the chosen pieces when concatenated.
    index : (elements,) int64
        Source index of each of their elements.
    """
    lengths = np.diff(start)[chosen]
    begin = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return begin, np.repeat(start[:-1][chosen] - begin[:-1], lengths) + np.arange(begin[-1])


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
        From :func:`dmcmc.inference.elimination.cuda.eliminate.divide_work`.
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


class BatchLayout:
    """The position of each plan's tables and buckets in the merged plan; cached for equal plans.

    All its properties are computed at first use and do not depend on the entries of the tables.

    Parameters
    ----------
    plans
        The single plans.
    merged
        The merged plan.
    hybrid
        The merged plan divided between CPU and GPU.
    """

    def __init__(self, plans: Sequence[EliminationPlan], merged: MergedPlan, hybrid: HybridPlan) -> None:
        self.plans, self.merged, self.hybrid = plans, merged, hybrid

    @cached_property
    def numbers(self) -> list[NDArray[np.int64]]:
        """The number in the hybrid plan of each table, (tables,) int64 for each plan."""
        return [self.hybrid.renumbered[numbers] for numbers in self.merged.numbers]

    @cached_property
    def ranges(self) -> NDArray[np.int64]:
        """First bucket of each plan within the groups A, G and C of ``divide_work``, (3, plans + 1) int64."""
        hybrid, start = self.hybrid, self.merged.bucket_start
        given = hybrid.plan.tables - hybrid.plan.buckets
        merged_order = np.argsort(hybrid.renumbered[given:])  # the merged plan's number of each bucket
        edges = (0, hybrid.first, hybrid.last, hybrid.plan.buckets)
        return np.array([a + np.searchsorted(merged_order[a:b], start) for a, b in pairwise(edges)])

    @cached_property
    def kept_scopes(self) -> list[tuple[list[int], tuple[int, ...]]]:
        """For each plan the variables of its remaining tables, and their domain sizes."""
        found = []
        for plan in self.plans:
            kept_variables = sorted({v for t in plan.remaining for v in plan.scope(t)})
            found.append((kept_variables, tuple(plan.program.domains[kept_variables].tolist())))
        return found

    @cached_property
    def max_rows(self) -> int:
        """The largest number of assignments of the kept variables of a plan."""
        return max(prod(shape) for _, shape in self.kept_scopes)

    @cached_property
    def few_rows(self) -> NDArray[np.int64] | None:
        """The :meth:`rows`, or None if looking up all of them takes much longer than one."""
        hybrid = self.hybrid
        on_cpu = hybrid.plan.buckets - (hybrid.last - hybrid.first)
        if (
            self.max_rows * hybrid.plan.program.domains.size > tuning.SMALL_STEP_CELLS
            or self.max_rows * on_cpu > MAX_LOOKUPS_PER_PLAN * len(self.plans)
        ):
            return None
        return self.rows()

    def rows(self) -> NDArray[np.int64]:
        """Return all assignments of the kept variables, (rows, variables) int64.

        Row r holds assignment number r of every plan. One launch for all rows takes hardly longer than for one row.
        """
        values = np.zeros((self.max_rows, self.hybrid.plan.program.domains.size), dtype=np.int64)
        for kept_variables, shape in self.kept_scopes:
            values[: prod(shape), kept_variables] = assignments_of(np.array(shape, dtype=np.int64))
        return values


class EliminationBatch:
    """Several eliminations that were run as one.

    The first look-up of maximising values computes those of all assignments of the kept variables at once, if they are
    few enough; later look-ups read them. Otherwise each look-up runs on its own.

    Parameters
    ----------
    layout
        The position of each plan in the merged plan.
    merged_elimination
        The elimination of the merged plan.
    """

    def __init__(self, layout: BatchLayout, merged_elimination: GpuElimination) -> None:
        self.layout, self.merged_elimination = layout, merged_elimination

    @cached_property
    def _few_values(self) -> NDArray[np.int64] | None:
        """Maximising values per assignment of the kept variables, (rows, variables) int64; None if too many."""
        if self.layout.few_rows is None:
            return None
        values = self.layout.few_rows.copy()
        self.merged_elimination.choose_rows(values, self.layout.ranges)
        return values

    @cached_property
    def all_values(self) -> NDArray[np.int64]:
        """Maximising values per assignment of the kept variables, (rows, variables) int64."""
        if self._few_values is not None:
            return self._few_values
        values = self.layout.rows()
        self.merged_elimination.choose_rows(values, self.layout.ranges)
        return values

    def choose(self, values: NDArray[np.int64]) -> None:
        """Set maximising values of all plans in ``values`` (variables,) int64, which holds all kept variables.

        This takes one launch.
        """
        self.merged_elimination.choose_rows(values[None], self.layout.ranges)

    def choose_all(self, index: int, values: NDArray[np.int64]) -> None:
        """Set the maximising values of one plan's variables in each row of ``values`` (rows, variables) int64.

        ``index`` is the index of the plan in the batch; each row holds the values of its kept variables.
        """
        if self._few_values is None:
            self.merged_elimination.choose_rows(values, np.ascontiguousarray(self.layout.ranges[:, index : index + 2]))
            return
        kept_variables, shape = self.layout.kept_scopes[index]
        rows = (
            np.ravel_multi_index(tuple(values[:, kept_variables].T), shape)
            if kept_variables
            else np.zeros(len(values), dtype=np.int64)
        )
        variables = self.layout.plans[index].program.variable
        values[:, variables] = self._few_values[rows[:, None], variables]


@dataclass(frozen=True)
class BatchedElimination(Elimination):
    """One elimination of a batch. It has its own plan; its tables lie in the batch's arena.

    Attributes
    ----------
    batch : EliminationBatch
        The batch.
    index : int
        The index of this elimination in the batch.
    """

    batch: EliminationBatch = field(kw_only=True)
    index: int = field(kw_only=True)

    def table(self, t: int) -> EncodedTable:
        """Return table ``t`` of this elimination's plan."""
        return self.batch.merged_elimination.table(int(self.batch.layout.numbers[self.index][t]))

    @property
    def chooser(self) -> EliminationBatch:
        """The batch, which sets the values of several of its eliminations in one launch."""
        return self.batch

    def values_of_rows(self, kept: Sequence[int], wanted: Sequence[int]) -> NDArray[np.int32]:
        """Return maximising values for every assignment of the kept variables, from one look-up for the whole batch."""
        if self.batch.layout.max_rows * self.plan.program.domains.size > tuning.MAX_EXPANDED_ENTRIES:
            return super().values_of_rows(kept, wanted)
        kept_variables, shape = self.batch.layout.kept_scopes[self.index]
        assignments = assignments_of(self.plan.program.domains[list(kept)])
        columns = [list(kept).index(v) for v in kept_variables]
        rows = (
            np.ravel_multi_index(tuple(assignments[:, columns].T), shape)
            if columns
            else np.zeros(len(assignments), int)
        )
        return self.batch.all_values[rows[:, None], list(wanted)].astype(np.int32)

    def choose(self, values: NDArray[np.int64]) -> None:
        """Set the maximising values; see :meth:`Elimination.choose`."""
        self.choose_all(values[None])

    def choose_all(self, values: NDArray[np.int64]) -> None:
        """Set the maximising values of several assignments; see :meth:`Elimination.choose_all`."""
        self.batch.choose_all(self.index, values)


def eliminate_batch(
    flat: FlatTables,
    plans: Sequence[EliminationPlan],
    merged: MergedPlan,
    hybrid: HybridPlan,
    arithmetic: Arithmetic,
    threads: int = 1,
    semiring: Semiring = MAX_PLUS,
    stop: Deadline = NO_DEADLINE,
) -> list[Elimination]:
    """Run several plans at once.

    The tables equal those of :func:`eliminate_hybrid` for each plan, bit by bit for integers.

    Parameters
    ----------
    flat
        Encoded tables: those of the first plan, then those of the second, ...
    plans
        The single plans.
    merged, hybrid
        The merged plan, and the merged plan divided between CPU and GPU.
    arithmetic
        The arithmetic of the tables.
    threads
        Number of CPU threads.
    semiring
        The semiring.
    stop
        The deadline.

    Returns
    -------
    list of Elimination
        One per plan.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    merged_elimination = eliminate_hybrid(flat, hybrid, arithmetic, threads, semiring, stop=stop)
    layout: BatchLayout | None = hybrid.launch_cache.get("layout")
    if layout is None:
        hybrid.launch_cache["layout"] = layout = BatchLayout(plans, merged, hybrid)
    batch = EliminationBatch(layout, merged_elimination)
    return [
        BatchedElimination(plan, merged_elimination.arena, arithmetic, semiring=semiring, batch=batch, index=i)
        for i, plan in enumerate(plans)
    ]
