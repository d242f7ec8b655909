"""Nodes' tables on the device, a block for each node at which a wave branches."""

import numpy as np

from dmcmc.inference.bounds.branching.cuda import node_kernels
from dmcmc.inference.bounds.branching.pool import JOB, STUCK, UNDONE, Found, Wave
from dmcmc.inference.bounds.dual.cuda.device import places
from dmcmc.inference.bounds.dual.graph import Layout
from dmcmc.inference.bounds.dual.state import DualState
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.device import shared_device

_SHARE, _MOST = 1 / 4, 1 << 32  # of the device's free memory, and bytes, for the nodes of one agent
_LONG, _BYTE = np.dtype(np.int64), np.dtype(np.uint8)


def load_kernels(width: int) -> None:
    """Compile the kernel for tables of so many columns, or find it on disk."""
    device = shared_device()
    ints, longs, bytes_ = (device.buffer("kernels", 1, np.dtype(t)) for t in (np.int32, np.int64, np.uint8))
    words = (ints, longs, ints, 0, longs, longs, ints, 0, longs, longs, longs, longs, bytes_, longs)
    device.load(node_kernels.run_nodes, (*words, 0, (0,) * (width // 8)))


class GpuEngine:
    """Nodes on the GPU; an :class:`dmcmc.inference.bounds.branching.search.Engine`.

    Parameters
    ----------
    state
        One that the GPU takes, see :mod:`dmcmc.inference.bounds.dual.cuda.device`.
    parts
        Agents and processes that share the device's memory.
    """

    def __init__(self, state: DualState, parts: int) -> None:
        self.device, self._state, self._sharers = shared_device(), state, state.backend.sharers
        self._slot = _entries(state.layout, state.width)
        self.width = places([state], self._sharers)[0].group.blocks
        room = min(_MOST, int(_SHARE * self.device.limit) // max(1, parts))
        self.slots = min(room // (4 * self._slot), 64 * self.width)
        self._work = self.device.lease(self.slots * self._slot, np.dtype(np.int32), self)
        self._notes = self.device.lease(self.slots * node_kernels.NOTE, _LONG, self)

    def run(self, wave: Wave, stop: Stop) -> Found:
        """Work on a wave of nodes, in launches of one node a block."""
        state, device, count = self._state, self.device, len(wave.jobs)
        place = places([state], self._sharers)[0]
        masks = wave.masks.astype(np.uint8)
        result = np.full((3, count), STUCK, dtype=np.int64)
        result[0] = UNDONE
        size = state.layout.n_hidden * state.width
        blocks = min(len(wave.groups) - 1, place.group.blocks)
        room = device.buffer("node marginals", blocks * size, _LONG)
        first, last = 0, len(wave.groups) - 1
        while first < last and not (stop is not NO_STOP and stop.over):
            end = min(last, first + blocks)
            jobs = slice(int(wave.groups[first]), int(wave.groups[end]))
            many = jobs.stop - jobs.start
            found = [device.buffer(f"node {name}", count, _LONG) for name in ("bounds", "variables", "values")]
            left = device.upload("node masks", masks[jobs].reshape(-1))
            place.group.launch(
                node_kernels.run_nodes, end - first, place.number,
                device.upload("node jobs", wave.jobs[jobs].reshape(many * JOB)),
                device.upload_shaped("node groups", wave.groups[first : end + 1] - wave.groups[first]),
                self._work, self._slot, self._notes, *found, left, room,
            )  # fmt: skip
            for own, there in zip(result, found, strict=True):
                there[:many].copy_to_host(own[jobs])
            part = masks[jobs].reshape(-1)
            left[: part.size].copy_to_host(part)
            first = end
        return Found(result[0], masks.astype(np.bool_), result[1], result[2])


def _entries(layout: Layout, width: int) -> int:
    """Return the words of a node's tables, and of their maxima."""
    hidden, square = layout.hidden, width * width
    n, m, t = hidden.domains.size, len(hidden.pairs), len(hidden.triangles)
    return n * width + (m + 3 * t) * square + int(hidden.star_at[-1]) + n + m
