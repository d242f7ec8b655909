"""Dual ascent of several agents on a GPU: their tables stay there, all graphs and all rows are worked on at once."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.cuda import row_kernels as rows_cuda
from dmcmc.inference.bounds.dual.cuda.descriptors import graph_words, largest_level, triangle_colours, triangle_levels
from dmcmc.inference.bounds.dual.cuda.smoothed_triangle_kernels import APART
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import CREW, LANES
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import Layout, Shares
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.runtime.deadline import NO_STOP, PIECE, Stop
from dmcmc.inference.runtime.device import gpu_limits, shared_device
from dmcmc.inference.runtime.types import Ints

_AT_ONCE = 8  # triangles of a colour that a block works on together: its warps
_BLOCKS = 2  # share a multiprocessor and its threads, where they fit
_BLOCK = 1 << 10  # bytes of shared memory that a block takes beside its tables
_NONE = np.zeros(0, dtype=np.int64)
_SHORT = 0.5 * PIECE  # seconds of a launch after which the next takes twice as many rows


def takes(state: DualState) -> bool:
    """Return whether the GPU can work on a state: three of its tables fit shared memory, its numbers 32 bits."""
    width, layout = state.width, state.layout
    shared, _, _ = gpu_limits(rows_cuda.REGISTERS)
    return (
        state.enumerated
        and layout.n_hidden > 0
        and len(state.local.interface) <= rows_cuda.DIGITS
        and 4 * _least_room(layout, width, warm=False) <= shared - _BLOCK
        and sum(part.size for part in layout.shares) + layout.whole.domains.size + len(layout.whole.pairs) < 1 << 31
    )


def load_kernels(width: int) -> None:
    """Compile the kernels for tables of so many columns, or find them on disk."""
    device = shared_device()
    ints, longs, bytes_ = (device.buffer("kernels", 1, np.dtype(t)) for t in (np.int32, np.int64, np.uint8))
    octets = (0,) * (width // 8)
    device.load(rows_cuda.shift_graphs, (ints, longs, ints, longs, longs, longs, longs, 0, octets))
    device.load(rows_cuda.run_rows, (ints, longs, ints, longs, ints, 0, 0, longs, bytes_, 0, 0, octets))


def _block(threads: int) -> int:
    """Return the threads of a block: the simulator has a real one for each, and only a few."""
    return CREW if CREW < LANES else threads


def _triangle_room(layout: Layout, width: int, warm: bool) -> int:
    """Return the words of shared memory of a triangle's tables, at a temperature with powers and tops."""
    if not len(layout.whole.triangles):
        return 0
    return 3 * width * (width + 1) + (2 * width * (width + APART + 1) if warm else 0)


def _least_room(layout: Layout, width: int, warm: bool) -> int:
    """Return the words of shared memory that a block needs: a triangle's tables, a pair's with messages."""
    degree = int(np.diff(layout.whole.incident_at).max(initial=0))
    return max(_triangle_room(layout, width, warm), width * (3 + width + degree))


def _most_room(layout: Layout, width: int, level: int, warm: bool) -> int:
    """Return the words that a block could use: a level's triangles, or all pairs of a variable."""
    degree = int(np.diff(layout.whole.incident_at).max(initial=0))
    return max(level * _triangle_room(layout, width, warm), width * (2 + degree * (width + 2)))


@dataclass(frozen=True)
class Place:
    """Where a state is on the device; :class:`dmcmc.inference.bounds.dual.dual_bound.Elsewhere`."""

    group: "DeviceDuals"
    number: int

    def shares(self) -> Shares:
        """Return the state's shares as they are there."""
        return self.group.shares(self.number)


def places(states: Sequence[DualState], sharers: int = 1) -> list[Place]:
    """Return where states are on the device; those that are not there yet come in groups of one width."""
    for width in sorted({s.width for s in states if not isinstance(s.elsewhere, Place)}):
        new = [s for s in states if not isinstance(s.elsewhere, Place) and s.width == width]
        group = DeviceDuals(new, sharers)
        for number, state in enumerate(new):
            state.elsewhere = Place(group, number)
    return [s.elsewhere for s in states if isinstance(s.elsewhere, Place)]


