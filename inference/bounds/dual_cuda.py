"""Dual ascent of several agents on a GPU: their tables stay there, all graphs and all rows are worked on at once."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds import rows_cuda
from dmcmc.inference.bounds.dual import DualState
from dmcmc.inference.bounds.graph import Layout, Shares
from dmcmc.inference.bounds.quantise import NEVER
from dmcmc.inference.bounds.words import graph_words, triangle_levels
from dmcmc.inference.device import gpu_limits, shared_device

Ints = NDArray[np.int64]

_THREADS = 512  # of a block, at most
_SIMULATED = 16  # threads of a block under the simulator, which has a real one for each
_BLOCK = 1 << 10  # bytes of shared memory that a block takes beside its tables
_NO_SLICES = np.zeros(0, dtype=np.int64)


def takes(state: DualState) -> bool:
    """Return whether the GPU can work on a state: three of its tables fit shared memory, its numbers 32 bits."""
    width, layout = state.layout.shares.unary.shape[1], state.layout
    shared, _, threads = gpu_limits(rows_cuda.REGISTERS)
    return (
        state.enumerated
        and layout.n_hidden > 0
        and len(state.local.interface) <= rows_cuda.DIGITS
        and width <= _block(threads)
        and 4 * _least_room(layout, width) <= shared - _BLOCK
        and sum(part.size for part in layout.shares) + layout.whole.domains.size + len(layout.whole.pairs) < 1 << 31
    )


def _block(threads: int) -> int:
    return _SIMULATED if threads < _THREADS else _THREADS


def _least_room(layout: Layout, width: int) -> int:
    """Return the words of shared memory that a block needs: a triangle's tables, a pair's with messages."""
    three = 3 * width * (width + 1) if len(layout.whole.triangles) else 0
    degree = int(np.diff(layout.whole.incident_at).max(initial=0))
    return max(three, width * (2 + width + degree))


def _most_room(layout: Layout, width: int) -> int:
    """Return the words that a block could use: a level's triangles, or all pairs of a variable."""
    level = int(np.bincount(triangle_levels(layout.whole.triangles)).max(initial=0))
    degree = int(np.diff(layout.whole.incident_at).max(initial=0))
    return max(3 * level * width * (width + 1), width * (1 + degree * (width + 2)))


