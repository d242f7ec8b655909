"""Dual ascent of several agents on a GPU: tables stay on the device, and all graphs and rows are processed at once.

``batched_ascent`` and the branch and bound on the GPU call it. Agents are placed on the device in groups whose tables
have the same width, one ``DeviceDualAscent`` per group. The kernels are in ``ascent_kernels``.

The whole graph of an agent contains its hidden and its interface (boundary) variables; the hidden graph is what remains
once a row, an assignment of the interface, is fixed. A sweep passes messages once between all tables of a graph. W is
the number of columns of a table, the largest domain size rounded up to a multiple of 8. A triangle is a triplet region
with one table per pair of its variables; a level is a set of triangles that a block may process at the same time.
"""

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.tuning import BLOCKS_PER_MULTIPROCESSOR
from dmcmc.inference.bounds.dual.cuda import ascent_kernels as rows_cuda
from dmcmc.inference.bounds.dual.cuda.descriptors import (
    graph_descriptor,
    largest_level,
    triangle_colours,
    triangle_levels,
)
from dmcmc.inference.bounds.dual.cuda.smoothed_triangle_kernels import LINE_GAP
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import GROUP_SIZE, WARP_SIZE
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import DualLayout, DualPotentials
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import allow_shared, gpu_limits, shared_device
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.tuning import MAX_CHECK_INTERVAL

# Triangles that a block of 256 threads processes at once, one per warp; a colour (set of triangles that share no pair)
# is filled up to a multiple of this.
_TRIANGLES_PER_BLOCK = 8
_RESERVED_BYTES = 1 << 10  # bytes of shared memory that a block needs besides the tables
_EMPTY = np.zeros(0, dtype=np.int64)  # stands for no rows, and for no sliced factors


def fits_gpu(state: DualState) -> bool:
    """Return whether the GPU can process an agent.

    The agent needs hidden variables, a bound per row, and at most ``MAX_INTERFACE`` interface variables. Shared memory
    must hold the tables of one triangle, and table positions must fit into 32 bits.
    """
    width, layout = state.width, state.layout
    shared, _, _ = gpu_limits(rows_cuda.MAX_REGISTERS)
    return (
        state.enumerated
        and layout.n_hidden > 0
        and len(state.local.interface) <= rows_cuda.MAX_INTERFACE
        and 4 * _min_shared_entries(layout, width, smoothed=False) <= shared - _RESERVED_BYTES
        and sum(part.size for part in layout.potentials) + layout.whole.domains.size + len(layout.whole.pairs) < 1 << 31
    )


def load_sweeps(width: int) -> None:
    """Load the kernel of sweeps on whole graphs for tables with ``width`` columns; compile it if it is not stored."""
    ints, longs, octets = _example_arguments(width)
    shared_device().load(rows_cuda.sweep_graphs, (ints, longs, ints, longs, longs, longs, longs, 0, octets))


def load_row_bounds(width: int) -> None:
    """Load the kernel of the bounds of rows for tables with ``width`` columns; compile it if it is not stored."""
    ints, longs, octets = _example_arguments(width)
    shared_device().load(rows_cuda.bound_rows, (ints, longs, ints, longs, ints, 0, 0, longs, 0, octets))


