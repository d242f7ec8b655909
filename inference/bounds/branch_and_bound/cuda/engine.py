"""Nodes' tables on the device, a block for each node at which a wave branches; nodes of several agents in a launch."""

import time
from collections.abc import Sequence
from itertools import accumulate
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.cuda import node_kernels
from dmcmc.inference.bounds.branch_and_bound.engine import Engine
from dmcmc.inference.bounds.branch_and_bound.node_buffers import (
    JOB_AGENT,
    JOB_SOURCE,
    JOB_SWEEPS,
    JOB_TARGET,
    STUCK,
    UNDONE,
    Found,
    Wave,
)
from dmcmc.inference.bounds.dual.cuda.device_ascent import DeviceDuals, Place, places
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import Layout
from dmcmc.inference.runtime.deadline import NO_STOP, PIECE, Stop
from dmcmc.inference.runtime.device import shared_device

# Of the device's memory, or of what is left of it, for the nodes of all agents: without tables they take twice as long.
_SHARE = 3 / 4
_MOST = 64  # slots of an agent for each block that runs at once
_WAVE = 4  # nodes of a wave for each block that runs at once: what is done between two launches is then little
_SHORT = 0.5 * PIECE  # seconds of a launch after which the next has twice as many nodes
_LONG, _BYTE = np.dtype(np.int64), np.dtype(np.uint8)


