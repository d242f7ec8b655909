"""Bound the nodes of a branch and bound by dual ascent on a GPU; a launch processes nodes of several agents.

Tables stay on the device. Agents are placed there in groups (``DeviceDualAscent``), which hold the tables that rows
start from. The searches of a group share a ``DeviceNodeBuffer``, which stores the tables of their nodes. Each search
holds its own part of the buffer (``BufferPart``) and gives it back when it ends; the last search that ends frees the
buffer. The kernels are in ``node_kernels``; n is the number of hidden variables of an agent, W the number of columns of
a table. A group of jobs is a sequence of jobs that one thread block processes in order.
"""

import time
import weakref
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.bounder import (
    JOB_AGENT,
    JOB_SOURCE,
    JOB_TARGET,
    JOB_WORK,
    NO_VARIABLE,
    NOT_PROCESSED,
    BatchResult,
    Bounder,
    SearchBatch,
)
from dmcmc.inference.bounds.branch_and_bound.cuda import node_kernels
from dmcmc.inference.bounds.branch_and_bound.dual_bounder import DUAL_WORK, allowed_values
from dmcmc.inference.bounds.contract.tuning import MAX_ENTRIES_PER_BLOCK, NODES_PER_BLOCK
from dmcmc.inference.bounds.dual.cuda.device_ascent import DeviceDualAscent, DevicePlacement, place_on_device
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import DualLayout, DualPotentials
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import shared_device
from dmcmc.inference.tuning import DEVICE_SHARE, MAX_CHECK_INTERVAL

_INT64 = np.dtype(np.int64)


