"""Carry out a plan on CPU and GPU together: small buckets here, large ones there, one copy each way."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmcmc.inference.arena import choose_values, place_inputs
from dmcmc.inference.arithmetic import Arithmetic, Table
from dmcmc.inference.device import Device, shared_device
from dmcmc.inference.elimination import Elimination, flat_tables, run_on_cpu
from dmcmc.inference.errors import ResourceError
from dmcmc.inference.flat import FlatTables
from dmcmc.inference.gpu_description import choose_low, describe
from dmcmc.inference.hybrid import Hybrid
from dmcmc.inference.join_cuda import GROUPS, LANES, choose_kernel, join_kernel, prepare
from dmcmc.inference.plan import Program
from dmcmc.inference.semirings import MAX_PLUS, Semiring
from dmcmc.inference.tables import Array

_LARGE = 1 << 22  # cells of a message that keep the GPU busy in large tiles
_MOST_ROWS = 1 << 32  # the kernels decode rows with 32-bit division
_BLOCKS = 132 * 8  # of a launch, at least, before a block takes several tiles


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
    flat = flat_tables(flat, arithmetic, semiring)
    done = GpuElimination(hybrid.plan, arena, arithmetic, hybrid, device, semiring=semiring)
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
    """Launch the buckets of G, two launches each."""
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
    if first_row + rows > _MOST_ROWS:
        raise ResourceError(
            f"a bucket's message has {rows:,} rows of {width}; the GPU takes {_MOST_ROWS:,}: use device: cpu"
        )
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