def _example_arguments(width: int) -> tuple[Any, Any, tuple[int, ...]]:
    """Return arrays of int32 and int64, and the octets, whose length alone matters to the kernels."""
    device = shared_device()
    ints, longs = (device.buffer("kernels", 1, np.dtype(t)) for t in (np.int32, np.int64))
    return ints, longs, (0,) * (width // 8)


def _threads_per_block(threads: int) -> int:
    """Return the number of threads per block; only a few in the simulator, which starts a real thread for each."""
    return GROUP_SIZE if GROUP_SIZE < WARP_SIZE else threads


def _triangle_entries(layout: DualLayout, width: int, smoothed: bool) -> int:
    """Return the int32 entries of shared memory per triangle: tables, and exponentials and line maxima if smoothed.

    Each of the three tables has W rows of W + 1 entries. A smoothed product has 2 W lines (W rows of its left table, W
    columns of its right one) of W exponentials, ``LINE_GAP`` unused entries and one maximum.
    """
    if not len(layout.whole.triangles):
        return 0
    return 3 * width * (width + 1) + (2 * width * (width + LINE_GAP + 1) if smoothed else 0)


def _min_shared_entries(layout: DualLayout, width: int, smoothed: bool) -> int:
    """Return the least int32 entries of shared memory for a block: one triangle, or one pair with all messages.

    For a variable of that degree (number of pairs), the latter are: the outgoing message and the variable's table (W
    entries each), one message per pair (W each), and the table of one pair (W rows of W + 1 entries).
    """
    degree = int(np.diff(layout.whole.incident_start).max(initial=0))
    return max(_triangle_entries(layout, width, smoothed), width * (3 + width + degree))


def _max_shared_entries(layout: DualLayout, width: int, level_size: int, smoothed: bool) -> int:
    """Return the most int32 entries that a block can use: all triangles of a level, or all pairs of a variable.

    The latter are W entries each for the variable's table and outgoing message, and W (W + 2) for each pair's table and
    message. ``level_size`` is the number of triangles of the largest level.
    """
    degree = int(np.diff(layout.whole.incident_start).max(initial=0))
    return max(level_size * _triangle_entries(layout, width, smoothed), width * (2 + degree * (width + 2)))


@dataclass(frozen=True)
class DevicePlacement:
    """Position of an agent on the device; implements ``RemotePotentials``.

    ``place_on_device`` stores it in the agent's ``DualState.remote``. The device then holds the newest potentials,
    until ``DualState.fetch_potentials`` copies them back and drops the placement.

    Attributes
    ----------
    group : DeviceDualAscent
        The agents that were placed together.
    index : int
        Number of the agent in the group.
    """

    group: "DeviceDualAscent"
    index: int

    def potentials(self) -> DualPotentials:
        """Copy the agent's potentials from the device."""
        return self.group.potentials(self.index)


def place_on_device(states: Sequence[DualState], sharers: int = 1) -> list[DevicePlacement]:
    """Place agents on the device, if they are not yet there, in groups of the same table width; return their positions.

    Parameters
    ----------
    states : sequence of DualState
        Agents for which ``fits_gpu`` is True; the ``remote`` attribute of new ones is set.
    sharers : int
        Number of processes that use the same GPU.
    """
    for width in sorted({s.width for s in states if not isinstance(s.remote, DevicePlacement)}):
        new = [s for s in states if not isinstance(s.remote, DevicePlacement) and s.width == width]
        group = DeviceDualAscent(new, sharers)
        for number, state in enumerate(new):
            state.remote = DevicePlacement(group, number)
    return [s.remote for s in states if isinstance(s.remote, DevicePlacement)]


@dataclass(frozen=True)
class GroupRecords:
    """The arrays that describe a group of agents to the kernels, and the memory that the kernels need.

    Attributes
    ----------
    agents : (agents, ``AGENT_SIZE``) int64
        One record per agent; the fields are those of ``ascent_kernels``.
    descriptors : int32
        The descriptors of all graphs and the shapes of all interfaces, one after the other.
    table_entries : int
        Entries of all agents' tables.
    block_entries : int
        Entries of the largest hidden graph's tables, of which each block needs a copy.
    shared : int
        int32 entries of shared memory of each block.
    """

    agents: Ints
    descriptors: NDArray[np.int32]
    table_entries: int
    block_entries: int
    shared: int


def describe_agents(states: Sequence[DualState], shared_bytes: int) -> GroupRecords:
    """Return the records of agents with tables of the same width.

    Parameters
    ----------
    states : sequence of DualState
        The agents.
    shared_bytes : int
        Maximum shared memory of a block, in bytes.
    """
    width, agents = states[0].width, np.zeros((len(states), rows_cuda.AGENT_SIZE), dtype=np.int64)
    descriptors: list[NDArray[np.int32]] = []
    # ``position`` counts descriptor entries, ``table_start`` table entries; the others are numbers of int32 entries: of
    # the largest hidden graph's tables, and of the shared memory that a block needs and can use.
    position, table_start, block_entries, min_shared, max_shared = 0, 0, 0, 0, 0
    for k, state in enumerate(states):
        layout = state.layout
        # Sweeps are not smoothed if shared memory does not suffice.
        smoothed = (
            bool(state.initial_temperature > 0)
            and 4 * _min_shared_entries(layout, width, smoothed=True) <= shared_bytes - _RESERVED_BYTES
        )
        levels = [
            triangle_colours(graph.triangles, _TRIANGLES_PER_BLOCK) if smoothed else triangle_levels(graph.triangles)
            for graph in (layout.whole, layout.hidden)
        ]
        whole, entries = graph_descriptor(layout.whole, width, _EMPTY, position, levels[0])
        hidden, hidden_entries = graph_descriptor(
            layout.hidden, width, layout.sliced_factors, position + whole.size, levels[1]
        )
        shape = np.array(state.local.interface_shape, dtype=np.int32)
        shape_position = position + whole.size + hidden.size
        temperature = round(rows_cuda.TEMPERATURE_UNIT * float(state.initial_temperature)) if smoothed else 0
        agents[k] = position, position + whole.size, table_start, shape_position, shape.size, temperature
        descriptors += [whole, hidden, shape]
        min_shared = max(min_shared, _min_shared_entries(layout, width, smoothed))
        max_shared = max(max_shared, _max_shared_entries(layout, width, largest_level(whole, position), smoothed))
        position = shape_position + shape.size
        table_start = table_start + entries
        block_entries = max(block_entries, hidden_entries)
    # As much shared memory as a block can use if two blocks share a multiprocessor; at least what each agent needs.
    shared = max(min_shared, min(max_shared, (shared_bytes // BLOCKS_PER_MULTIPROCESSOR - _RESERVED_BYTES) // 4))
    return GroupRecords(agents, np.concatenate(descriptors), table_start, block_entries, shared)


class DeviceDualAscent:
    """Graphs and tables of a group of agents on the device.

    Parameters
    ----------
    states : sequence of DualState
        Agents that the GPU can process, with tables of the same width. The object does not keep them: an agent is
        identified by its index among them.
    sharers : int
        Number of processes that use the same GPU.

    Attributes
    ----------
    device : Device
        The device and its buffers.
    layouts : list of DualLayout
        The layout of each agent.
    width : int
        Number of columns of a table.
    blocks : int
        Number of thread blocks that run at the same time.
    node_buffer : weak reference to DeviceNodeBuffer, or None
        Buffer for the nodes of branch-and-bound searches over the agents' rows. The searches own it.
    """

    def __init__(self, states: Sequence[DualState], sharers: int = 1) -> None:
        self.node_buffer: weakref.ref[Any] | None = None  # the branch and bound on the GPU sets it
        self.device, self._sharers = shared_device(), sharers
        self.layouts, self.width = [state.layout for state in states], states[0].width
        self._octets = (0,) * (self.width // 8)  # only the length matters: it fixes W when the kernels are compiled
        shared, processors, threads = gpu_limits(rows_cuda.MAX_REGISTERS)
        records = describe_agents(states, shared)
        self._agents, self._block_entries, self._shared_entries = records.agents, records.block_entries, records.shared
        blocks = max(1, min(BLOCKS_PER_MULTIPROCESSOR, shared // (4 * self._shared_entries + _RESERVED_BYTES)))
        self._threads, self.blocks = _threads_per_block(threads // blocks), processors * blocks
        self._arena = self.device.lease(records.table_entries, np.dtype(np.int32), self)
        for k, state in enumerate(states):
            start = int(self._agents[k, rows_cuda.TABLES_START])
            tables = np.concatenate([part.reshape(-1) for part in state.potentials])
            self._arena[start : start + tables.size].copy_to_device(tables)
        self._descriptors = self.device.hold(records.descriptors, self)
        self._agent_records = self.device.hold(self._agents, self)

    def sweep_whole(self, indices: Sequence[int], firsts: Sequence[int], lasts: Sequence[int]) -> list[int]:
        """Make the sweeps ``firsts`` to ``lasts`` - 1 on agents' whole graphs; return each one's next sweep number.

        ``indices`` are the numbers of the agents in this group. A result below the agent's ``lasts`` means that a table
        entry left the range in that sweep, and no further sweep may be made.
        """
        device, next_sweeps = self.device, np.array(firsts, dtype=np.int64)
        if not len(indices):
            return []
        device_sweeps = device.buffer("dual next sweeps", next_sweeps.size, np.dtype(np.int64))
        arguments = (
            device.upload(f"dual {name}", np.array(values, dtype=np.int64))
            for name, values in (("indices", indices), ("firsts", firsts), ("lasts", lasts))
        )
        self._launch(
            rows_cuda.sweep_graphs,
            next_sweeps.size,
            self._descriptors,
            self._agent_records,
            self._arena,
            *arguments,
            device_sweeps,
        )
        device_sweeps[: next_sweeps.size].copy_to_host(next_sweeps)
        return [int(x) for x in next_sweeps]

    def potentials(self, index: int) -> DualPotentials:
        """Copy an agent's potentials from the device."""
        tables, start = self.layouts[index].potentials, int(self._agents[index, rows_cuda.TABLES_START])
        host = np.empty(sum(part.size for part in tables), dtype=np.int32)
        if host.size:
            self._arena[start : start + host.size].copy_to_host(host)
        offsets = np.cumsum([part.size for part in tables])
        tables_on_host = np.split(host, offsets[:-1])
        return DualPotentials(*(table.reshape(part.shape) for table, part in zip(tables_on_host, tables, strict=True)))

    def bound_rows(
        self,
        indices: Sequence[int],
        rows: Sequence[Ints],
        sweeps: int,
        cutoffs: Sequence[Ints | None],
        stop: Deadline = NO_DEADLINE,
    ) -> list[Ints]:
        """Bound some rows of some agents.

        Parameters
        ----------
        indices : sequence of int
            Indices of the agents.
        rows : sequence of (k,) int64
            Row numbers of each agent.
        sweeps : int
            Sweeps per row.
        cutoffs : sequence of ((k,) int64 or None)
            Cutoffs of each agent's rows in its integer scale.
        stop : Deadline
            Deadline; nothing is known about rows that are not reached.

        Returns
        -------
        list of (k,) int64
            Bounds in the agent's integer scale: ``MINUS_INFINITY`` for an infeasible row, ``-MINUS_INFINITY`` for a row
            without a new bound (not reached, or an entry left the range in conditioning).
        """
        counts = [r.size for r in rows]
        jobs = np.full((sum(counts), rows_cuda.JOB_SIZE), MINUS_INFINITY, dtype=np.int64)
        jobs[:, rows_cuda.JOB_AGENT] = np.repeat(np.asarray(indices, dtype=np.int64), counts)
        jobs[:, rows_cuda.JOB_ROW] = np.concatenate([*rows, _EMPTY])
        offsets = np.cumsum([0, *counts])
        for cutoff, (first, last) in zip(cutoffs, pairwise(offsets.tolist()), strict=True):
            if cutoff is not None:
                jobs[first:last, rows_cuda.JOB_CUTOFF] = cutoff
        return np.split(self._run_jobs(jobs, sweeps, stop), offsets[1:-1])

    def _run_jobs(self, jobs: Ints, sweeps: int, stop: Deadline) -> Ints:
        """Bound rows in one launch, or in launches of about ``MAX_CHECK_INTERVAL`` seconds if there is a deadline.

        The results are those of ``bound_rows``, for all agents together: (jobs,) int64 bounds. ``jobs`` is (jobs,
        ``JOB_SIZE``) int64: index of the agent, row number, and cutoff.
        """
        device, job_count = self.device, len(jobs)
        host_bounds = np.full(job_count, rows_cuda.OUT_OF_RANGE, dtype=np.int64)
        if not job_count:
            return host_bounds
        # The workspaces of all blocks, of four bytes per entry, take at most half of this process's device memory.
        max_blocks = max(1, device.limit // (2 * self._sharers) // (4 * self._block_entries))
        blocks = min(job_count, self.blocks, max_blocks)
        workspace = device.buffer("dual work", blocks * self._block_entries, np.dtype(np.int32))
        device_bounds = device.buffer("dual bounds", job_count, np.dtype(np.int64))
        # With a deadline, the first launch has one row per block; after a short launch, the next has twice as many.
        first, launch_rows = 0, job_count if stop is NO_DEADLINE else blocks
        while first < job_count and not (first and stop.over):
            last, start = min(job_count, first + launch_rows), time.perf_counter()
            self._launch(
                rows_cuda.bound_rows, min(blocks, last - first), self._descriptors, self._agent_records, self._arena,
                device.upload("dual jobs", jobs[first:last].reshape(-1)), workspace, self._block_entries, sweeps,
                device_bounds[: last - first],
            )  # fmt: skip
            device_bounds[: last - first].copy_to_host(host_bounds[first:last])
            if time.perf_counter() - start < MAX_CHECK_INTERVAL / 2:
                launch_rows *= 2
            first = last
        return np.where(host_bounds == rows_cuda.OUT_OF_RANGE, -MINUS_INFINITY, host_bounds)

    def launch(self, kernel: Any, blocks: int, *arguments: Any) -> None:
        """Launch a kernel of another module on the agents' tables.

        The kernel's first arguments are the descriptors, the agent records and the tables; ``arguments`` follow, then
        the size of the shared memory and ``octets``.
        """
        self._launch(kernel, blocks, self._descriptors, self._agent_records, self._arena, *arguments)

    def _launch(self, kernel: Any, blocks: int, *arguments: Any) -> None:
        """Launch a kernel with this group's shared memory; append its size and ``octets`` to the arguments."""
        arguments = (*arguments, self._shared_entries, self._octets)
        allow_shared(kernel, arguments, 4 * self._shared_entries)
        kernel[blocks, self._threads, 0, 4 * self._shared_entries](*arguments)
