"""Carry out a plan on CPU and GPU together: small buckets here, large ones there, one copy each way."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from dmcmc.inference.arithmetic import Arithmetic, Table
from dmcmc.inference.device import Device, shared_device
from dmcmc.inference.elimination import Elimination, run_on_cpu
from dmcmc.inference.flat import FlatTables
from dmcmc.inference.hybrid import Hybrid
from dmcmc.inference.join_cpu import choose_values, place_inputs, split_bucket
from dmcmc.inference.join_cuda import GROUPS, HEADER, LANES, choose_kernel, join_kernel, prepare
from dmcmc.inference.plan import Program
from dmcmc.inference.semirings import MAX_PLUS, Semiring
from dmcmc.inference.tables import Array

_WIDTHS = (256, 1 << 17)  # assignments of l that suit the kernel: a tile's, and what B may hold for each x
_LARGE = 1 << 22  # cells of a message that keep the GPU busy in large tiles
_BLOCKS = 132 * 8  # of a launch, at least, before a block takes several tiles
_BEST_WIDTH = 10.0  # log2 of the width that suits it best


@njit(cache=True, nogil=True)
def choose_low(program, b):
    """Choose how many trailing separator variables are l, for the GPU: few tables that vary with both h and l."""
    output = program.at.size - program.variable.size + b
    first, last = program.scope_start[output], program.scope_start[output + 1]
    best, best_cost = 0, np.inf
    width = 1.0
    rows = float(program.cells[b] // program.domains[program.variable[b]])
    for low in range(last - first + 1):
        if low > 0:
            width *= program.domains[program.scope[last - low]]
        if width > _WIDTHS[1] and best > 0:
            break
        both = 0
        for i in range(program.input_start[b], program.input_start[b + 1]):
            t = program.inputs[i]
            inside = 0
            position = last - 1
            for s in range(program.scope_start[t + 1] - 1, program.scope_start[t], -1):
                while program.scope[position] != program.scope[s]:
                    position -= 1
                if position >= last - low:
                    inside += 1
            if 0 < inside < program.scope_start[t + 1] - program.scope_start[t] - 1:
                both += 1
        narrow = max(0.0, np.log2(_WIDTHS[0]) - np.log2(width))
        few = max(0.0, 7.0 - np.log2(rows / width))
        cost = 4.0 * both + 2.0 * narrow + few + 0.5 * abs(np.log2(width) - _BEST_WIDTH)
        if cost < best_cost:
            best, best_cost = low, cost
    return best


@njit(cache=True, nogil=True)
def merge_axes(high, strides):
    """Take neighbouring variables of h together where every table steps through both with one stride."""
    k = high.size
    size, step = high.copy(), strides.copy()
    kept = 0
    for j in range(k):
        same = kept > 0
        for t in range(step.shape[0]):
            same = same and step[t, kept] == strides[t, 1 + j] * high[j]
        if same:
            size[kept - 1] *= high[j]
        else:
            kept += 1
            size[kept - 1] = high[j]
        for t in range(step.shape[0]):
            step[t, kept] = strides[t, 1 + j]
    return size[:kept], step[:, : 1 + kept]


@njit(cache=True, nogil=True)
def describe(program, first, last, device_begin):
    """Return the words and offsets of :mod:`dmcmc.inference.join_cuda` for some buckets, and where each one starts."""
    size, room = 0, 0
    for b in range(first, last):
        count = program.input_start[b + 1] - program.input_start[b]
        output = program.at.size - program.variable.size + b
        k = program.scope_start[output + 1] - program.scope_start[output]
        width = 1
        for s in range(program.scope_start[output + 1] - program.low[b], program.scope_start[output + 1]):
            width *= program.domains[program.scope[s]]
        size += HEADER + k + count * (3 + k)
        room += count * width
    meta = np.zeros(size, dtype=np.int64)
    lows = np.zeros(room, dtype=np.int32)
    where = np.zeros(last - first + 1, dtype=np.int64)
    at, low_at = 0, 0
    for b in range(first, last):
        where[b - first] = at
        high, width, x_size, level, is_row, table_at, strides, offsets, _ = split_bucket(program, b)
        high, strides = merge_axes(high, strides)
        k = high.size
        output = program.at.size - program.variable.size + b
        rows = 1
        for j in range(k):
            rows *= high[j]
        meta[at], meta[at + 1], meta[at + 2], meta[at + 3] = x_size, k, width, rows
        meta[at + 4] = program.at[output] - device_begin
        meta[at + HEADER : at + HEADER + k] = high
        record = at + HEADER + k
        for kind in range(3):
            for t in range(level.size):
                mine = 1 if level[t] == 0 else (2 if is_row[t] else 0)
                if mine != kind:
                    continue
                meta[at + 5 + kind] += 1
                meta[record] = table_at[t] - device_begin
                meta[record + 1] = strides[t, 0]
                meta[record + 2] = low_at
                meta[record + 3 : record + 3 + k] = strides[t, 1:]
                record += 3 + k
                if kind > 0:
                    for i in range(width):
                        lows[low_at + i] = np.int32(offsets[t, i])
                    low_at += width
        at = record
    where[last - first] = at
    return meta[:at], lows[:low_at], where


@dataclass(frozen=True)
class GpuElimination(Elimination):
    """An elimination whose group G was done on the GPU, and whose tables stay there as long as this object lives.

    Attributes
    ----------
    hybrid : Hybrid
    device : Device
    device_arena : list of one device array
        Set once, when the memory is leased.
    """

    hybrid: Hybrid
    device: Device
    device_arena: list[Any] = field(default_factory=list)

    def table(self, t: int) -> Table:
        """Return table ``t`` of the plan: a view, or a copy if it lies on the GPU."""
        at, size = int(self.plan.program.at[t]), int(self.plan.sizes[t])
        if at + size <= self.hybrid.host_entries:
            return super().table(t)
        values = np.empty(size, dtype=self.arithmetic.dtype)
        at -= self.hybrid.device_begin
        self.device_arena[0][at : at + size].copy_to_host(values)
        return Table(self.plan.scope(t), values.reshape(self.plan.shape(t)))

    def choose(self, values: "np.ndarray[Any, np.dtype[np.int64]]") -> None:
        """Set the maximising values; see :meth:`Elimination.choose`. One launch for all of G."""
        h, program = self.hybrid, self.plan.program
        lowest = self.arithmetic.dtype.type(self.arithmetic.lowest)
        choose_values(program, self.arena, values, lowest, h.last, program.variable.size)
        parts = [program.domains, program.scope_start, program.scope, program.at, program.variable]
        parts += [program.input_start, program.inputs]
        sizes = np.array([*(p.size for p in parts), -h.device_begin], dtype=np.int64)
        words = self.device.upload("words", np.concatenate([sizes, *parts]))
        on_device = self.device.upload("values", values)
        scores = self.device.buffer("scores", int(program.domains.max(initial=1)), self.arithmetic.dtype)
        choose_kernel[1, 64](self.device_arena[0], words, h.first, h.last, on_device, lowest, scores)
        on_device[: values.size].copy_to_host(values)
        choose_values(program, self.arena, values, lowest, 0, h.first)


def eliminate_hybrid(
    flat: FlatTables,
    hybrid: Hybrid,
    arithmetic: Arithmetic,
    threads: int = 1,
    semiring: Semiring = MAX_PLUS,
    device: Device | None = None,
) -> GpuElimination:
    """Carry out a divided plan.

    Parameters
    ----------
    flat
        Encoded tables, one for each input of the plan.
    hybrid
        From :func:`dmcmc.inference.hybrid.divide_work`.
    """
    device = device or shared_device()
    lowest = arithmetic.dtype.type(arithmetic.lowest)
    program = hybrid.plan.program
    arena = np.empty(max(1, hybrid.host_entries), dtype=arithmetic.dtype)
    done = GpuElimination(hybrid.plan, arena, arithmetic, hybrid, device)
    on_device = device.lease(hybrid.device_entries, arithmetic.dtype, done)
    done.device_arena.append(on_device)
    place_inputs(program, arena, *flat, lowest)
    run_on_cpu(done, 0, hybrid.first, semiring, threads)
    begin, up, down = hybrid.device_begin, hybrid.upload_end, hybrid.download_end
    on_device[: up - begin].copy_to_device(arena[begin:up])
    run_on_gpu(hybrid, program, on_device, arithmetic, semiring, device)
    if down > up:
        on_device[up - begin : down - begin].copy_to_host(arena[up:down])
    run_on_cpu(done, hybrid.last, hybrid.plan.buckets, semiring, threads)
    return done


def run_on_gpu(
    hybrid: Hybrid, program: Program, on_device: Any, arithmetic: Arithmetic, semiring: Semiring, device: Device
) -> None:
    """Launch the buckets of G, one launch each."""
    low = program.low.copy()
    for b in range(hybrid.first, hybrid.last):
        low[b] = choose_low(program, b)
    meta, lows, where = describe(program._replace(low=low), hybrid.first, hybrid.last, hybrid.device_begin)
    meta_there, lows_there = device.upload("meta", meta), device.upload("lows", lows)
    lowest = arithmetic.dtype.type(arithmetic.lowest)
    for at in where[:-1].tolist():
        message = int(meta[at + 4])
        join_rows(device, on_device, meta, at, meta_there, lows_there, on_device, message, 0, int(meta[at + 3]), lowest,
                  semiring.operation)  # fmt: skip


def join_rows(
    device: Device,
    arena: Any,
    meta: Array,
    at: int,
    meta_there: Any,
    lows_there: Any,
    out: Any,
    out_at: int,
    first_row: int,
    rows: int,
    lowest: Any,
    operation: int,
    stream: Any = 0,
    slot: str = "",
) -> None:
    """Join ``rows`` rows of one bucket from ``first_row`` on and write them to ``out`` from ``out_at`` on.

    ``at`` is where the bucket's description starts in ``meta``; joins under way at once need different slots.
    """
    x_size, width, both = int(meta[at]), int(meta[at + 2]), int(meta[at + 7])
    dtype = np.dtype(type(lowest))
    half = dtype.type(lowest // 2) if dtype.kind == "i" else lowest  # below it, sums are −∞
    s = device.buffer("S" + slot, x_size * rows, dtype)
    b = device.buffer("B" + slot, x_size * width, dtype)
    start = device.buffer("start" + slot, both * rows, np.dtype(np.int64))
    work = max(x_size * rows, x_size * width, both * rows)
    prepare[min(-(-work // 256), 4096), 256, stream](
        arena, meta_there, lows_there, at, first_row, rows, s, b, start, lowest
    )
    kernel = join_kernel(dtype, min(both, 3), operation, rows * width >= _LARGE)
    across, down = -(-width // kernel.tl), -(-rows // kernel.th)
    tiles = max(1, min(across, down * across // _BLOCKS))  # side by side in one block, if blocks are plenty
    kernel.launch[(down, -(-across // tiles)), (LANES, GROUPS), stream](
        arena, meta_there, lows_there, at, s, b, start, out, out_at, rows, tiles, lowest, half
    )