def load_kernels(width: int) -> None:
    """Compile the kernel for tables of so many columns, or find it on disk."""
    device = shared_device()
    ints, longs, bytes_ = (device.buffer("kernels", 1, np.dtype(t)) for t in (np.int32, np.int64, np.uint8))
    words = (ints, longs, ints, longs, longs, ints, ints, 0, ints, 0, longs, longs, longs, bytes_, bytes_, 0, longs)
    device.load(node_kernels.run_nodes, (*words, 0, (0,) * (width // 8)))


class NodePool:
    """Slots for the nodes of agents that are on the device together, an equal part for each.

    Attributes
    ----------
    slots : int
        Of each agent.
    width : int
        At how many nodes a wave branches.
    busy : float
        Seconds in launches so far.
    """

    def __init__(self, group: DeviceDuals, sharers: int) -> None:
        self.device, self._sharers = shared_device(), sharers
        agents, self._blocks = len(group.layouts), group.blocks
        self._columns = group.width
        words = [_words(layout, group.width) for layout in group.layouts]
        self._slot, self._area = max(kept for kept, _ in words), max(area for _, area in words)
        self._mask = max(layout.n_hidden for layout in group.layouts) * group.width
        room = int(_SHARE * min(self.device.limit, self.device.unused())) // max(1, sharers)
        self.slots = min(room // (4 * self._slot) // agents, _MOST * group.blocks)
        self.width = _WAVE * group.blocks
        self._work = self.device.lease(agents * self.slots * self._slot, np.dtype(np.int32), self)
        self._notes = self.device.lease(agents * self.slots * node_kernels.NOTE, _LONG, self)
        self._taken, self._many, self.busy = 0, self._blocks, 0.0

    def take(self) -> int:
        """Return the first slot of an agent that has none yet."""
        self._taken += 1
        return (self._taken - 1) * self.slots

    def run(self, waves: Sequence[tuple[Engine, Wave]], stop: Stop) -> list[Found]:
        """Work on a wave of each engine."""
        engines = [cast(GpuEngine, engine) for engine, _ in waves]
        there = places([engine.state for engine in engines], self._sharers)
        found: list[Found | None] = [None] * len(waves)
        for group in {id(place.group): place.group for place in there}.values():
            own = [k for k, place in enumerate(there) if place.group is group]
            parts = [(engines[k], there[k], waves[k][1]) for k in own]
            for k, one in zip(own, self._run(group, parts, stop), strict=True):
                found[k] = one
        return [one for one in found if one is not None]

    def _run(self, group: DeviceDuals, parts: "Sequence[tuple[GpuEngine, Place, Wave]]", stop: Stop) -> list[Found]:
        """Work on waves of agents of a group, as if it were one."""
        jobs = np.concatenate([wave.jobs for _, _, wave in parts])
        ends = [0, *accumulate(len(wave.jobs) for _, _, wave in parts)]
        masks = np.zeros((len(jobs), self._mask), dtype=np.uint8)
        groups = [np.zeros(1, dtype=np.int64)]
        for (engine, place, wave), first, last in zip(parts, ends[:-1], ends[1:], strict=True):
            own = jobs[first:last]
            own[:, JOB_AGENT] = place.number
            own[:, JOB_TARGET] += engine.first
            own[own[:, JOB_SOURCE] >= 0, JOB_SOURCE] += engine.first
            masks[first:last, : engine.entries] = wave.masks.reshape(-1, engine.entries)
            groups.append(wave.groups[1:] + first)
        places, starts = _longest_first(jobs, np.concatenate(groups))
        theirs, back = masks[places], np.argsort(places)
        numbers, firsts = self._launch(group, jobs[places], starts, theirs, stop)
        numbers, firsts, masks = numbers[:, back], firsts[back], theirs[back]
        found = []
        for (engine, _, wave), first, last in zip(parts, ends[:-1], ends[1:], strict=True):
            live = masks[first:last, : engine.entries].reshape(wave.masks.shape)
            bounds, variables = numbers[:, first:last]
            found.append(Found(bounds, live.astype(np.bool_), variables, firsts[first:last].astype(np.bool_)))
        return found

    def _launch(
        self,
        group: DeviceDuals,
        jobs: NDArray[np.int64],
        groups: NDArray[np.int64],
        masks: NDArray[np.uint8],
        stop: Stop,
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Work on jobs, as many in a launch as take a moment; return bounds and variables (2, k), firsts (k, W)."""
        device, count = self.device, len(jobs)
        numbers, firsts = np.full((2, count), STUCK, dtype=np.int64), np.zeros((count, self._columns), dtype=np.uint8)
        numbers[0] = UNDONE
        first, last, many = 0, len(groups) - 1, self._many
        while first < last and not (stop is not NO_STOP and stop.over):
            start, end = time.perf_counter(), min(last, first + many)
            these = slice(int(groups[first]), int(groups[end]))
            own = masks[these].reshape(-1)
            bounds, variables = (device.buffer(f"node {name}", count, _LONG) for name in ("bounds", "variables"))
            best = device.buffer("node firsts", firsts.size, _BYTE)
            live = device.upload("node masks", own)
            blocks = min(end - first, self._blocks)
            areas = device.buffer("node areas", blocks * self._area, np.dtype(np.int32))
            room = device.buffer("node marginals", blocks * (self._mask + self._mask // self._columns), _LONG)
            group.launch(
                node_kernels.run_nodes, blocks,
                device.upload("node jobs", jobs[these].reshape(-1)),
                device.upload_shaped("node groups", groups[first : end + 1] - groups[first]),
                device.upload("node turn", np.zeros(1, dtype=np.int32)),
                areas, self._area, self._work, self._slot, self._notes, bounds, variables, best, live, self._mask, room,
            )  # fmt: skip
            size = these.stop - these.start
            bounds[:size].copy_to_host(numbers[0, these])
            variables[:size].copy_to_host(numbers[1, these])
            best[: size * self._columns].copy_to_host(firsts[these].reshape(-1))
            live[: own.size].copy_to_host(own)
            took = time.perf_counter() - start
            self.busy += took
            if took < _SHORT:
                many *= 2
            first = end
        self._many = max(self._blocks, min(many, last))
        return numbers, firsts


class GpuEngine:
    """Nodes on the GPU; an :class:`dmcmc.inference.bounds.branch_and_bound.engine.Engine`.

    Parameters
    ----------
    state
        One that the GPU takes, see :mod:`dmcmc.inference.bounds.dual.cuda.device_ascent`.

    Attributes
    ----------
    first : int
        Its first slot among those of its workers.
    entries : int
        Of a mask.
    """

    def __init__(self, state: DualState) -> None:
        sharers = state.backend.sharers
        group = places([state], sharers)[0].group
        if group.nodes is None:
            group.nodes = NodePool(group, sharers)
        pool = group.nodes
        assert isinstance(pool, NodePool)
        self.state, self.workers, self.first = state, pool, pool.take()
        self.slots, self.width = pool.slots, pool.width
        self.entries = state.layout.n_hidden * state.width


def _words(layout: Layout, width: int) -> tuple[int, int]:
    """Return the words of a node's tables as they are kept, and where they are worked on."""
    hidden, square = layout.hidden, width * width
    n, m, t, stars = hidden.domains.size, len(hidden.pairs), len(hidden.triangles), int(hidden.star_at[-1])
    kept = n * width + m * square + 3 * t * square // 2 + stars
    return kept, n * width + (m + 3 * t) * square + stars + n + m


def _longest_first(jobs: NDArray[np.int64], groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return jobs' places in the order of their groups' sweeps, and where groups begin then.

    Blocks take groups in turn: in this order each has as many long ones.
    """
    sizes, sweeps = np.diff(groups), np.add.reduceat(jobs[:, JOB_SWEEPS], groups[:-1])
    order = np.argsort(-sweeps, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes[order])])
    return np.arange(len(jobs)) + np.repeat(groups[:-1][order] - starts[:-1], sizes[order]), starts