class DeviceDuals:
    """The states of some agents on the device.

    Parameters
    ----------
    states
        All of which the GPU :func:`takes`, with tables of the same width.
    """

    def __init__(self, states: Sequence[DualState]) -> None:
        self.device = shared_device()
        self._states = tuple(states)
        shared, processors, threads = gpu_limits(rows_cuda.REGISTERS)
        self._threads = _block(threads)
        words: list[NDArray[np.int32]] = []
        agents = np.zeros((len(states), rows_cuda.AGENT), dtype=np.int64)
        begin, base, slot, least, most = 0, 0, 0, 0, 0
        for k, state in enumerate(states):
            layout, width = state.layout, state.shares.unary.shape[1]
            whole, entries = graph_words(layout.whole, width, _NO_SLICES, begin)
            hidden, own = graph_words(layout.hidden, width, layout.slices, begin + whole.size)
            shape = np.array(state.local.interface_shape, dtype=np.int32)
            at = begin + whole.size + hidden.size
            agents[k] = begin, begin + whole.size, base, at, shape.size
            words += [whole, hidden, shape]
            begin, base, slot = at + shape.size, base + entries, max(slot, own)
            least = max(least, _least_room(layout, width))
            most = max(most, _most_room(layout, width))
        half = (shared // 2 - _BLOCK) // 4  # so that two blocks share a multiprocessor, where they fit
        self._room = max(least, min(most, half))
        fitting = shared // (4 * self._room + _BLOCK)
        self._blocks = processors * max(1, min(threads // self._threads, fitting))
        self._slot, self._agents = slot, agents
        self._octets = (0,) * (states[0].layout.shares.unary.shape[1] // 8)
        self.bytes = 4 * (base + begin)
        self._arena = self._keep(np.concatenate([self._tables(state) for state in states]))
        self._words = self._keep(np.concatenate(words))
        self._agents_there = self._keep(agents.reshape(-1))
        self._live = max(s.layout.n_hidden * s.shares.unary.shape[1] for s in states)

    def _keep(self, data: NDArray[Any]) -> Any:
        """Return device memory with ``data`` in it, for as long as this object lives."""
        there = self.device.lease(data.size, data.dtype, self)
        there[: data.size].copy_to_device(data)
        return there

    @staticmethod
    def _tables(state: DualState) -> NDArray[np.int32]:
        room = state.layout.whole.domains.size + len(state.layout.whole.pairs)
        return np.concatenate([*(part.reshape(-1) for part in state.shares), np.zeros(room, dtype=np.int32)])

    def shift(self, sweeps: Sequence[int]) -> None:
        """Ascend with the interface free: so many more sweeps of each state."""
        chosen = [k for k, count in enumerate(sweeps) if count > 0 and self._states[k].fits]
        if not chosen:
            return
        firsts = np.array([self._states[k].done for k in chosen], dtype=np.int64)
        lasts = firsts + np.array([sweeps[k] for k in chosen], dtype=np.int64)
        device = self.device
        done = device.buffer("dual done", len(chosen), np.dtype(np.int64))
        self._launch(
            rows_cuda.shift_graphs, len(chosen), self._words, self._agents_there, self._arena,
            device.upload("dual chosen", np.array(chosen, dtype=np.int64)), device.upload("dual firsts", firsts),
            device.upload("dual lasts", lasts), done,
        )  # fmt: skip
        made = np.empty(len(chosen), dtype=np.int64)
        done[: made.size].copy_to_host(made)
        for k, last, wanted in zip(chosen, made.tolist(), lasts.tolist(), strict=True):
            self._states[k].done, self._states[k].fits = last, last == wanted
            self._states[k].moved(partial(self._shares, k))

    def _shares(self, k: int) -> Shares:
        """Return a state's tables as they are on the device."""
        layout, base = self._states[k].layout, int(self._agents[k, rows_cuda.BASE])
        host = np.empty(sum(part.size for part in layout.shares), dtype=np.int32)
        if host.size:
            self._arena[base : base + host.size].copy_to_host(host)
        ends = np.cumsum([part.size for part in layout.shares])
        pieces = np.split(host, ends[:-1])
        return Shares(*(piece.reshape(part.shape) for piece, part in zip(pieces, layout.shares, strict=True)))

    def run(
        self, rows: Sequence[Ints], sweeps: int, limits: Sequence[Ints | None]
    ) -> list[NDArray[np.bool_]]:
        """Lower the bounds of some rows of each state.

        Parameters
        ----------
        rows
            Of each state.
        sweeps
            Of every row.
        limits
            Thresholds of each state's rows in its scale, or None.

        Returns
        -------
        list of (rows, hidden, W) bool
            The values that are left; no rows where there are no limits.
        """
        counts = [r.size for r in rows]
        jobs = np.empty((sum(counts), rows_cuda.JOB), dtype=np.int64)
        jobs[:, rows_cuda.STATE] = np.repeat(np.arange(len(counts)), counts)
        jobs[:, rows_cuda.ROW] = np.concatenate([*rows, _NO_SLICES])
        thresholds = [
            np.full(r.size, NEVER, dtype=np.int64) if limit is None else limit
            for r, limit in zip(rows, limits, strict=True)
        ]
        jobs[:, rows_cuda.LIMIT_AT] = np.concatenate([*thresholds, _NO_SLICES])
        found, live = self._run_jobs(jobs, sweeps, any(limit is not None for limit in limits))
        out, begin = [], 0
        for k, (state, own, limit) in enumerate(zip(self._states, rows, limits, strict=True)):
            part = found[begin : begin + own.size]
            part = np.where(part == rows_cuda.UNFIT, -NEVER, part)
            state.bounds[own] = np.minimum(state.bounds[own], part)
            h, width = state.layout.n_hidden, state.layout.shares.unary.shape[1]
            kept = live[begin : begin + own.size, : h * width] if limit is not None else live[:0, : h * width]
            out.append(kept.reshape(-1, h, width).astype(np.bool_))
            begin += counts[k]
        return out

    def _run_jobs(self, jobs: Ints, sweeps: int, pruned: bool) -> tuple[Ints, NDArray[np.uint8]]:
        device, number = self.device, len(jobs)
        found = np.empty(number, dtype=np.int64)
        live = np.zeros((number if pruned else 0, self._live), dtype=np.uint8)
        if not number:
            return found, live
        free = max(device.limit // 2 // (4 * self._slot), 1)
        blocks = min(number, self._blocks, free)
        work = device.buffer("dual work", blocks * self._slot, np.dtype(np.int32))
        bounds = device.buffer("dual bounds", number, np.dtype(np.int64))
        kept = device.buffer("dual live", max(1, live.size), np.dtype(np.uint8))
        self._launch(
            rows_cuda.run_rows, blocks, self._words, self._agents_there, self._arena,
            device.upload("dual jobs", jobs.reshape(-1)), work, self._slot, sweeps, bounds[:number], kept,
            self._live if pruned else 0,
        )  # fmt: skip
        bounds[:number].copy_to_host(found)
        if live.size:
            flat = live.reshape(-1)
            kept[: flat.size].copy_to_host(flat)
        return found, live

    def _launch(self, kernel: Any, blocks: int, *arguments: Any) -> None:
        arguments = (*arguments, self._room, self._octets)
        self.device.allow_shared(kernel, arguments, 4 * self._room)
        kernel[blocks, self._threads, 0, 4 * self._room](*arguments)