class DeviceDuals:
    """Graphs and tables of some agents on the device.

    Parameters
    ----------
    states
        All of which the GPU :func:`takes`, with tables of the same width. They are not kept: an agent is meant by its
        place among them.
    sharers
        Processes that use the same GPU.

    Attributes
    ----------
    layouts : list of Layout
        Of the agents.
    width : int
        Columns of a table.
    blocks : int
        That run at once.
    nodes : object
        Room for the nodes of searches in the agents' rows, None before there are any.
    """

    def __init__(self, states: Sequence[DualState], sharers: int = 1) -> None:
        self.nodes: object = None
        self.device, self._sharers = shared_device(), sharers
        self.layouts, self.width = [state.layout for state in states], states[0].width
        self._octets = (0,) * (self.width // 8)
        shared, processors, threads = gpu_limits(rows_cuda.REGISTERS)
        words: list[NDArray[np.int32]] = []
        self._agents = np.zeros((len(states), rows_cuda.AGENT), dtype=np.int64)
        begin, base, self._slot, least, most = 0, 0, 0, 0, 0
        for k, state in enumerate(states):
            layout = state.layout
            # Where there is no room for warm sweeps, there are none.
            warm = bool(state.warmth > 0) and 4 * _least_room(layout, self.width, warm=True) <= shared - _BLOCK
            levels = [
                triangle_colours(graph.triangles, _AT_ONCE) if warm else triangle_levels(graph.triangles)
                for graph in (layout.whole, layout.hidden)
            ]
            whole, entries = graph_words(layout.whole, self.width, _NONE, begin, levels[0])
            hidden, own = graph_words(layout.hidden, self.width, layout.slices, begin + whole.size, levels[1])
            shape = np.array(state.local.interface_shape, dtype=np.int32)
            at = begin + whole.size + hidden.size
            warmth = round(rows_cuda.WARM_UNIT * float(state.warmth)) if warm else 0
            self._agents[k] = begin, begin + whole.size, base, at, shape.size, warmth
            words += [whole, hidden, shape]
            least = max(least, _least_room(layout, self.width, warm))
            most = max(most, _most_room(layout, self.width, largest_level(whole, begin), warm))
            begin, base, self._slot = at + shape.size, base + entries, max(self._slot, own)
        self._room = max(least, min(most, (shared // _BLOCKS - _BLOCK) // 4))
        together = max(1, min(_BLOCKS, shared // (4 * self._room + _BLOCK)))
        self._threads, self.blocks = _block(threads // together), processors * together
        self._live = max(layout.n_hidden * self.width for layout in self.layouts)
        self._arena = self.device.lease(base, np.dtype(np.int32), self)
        for k, state in enumerate(states):
            at = int(self._agents[k, rows_cuda.BASE])
            tables = np.concatenate([part.reshape(-1) for part in state.shares])
            self._arena[at : at + tables.size].copy_to_device(tables)
        self._words = self._keep(np.concatenate(words))
        self._agents_there = self._keep(self._agents.reshape(-1))

    def _keep(self, data: NDArray[Any]) -> Any:
        """Return device memory with ``data`` in it, for as long as this object lives."""
        there = self.device.lease(data.size, data.dtype, self)
        there[: data.size].copy_to_device(data)
        return there

    def shift(self, places: Sequence[int], firsts: Sequence[int], lasts: Sequence[int]) -> list[int]:
        """Make sweeps ``firsts`` to ``lasts`` - 1 of some agents, interface free; return how many were made in all."""
        device, made = self.device, np.array(firsts, dtype=np.int64)
        if not len(places):
            return []
        done = device.buffer("dual done", made.size, np.dtype(np.int64))
        arguments = (
            device.upload(f"dual {name}", np.array(values, dtype=np.int64))
            for name, values in (("places", places), ("firsts", firsts), ("lasts", lasts))
        )
        self._launch(rows_cuda.shift_graphs, made.size, self._words, self._agents_there, self._arena, *arguments, done)
        done[: made.size].copy_to_host(made)
        return [int(x) for x in made]

    def shares(self, place: int) -> Shares:
        """Return an agent's tables as they are on the device."""
        parts, base = self.layouts[place].shares, int(self._agents[place, rows_cuda.BASE])
        host = np.empty(sum(part.size for part in parts), dtype=np.int32)
        if host.size:
            self._arena[base : base + host.size].copy_to_host(host)
        ends = np.cumsum([part.size for part in parts])
        pieces = np.split(host, ends[:-1])
        return Shares(*(piece.reshape(part.shape) for piece, part in zip(pieces, parts, strict=True)))

    def run(
        self,
        places: Sequence[int],
        rows: Sequence[Ints],
        sweeps: int,
        limits: Sequence[Ints | None],
        stop: Stop = NO_STOP,
    ) -> list[tuple[Ints, NDArray[np.bool_]]]:
        """Bound some rows of some agents.

        Parameters
        ----------
        rows
            Of each agent.
        sweeps
            Of every row.
        limits
            Thresholds of each agent's rows in its scale, or None.
        stop
            When to leave the other rows alone: nothing is known of them then.

        Returns
        -------
        list of ((rows,) int64, (rows, hidden, W) bool)
            Bounds in the agent's scale, −NEVER where there is none; the values that are left, no rows where there are
            no limits.
        """
        counts = [r.size for r in rows]
        jobs = np.full((sum(counts), rows_cuda.JOB), NEVER, dtype=np.int64)
        jobs[:, rows_cuda.STATE] = np.repeat(np.asarray(places, dtype=np.int64), counts)
        jobs[:, rows_cuda.ROW] = np.concatenate([*rows, _NONE])
        ends = np.cumsum([0, *counts])
        for limit, (first, last) in zip(limits, pairwise(ends.tolist()), strict=True):
            if limit is not None:
                jobs[first:last, rows_cuda.LIMIT_AT] = limit
        found, live = self._run_jobs(jobs, sweeps, any(limit is not None for limit in limits), stop)
        out = []
        for place, limit, (first, last) in zip(places, limits, pairwise(ends.tolist()), strict=True):
            hidden = self.layouts[place].n_hidden
            kept = live[first:last] if limit is not None else live[:0]
            out.append((found[first:last], kept[:, : hidden * self.width].reshape(-1, hidden, self.width)))
        return out

    def _run_jobs(self, jobs: Ints, sweeps: int, pruned: bool, stop: Stop) -> tuple[Ints, NDArray[np.bool_]]:
        """Bound rows, in launches of about a tenth of a second where the time matters."""
        device, number = self.device, len(jobs)
        found = np.full(number, rows_cuda.UNFIT, dtype=np.int64)
        live = np.zeros((number if pruned else 0, self._live), dtype=np.uint8)
        if not number:
            return found, live.astype(np.bool_)
        fitting = max(1, device.limit // (2 * self._sharers) // (4 * self._slot))
        blocks = min(number, self.blocks, fitting)
        work = device.buffer("dual work", blocks * self._slot, np.dtype(np.int32))
        bounds = device.buffer("dual bounds", number, np.dtype(np.int64))
        kept = device.buffer("dual live", max(1, live.size), np.dtype(np.uint8))
        first, many = 0, number if stop is NO_STOP else blocks
        while first < number and not (first and stop.over):
            last, start = min(number, first + many), time.perf_counter()
            self._launch(
                rows_cuda.run_rows, min(blocks, last - first), self._words, self._agents_there, self._arena,
                device.upload("dual jobs", jobs[first:last].reshape(-1)), work, self._slot, sweeps,
                bounds[: last - first], kept, self._live if pruned else 0,
            )  # fmt: skip
            bounds[: last - first].copy_to_host(found[first:last])
            if live.size:
                part = live[first:last].reshape(-1)
                kept[: part.size].copy_to_host(part)
            if time.perf_counter() - start < _SHORT:
                many *= 2
            first = last
        return np.where(found == rows_cuda.UNFIT, -NEVER, found), live.astype(np.bool_)

    def launch(self, kernel: Any, blocks: int, *arguments: Any) -> None:
        """Launch another kernel over the agents' tables: it is given where they are, and ``arguments``."""
        self._launch(kernel, blocks, self._words, self._agents_there, self._arena, *arguments)

    def _launch(self, kernel: Any, blocks: int, *arguments: Any) -> None:
        arguments = (*arguments, self._room, self._octets)
        self.device.allow_shared(kernel, arguments, 4 * self._room)
        kernel[blocks, self._threads, 0, 4 * self._room](*arguments)