def load_kernels(width: int) -> None:
    """Compile the kernel for tables of ``width`` columns, or load it from disk."""
    device = shared_device()
    # any arrays of the right types: only types matter for the compilation
    ints, longs, bytes_ = (device.buffer("kernels", 1, np.dtype(t)) for t in (np.int32, np.int64, np.uint8))
    arguments = (ints, longs, ints, longs, longs, ints, ints, 0, ints, 0, longs, longs, longs, bytes_, bytes_, 0, longs)
    device.load(node_kernels.run_nodes, (*arguments, 0, (0,) * (width // 8)))


class BufferPart:
    """Entries of a node buffer that belong to one search; the part is free again when this object is garbage-collected.

    Parameters
    ----------
    buffer : DeviceNodeBuffer
        A buffer with a free part. The part keeps it alive.

    Attributes
    ----------
    first : int
        The first entry; the part has ``buffer.capacity`` entries.
    """

    def __init__(self, buffer: "DeviceNodeBuffer") -> None:
        self.buffer, number = buffer, buffer.free_parts.pop()
        self.first = number * buffer.capacity
        weakref.finalize(self, buffer.free_parts.append, number)

    def place(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the buffer of some entries of this part; negative numbers stay as they are.

        Raises
        ------
        IndexError
            If an entry lies outside of the part: the kernel would overwrite the nodes of another search.
        """
        if entries.size and int(entries.max()) >= self.buffer.capacity:
            raise IndexError(f"node entry {int(entries.max())} of a part with {self.buffer.capacity} entries")
        return np.where(entries < 0, entries, entries + self.first)


class DeviceNodeBuffer:
    """Buffer on the device for the search nodes of a group of agents, in equal parts; implements ``BatchRunner``.

    A buffer entry stores the tables of one node. There is one part per agent of the group.

    Parameters
    ----------
    group : DeviceDualAscent
        The agents on the device.
    sharers : int
        Number of processes that share the device.

    Attributes
    ----------
    capacity : int
        Buffer entries per part.
    free_parts : list of int
        Numbers of the parts that no search holds.
    batch_size : int
        Number of nodes to branch per batch.
    busy : float
        Seconds spent in launches.
    """

    def __init__(self, group: DeviceDualAscent, sharers: int) -> None:
        self.device, self._sharers = shared_device(), sharers
        agents, self._blocks = len(group.layouts), group.blocks
        self._width = group.width
        sizes = [_table_sizes(layout, group.width) for layout in group.layouts]
        self._entry_size, self._workspace_size = max(x for x, _ in sizes), max(x for _, x in sizes)
        self._mask_size = max(layout.n_hidden for layout in group.layouts) * group.width
        memory = int(DEVICE_SHARE * min(self.device.limit, self.device.free_bytes())) // max(1, sharers)
        self.capacity = min(memory // (4 * self._entry_size) // agents, MAX_ENTRIES_PER_BLOCK * group.blocks)
        self.batch_size = NODES_PER_BLOCK * group.blocks
        self._buffer = self.device.lease(agents * self.capacity * self._entry_size, np.dtype(np.int32), self)
        self._entry_notes = self.device.lease(agents * self.capacity * node_kernels.NOTE_FIELDS, _INT64, self)
        self.free_parts = list(range(agents))
        self._groups_per_launch, self.busy = self._blocks, 0.0

    @classmethod
    def with_free_part(cls, group: DeviceDualAscent, sharers: int) -> "DeviceNodeBuffer":
        """Return the node buffer of a group, or a new one if there is none or all its parts belong to searches."""
        buffer = None if group.node_buffer is None else group.node_buffer()
        if not isinstance(buffer, DeviceNodeBuffer) or not buffer.free_parts:
            buffer = cls(group, sharers)
            group.node_buffer = weakref.ref(buffer)
        return buffer

    def run(self, work: Sequence[tuple[Bounder, SearchBatch]], stop: Deadline) -> list[BatchResult]:
        """Process one batch of each bounder; nodes that are not reached before the deadline stay unprocessed."""
        bounders = [cast(GpuDualBounder, bounder) for bounder, _ in work]
        agent_places = place_on_device([bounder.state for bounder in bounders], self._sharers)
        results: list[BatchResult | None] = [None] * len(work)
        for group in {id(place.group): place.group for place in agent_places}.values():
            indices = [k for k, place in enumerate(agent_places) if place.group is group]
            group_work = [(bounders[k], agent_places[k], work[k][1]) for k in indices]
            for k, result in zip(indices, self._run(group, group_work, stop), strict=True):
                results[k] = result
        return [result for result in results if result is not None]

    def read(self, position: int, size: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Copy an entry to the host: ``size`` int32 of an agent's tables, and its notes (``NOTE_FIELDS``,)."""
        start, notes = position * self._entry_size, node_kernels.NOTE_FIELDS
        tables: NDArray[np.int32] = self._buffer[start : start + size].copy_to_host()
        return tables, self._entry_notes[position * notes : (position + 1) * notes].copy_to_host()

    def _run(
        self,
        group: DeviceDualAscent,
        work: "Sequence[tuple[GpuDualBounder, DevicePlacement, SearchBatch]]",
        stop: Deadline,
    ) -> list[BatchResult]:
        """Process the batches of several agents of one device group as a single batch."""
        jobs = np.concatenate([batch.jobs for _, _, batch in work])
        offsets = [0, *accumulate(len(batch.jobs) for _, _, batch in work)]
        masks = np.zeros((len(jobs), self._mask_size), dtype=np.uint8)
        group_starts = [np.zeros(1, dtype=np.int64)]
        for (bounder, place, batch), first, last in zip(work, offsets[:-1], offsets[1:], strict=True):
            agent_jobs = jobs[first:last]
            agent_jobs[:, JOB_AGENT] = place.index
            for column in (JOB_TARGET, JOB_SOURCE):
                agent_jobs[:, column] = bounder.part.place(agent_jobs[:, column])
            masks[first:last, : bounder.entries] = batch.masks.reshape(-1, bounder.entries)
            group_starts.append(batch.groups[1:] + first)
        order, sorted_starts = _longest_first(jobs, np.concatenate(group_starts))
        sorted_masks, original_order = masks[order], np.argsort(order)
        numbers, first_values = self._launch(group, jobs[order], sorted_starts, sorted_masks, stop)
        numbers = numbers[:, original_order]
        first_values = first_values[original_order]
        masks = sorted_masks[original_order]
        results = []
        for (bounder, _, batch), first, last in zip(work, offsets[:-1], offsets[1:], strict=True):
            remaining = masks[first:last, : bounder.entries].reshape(batch.masks.shape)
            bounds, variables = numbers[:, first:last]
            results.append(BatchResult(bounds, remaining.astype(np.bool_), variables, first_values[first:last]))
        return results

    def _launch(
        self,
        group: DeviceDualAscent,
        jobs: NDArray[np.int64],
        groups: NDArray[np.int64],
        masks: NDArray[np.uint8],
        stop: Deadline,
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Process jobs in launches of bounded duration.

        Parameters
        ----------
        group : DeviceDualAscent
            The agents.
        jobs : (k, JOB_FIELDS) int64
            The jobs; see ``bounder``.
        groups : (g + 1,) int64
            First job of each group of jobs.
        masks : (k, mask size) uint8
            In: values that each node may take. Out: values that remain.
        stop : Deadline
            No launch starts after it.

        Returns
        -------
        numbers : (2, k) int64
            Bounds and branching variables.
        first_values : (k, W) uint8
            Values of the first branch.
        """
        device, count = self.device, len(jobs)
        numbers = np.full((2, count), NO_VARIABLE, dtype=np.int64)
        first_values = np.zeros((count, self._width), dtype=np.uint8)
        numbers[0] = NOT_PROCESSED
        first, last, groups_per_launch = 0, len(groups) - 1, self._groups_per_launch
        while first < last and not (stop is not NO_DEADLINE and stop.over):
            start, end = time.perf_counter(), min(last, first + groups_per_launch)
            job_range = slice(int(groups[first]), int(groups[end]))
            host_masks = masks[job_range].reshape(-1)
            bounds, variables = (device.buffer(f"node {name}", count, _INT64) for name in ("bounds", "variables"))
            # the kernel writes those of nodes with a branching variable alone
            device_first_values = device.upload("node first values", first_values[job_range].reshape(-1))
            device_masks = device.upload("node masks", host_masks)
            blocks = min(end - first, self._blocks)
            workspaces = device.buffer("node workspaces", blocks * self._workspace_size, np.dtype(np.int32))
            marginals = device.buffer(
                "node marginals", blocks * (self._mask_size + self._mask_size // self._width), _INT64
            )
            group.launch(
                node_kernels.run_nodes, blocks,
                device.upload("node jobs", jobs[job_range].reshape(-1)),
                device.upload_shaped("node groups", groups[first : end + 1] - groups[first]),
                device.upload("node counter", np.zeros(1, dtype=np.int32)),
                workspaces, self._workspace_size, self._buffer, self._entry_size, self._entry_notes,
                bounds, variables, device_first_values, device_masks, self._mask_size, marginals,
            )  # fmt: skip
            size = job_range.stop - job_range.start
            bounds[:size].copy_to_host(numbers[0, job_range])
            variables[:size].copy_to_host(numbers[1, job_range])
            device_first_values[: size * self._width].copy_to_host(first_values[job_range].reshape(-1))
            device_masks[: host_masks.size].copy_to_host(host_masks)
            seconds = time.perf_counter() - start
            self.busy += seconds
            if seconds < MAX_CHECK_INTERVAL / 2:
                groups_per_launch *= 2
            first = end
        self._groups_per_launch = max(self._blocks, min(groups_per_launch, last))
        return numbers, first_values


class GpuDualBounder:
    """Stores nodes on the GPU and processes them there; implements ``Bounder``.

    Parameters
    ----------
    state : DualState
        A dual ascent that the GPU can take over, see ``dmcmc.inference.bounds.dual.cuda.device_ascent``.

    Attributes
    ----------
    part : BufferPart
        The buffer entries of this search.
    entries : int
        Number of entries of a node's mask: n * W.
    """

    def __init__(self, state: DualState) -> None:
        sharers = state.backend.processes_per_gpu
        buffer = DeviceNodeBuffer.with_free_part(place_on_device([state], sharers)[0].group, sharers)
        self.scale, self.allowed, self.work = state.layout.scale, allowed_values(state), DUAL_WORK
        self.state, self.runner, self.part = state, buffer, BufferPart(buffer)
        self.max_branches, self.capacity, self.batch_size = 2, buffer.capacity, buffer.batch_size
        self.entries = state.layout.n_hidden * state.width

    def stored_nodes(self, entries: NDArray[np.int64]) -> Iterator[tuple[int, "StoredNode"]]:
        """Yield what the buffer stores of nodes, with their indices in ``entries``, except of nodes without an entry.

        Parameters
        ----------
        entries : (k,) int64
            The nodes' buffer entries; negative without one.
        """
        hidden, width = self.state.layout.hidden, self.state.width
        n, m, t = hidden.domains.size, len(hidden.pairs), len(hidden.triangles)
        pairs_at, triplets_at = n * width, n * width + m * width * width
        higher_at, (size, _) = triplets_at + 3 * t * width * width // 2, _table_sizes(self.state.layout, width)
        for node in np.flatnonzero(entries >= 0).tolist():
            tables, notes = self.runner.read(int(self.part.place(entries[node : node + 1])[0]), size)
            potentials = DualPotentials(
                tables[:pairs_at].reshape(n, width), tables[pairs_at:triplets_at].reshape(m, width, width),
                cast(Any, tables[triplets_at:higher_at].view(np.int16).reshape(t, 3, width, width)), tables[higher_at:],
            )  # fmt: skip
            yield node, StoredNode(int(notes[0]), int(notes[2]), potentials)


class StoredNode(NamedTuple):
    """What the buffer stores of a node.

    Attributes
    ----------
    constant : int
        Utility of the row without hidden variables, in the agent's integer scale.
    bit_shift : int
        Left shift that restores the triangles' entries, in bits.
    potentials : DualPotentials
        The node's tables over the hidden variables; those of triangles are int16, with ``FORBIDDEN_INT16``.
    """

    constant: int
    bit_shift: int
    potentials: DualPotentials


def _table_sizes(layout: DualLayout, width: int) -> tuple[int, int]:
    """Return the number of int32 of a node's stored tables and of its working tables.

    Stored triplet entries take 16 bits, working ones 32. The working tables also hold one maximum per unary and
    pairwise table.
    """
    hidden, table_size = layout.hidden, width * width
    n, m, t, higher_order = hidden.domains.size, len(hidden.pairs), len(hidden.triangles), int(hidden.entry_start[-1])
    stored = n * width + m * table_size + 3 * t * table_size // 2 + higher_order
    return stored, n * width + (m + 3 * t) * table_size + higher_order + n + m


def _longest_first(jobs: NDArray[np.int64], groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return an order of the jobs by their groups' numbers of sweeps, largest first, and the new starts of the groups.

    Blocks take groups in this order, so that the longest ones do not start last.
    """
    job_counts, sweeps = np.diff(groups), np.add.reduceat(jobs[:, JOB_WORK], groups[:-1])
    order = np.argsort(-sweeps, kind="stable")
    new_starts = np.concatenate([[0], np.cumsum(job_counts[order])])
    return np.arange(len(jobs)) + np.repeat(groups[:-1][order] - new_starts[:-1], job_counts[order]), new_starts
