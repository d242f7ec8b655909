"""Stream buckets that exceed the GPU's memory: join them in chunks, with copies overlapping the computation.

The message of a bucket is a table over its separator. A chunk fixes the first variables of the separator and takes a
range of values of the next one; these variables are called its prefix. Its part of the message is therefore contiguous,
and its part of every input is contiguous for each value of the eliminated variable. Two sets of device buffers
alternate: one is computed while the other is filled and emptied (GpuBE journal paper, Fig. 8). CPU cores take chunks
from the other end of the same list (CP 2015 paper, §3.2, case b; CUBE, §V-B).
"""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference import tuning
from dmcmc.inference.elimination.cuda.waves import LaunchQueue, Waves, describe_waves, run_waves
from dmcmc.inference.elimination.eliminate import Elimination, flat_tables, place_tables, run_on_cpu, run_rows
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import Device, shared_device
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.tuning import SMALL_STEP_CELLS

# The fixed values of the first variables of the prefix; the first and the end value of its last variable.
Chunk = tuple[tuple[int, ...], int, int]

_BUFFER_SETS = 2  # sets of device buffers: one is copied while the kernels read the other


class Streaming(NamedTuple):
    """Limits for streaming a plan.

    Attributes
    ----------
    limit : int
        Device memory in bytes.
    threshold : int
        Joined cells from which a bucket is streamed to the GPU.
    shares : bool
        Whether CPU cores take chunks too.
    overlaps : bool
        Whether one chunk is copied while another one is joined. Otherwise each step ends before the next one begins,
        and its time is measured, which shows what overlapping gains.
    """

    limit: int
    threshold: int = 1 << 24
    shares: bool = True
    overlaps: bool = True


class StreamedWork(NamedTuple):
    """The chunks of a streamed bucket, and the seconds of their steps.

    Attributes
    ----------
    gpu_chunks, cpu_chunks : int
        Number of chunks that the GPU and the CPU joined.
    seconds : dict
        Seconds of the steps ``upload``, ``join`` and ``download`` on the GPU, if they do not overlap; otherwise empty.
    """

    gpu_chunks: int
    cpu_chunks: int
    seconds: dict[str, float]


@dataclass(frozen=True)
class Chunking:
    """The division of a bucket into chunks.

    Attributes
    ----------
    fixed : int
        Number of leading separator variables whose values a chunk fixes.
    size : int
        Number of values of the next variable that a chunk takes.
    chunks : tuple of (tuple of int, int, int)
        For each chunk the fixed values, and the first and the end value of the next variable.
    entries : int
        Entries of one set of buffers: inputs and message.
    resident : int
        Entries of the inputs that all chunks share.
    """

    fixed: int
    size: int
    chunks: tuple[Chunk, ...]
    entries: int
    resident: int


def divide_into_chunks(plan: EliminationPlan, b: int, limit: int) -> Chunking:
    """Divide a bucket into chunks so that the shared inputs and both sets of buffers hold at most ``limit`` entries.

    As few leading separator variables as possible are fixed; the next variable is divided into ranges of values.

    Parameters
    ----------
    plan
        The plan.
    b
        The bucket.
    limit
        Entries of device memory.

    Raises
    ------
    ResourceError
        If not even the smallest chunks fit.
    """
    program = plan.program
    separator = plan.scope(plan.output(b))
    sizes = [int(program.domains[v]) for v in separator]
    scopes = [plan.scope(t) for t in plan.inputs(b)]
    for fixed in range(len(separator)):
        prefix = separator[: fixed + 1]
        resident = sum(prod(int(program.domains[v]) for v in s) for s in scopes if not set(s) & set(prefix))
        row_entries = prod(sizes[fixed + 1 :])
        entries_per_value = row_entries + sum(  # the message, and the inputs that vary with the prefix
            prod(int(program.domains[v]) for v in s if v not in prefix) for s in scopes if set(s) & set(prefix)
        )
        size = (limit - resident) // (_BUFFER_SETS * entries_per_value)
        if size >= 1:
            size = max(1, min(size, -(-sizes[fixed] // _BUFFER_SETS), tuning.MAX_CHUNK_ENTRIES // entries_per_value))
            heads = [tuple(int(i) for i in head) for head in np.ndindex(*sizes[:fixed])]
            ranges = [(a, min(a + size, sizes[fixed])) for a in range(0, sizes[fixed], size)]
            chunks = tuple((head, first, end) for head in heads for first, end in ranges)
            return Chunking(fixed, size, chunks, size * entries_per_value, resident)
    raise ResourceError(
        f"a bucket over {len(separator) + 1} variables does not fit {limit:,} entries of device memory in any chunks"
    )


class _ChunkDescription(NamedTuple):
    """The launches of a chunk, and the layout of its buffers.

    Attributes
    ----------
    waves : Waves
        The launches.
    meta : int64 device array
        Their descriptors.
    starts : dict
        Device offset of each input, by table number.
    out_at : int
        Device offset of the message.
    """

    waves: Waves
    meta: Any
    starts: dict[int, int]
    out_at: int


class _BucketStream:
    """A bucket that is processed in chunks on the device, with its buffers and descriptors.

    Attributes
    ----------
    chunking : Chunking
        The division into chunks.
    queues : list of LaunchQueue
        One queue per set of device buffers.
    separator, sizes
        Variables of the bucket's message, and their domain sizes.
    prefix : tuple of int
        The first variables of the separator, which a chunk fixes or takes a range of.
    x_size : int
        Domain size of the eliminated variable.
    sliced_inputs : list of int
        Input tables of which a chunk reads a part; all chunks share the other inputs.
    buffers : device array
        The shared inputs, then one part per set of buffers.
    resident_at : dict
        Device offset of each shared input, by table number.
    """

    def __init__(
        self, elimination: Elimination, b: int, chunking: Chunking, device: Device, lowest: Any, stop: Deadline
    ) -> None:
        plan, arena = elimination.plan, elimination.arena
        self.plan, self.b, self.arena, self.device, self.lowest = plan, b, arena, device, lowest
        self.chunking = chunking
        self.queues = [
            LaunchQueue(device, stream, str(buffer_set), stop) for buffer_set, stream in enumerate(device.streams)
        ]
        program = plan.program
        self.separator = plan.scope(plan.output(b))
        self.sizes = [int(program.domains[v]) for v in self.separator]
        self.prefix = self.separator[: chunking.fixed + 1]
        self.x_size = int(program.domains[program.variable[b]])
        self.sliced_inputs = [t for t in plan.inputs(b) if set(plan.scope(t)) & set(self.prefix)]
        self.buffers = device.buffer("chunks", chunking.resident + _BUFFER_SETS * chunking.entries, arena.dtype)
        self.resident_at: dict[int, int] = {}
        at = 0
        for t in plan.inputs(b):
            if t not in self.sliced_inputs:
                size = int(plan.sizes[t])
                first = int(program.at[t])
                for begin in range(0, size, tuning.MAX_CHUNK_ENTRIES):
                    stop.check()
                    end = min(begin + tuning.MAX_CHUNK_ENTRIES, size)
                    part = arena[first + begin : first + end]
                    self.buffers[at + begin : at + end].copy_to_device(part, stream=device.streams[0])
                    if stop is not NO_DEADLINE:
                        device.streams[0].synchronize()
                self.resident_at[t] = at
                at += size
        device.streams[0].synchronize()
        self._descriptions: dict[tuple[int, int], _ChunkDescription] = {}

    def _description(self, buffer_set: int, count: int, operation: int) -> "_ChunkDescription":
        """Return the description of a chunk of ``count`` values of the last prefix variable; cached per set of buffers.

        ``operation`` is the ⊕ of the semiring.
        """
        key = (buffer_set, count)
        if key not in self._descriptions:
            program = self.plan.program
            domains = program.domains.copy()
            domains[list(self.prefix[:-1])] = 1
            domains[self.prefix[-1]] = count
            at = program.at.copy()
            offset = self.chunking.resident + buffer_set * self.chunking.entries
            for t, resident in self.resident_at.items():
                at[t] = resident
            size = {t: prod(int(domains[v]) for v in self.plan.scope(t)) for t in self.sliced_inputs}
            starts = {}
            for t in sorted(self.sliced_inputs, key=lambda t: size[t] >= SMALL_STEP_CELLS):
                at[t] = starts[t] = offset
                offset += size[t]
            at[self.plan.output(self.b)] = offset
            cells = program.cells.copy()
            cells[self.b] = prod(int(domains[v]) for v in self.separator) * self.x_size
            chunk = program._replace(domains=domains, at=at, cells=cells)
            waves = describe_waves(chunk, self.b, self.b + 1, 0, self.arena.dtype, operation)
            meta = self.device.upload(f"meta{buffer_set}/{count}", waves.descriptors)
            self._descriptions[key] = _ChunkDescription(waves, meta, starts, offset)
        return self._descriptions[key]

    def run(self, chunk: Chunk, buffer_set: int, semiring: Semiring, seconds: dict[str, float] | None = None) -> None:
        """Queue one chunk on the stream of its buffers: upload its inputs, join, download its part of the message.

        Parameters
        ----------
        chunk : (tuple of int, int, int)
            Values of the fixed prefix variables; first and end value of the next variable.
        buffer_set : int
            The set of device buffers, which must be free.
        semiring
            The semiring.
        seconds
            Seconds by step, to which those of this chunk are added after waiting for each step; None to wait for none.
        """
        stream, count = self.device.streams[buffer_set], chunk[2] - chunk[1]
        waves, meta, starts, out_at = self._description(buffer_set, count, semiring.operation)
        message, entries = self.message(chunk)

        def join() -> None:
            run_waves(self.queues[buffer_set], self.buffers, waves, meta, self.lowest, semiring.operation)

        def download() -> None:
            part = self.arena[message : message + entries]
            self.buffers[out_at : out_at + entries].copy_to_host(part, stream=stream)

        steps: dict[str, Callable[[], None]] = {
            "upload": partial(self._upload, chunk, buffer_set, starts),
            "join": join,
            "download": download,
        }
        for name, step in steps.items():
            begun = time.perf_counter()
            step()
            if seconds is not None:
                stream.synchronize()
                seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begun

    def _upload(self, chunk: Chunk, buffer_set: int, starts: dict[int, int]) -> None:
        """Queue the copies of a chunk's inputs; ``starts`` has the device offset of each input, by table number."""
        fixed_values, first, end = chunk
        stream = self.device.streams[buffer_set]
        values = {v: (i, i + 1) for v, i in zip(self.prefix[:-1], fixed_values, strict=True)} | {
            self.prefix[-1]: (first, end)
        }
        small: list[NDArray[Any]] = []
        for t, start in starts.items():
            pieces = self._pieces(t, values)
            # gathered on the host and uploaded by one copy; they come first in the buffer
            if pieces.size < SMALL_STEP_CELLS:
                small.append(pieces.reshape(-1))
                continue
            for x in range(self.x_size):
                to = start + x * pieces.shape[1]
                self.buffers[to : to + pieces.shape[1]].copy_to_device(pieces[x], stream=stream)
        if small:
            begin = self.chunking.resident + buffer_set * self.chunking.entries
            entries = sum(part.size for part in small)
            staged = self.device.pinned(f"staged{buffer_set}", SMALL_STEP_CELLS * len(starts), self.arena.dtype)[
                :entries
            ]
            np.concatenate(small, out=staged)
            self.buffers[begin : begin + entries].copy_to_device(staged, stream=stream)

    def _pieces(self, t: int, values: dict[int, tuple[int, int]]) -> NDArray[Any]:
        """Return a chunk's part of an input, (x_size, entries), as a view of the arena.

        ``values`` holds the first and the end value of each variable of the prefix.
        """
        scope, domains = self.plan.scope(t), self.plan.program.domains
        fixed = [v for v in scope[1:] if v in values]  # these axes come first
        width = prod(int(domains[v]) for v in scope[1 + len(fixed) :])
        begin = 0
        for v in fixed:
            begin = begin * int(domains[v]) + values[v][0]
        count = prod(values[v][1] - values[v][0] for v in fixed)
        at, size = int(self.plan.program.at[t]), int(self.plan.sizes[t])
        table = self.arena[at : at + size].reshape(self.x_size, -1)
        return table[:, begin * width : (begin + count) * width]

    def message(self, chunk: Chunk) -> tuple[int, int]:
        """Return the arena offset of a chunk's part of the message on the host, and its number of entries.

        ``chunk`` is as in ``run``.
        """
        fixed_values, first, end = chunk
        at = 0
        for size, i in zip(self.sizes, (*fixed_values, first), strict=False):
            at = at * size + i
        row_entries = prod(self.sizes[len(fixed_values) + 1 :])
        return int(self.plan.program.at[self.plan.output(self.b)]) + at * row_entries, (end - first) * row_entries


def stream_bucket(
    elimination: Elimination,
    b: int,
    semiring: Semiring,
    threads: int,
    device: Device,
    streaming: Streaming,
    stop: Deadline = NO_DEADLINE,
) -> StreamedWork:
    """Join one bucket in chunks.

    Parameters
    ----------
    elimination
        The elimination; its arena holds all inputs. Page-locked memory lets copies and kernels overlap.
    b
        The bucket.
    semiring
        The semiring.
    threads
        Number of CPU threads.
    device
        The device.
    streaming
        The memory limit, and who works when.
    stop
        The deadline.

    Returns
    -------
    StreamedWork
        Chunks by processor, and the seconds of steps that were waited for.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    plan, lowest = elimination.plan, elimination.arithmetic.dtype.type(elimination.arithmetic.lowest)
    chunking = divide_into_chunks(plan, b, streaming.limit // elimination.arithmetic.dtype.itemsize)
    stream = _BucketStream(elimination, b, chunking, device, lowest, stop)
    waiting, seconds = deque(chunking.chunks), dict[str, float]()
    helper = None
    if streaming.shares and threads > 1:
        helper = _start_helper(waiting, stream, elimination, b, semiring, threads, stop)
    count = 0
    try:
        while True:
            try:
                chunk = waiting.popleft()
            except IndexError:
                break
            buffer_set = count % _BUFFER_SETS
            stop.check()
            device.streams[buffer_set].synchronize()  # its buffers are free again
            stream.run(chunk, buffer_set, semiring, None if streaming.overlaps else seconds)
            count += 1
        device.synchronize()
    except BaseException:
        waiting.clear()  # stop the CPU helper and wait for copies that are in progress
        if helper is not None:
            wait([helper])
        with suppress(Exception):
            device.synchronize()
        raise
    return StreamedWork(count, 0 if helper is None else helper.result(), seconds)


_HELPER_POOL = ThreadPoolExecutor(1, thread_name_prefix="dmcmc-chunks")


def _start_helper(
    waiting: deque[Any],
    stream: _BucketStream,
    elimination: Elimination,
    b: int,
    semiring: Semiring,
    threads: int,
    stop: Deadline,
) -> Future[int]:
    """Start a CPU thread that takes chunks from the end of the list; its result is the number of chunks joined.

    ``waiting`` is the list of chunks, which the GPU's thread takes from the front.
    """

    def join_chunks() -> int:
        """Join chunks until none is left."""
        start, joined = int(elimination.plan.program.at[elimination.plan.output(b)]), 0
        while True:
            try:
                chunk = waiting.pop()
            except IndexError:
                return joined
            first, entries = stream.message(chunk)
            run_rows(elimination, b, semiring, threads, (first - start, first - start + entries), stop)
            joined += 1

    return _HELPER_POOL.submit(join_chunks)


def eliminate_streamed(
    flat: FlatTables,
    plan: EliminationPlan,
    arithmetic: Arithmetic,
    threads: int,
    streaming: Streaming,
    semiring: Semiring = MAX_PLUS,
    device: Device | None = None,
    stop: Deadline = NO_DEADLINE,
) -> Elimination:
    """Run a plan whose tables lie on the host; large buckets are streamed to the GPU.

    Parameters
    ----------
    flat
        The encoded input tables.
    plan
        The plan.
    arithmetic
        The arithmetic of the tables.
    threads
        Number of CPU threads.
    streaming
        The memory limit and the threshold of streaming.
    semiring
        The semiring.
    device
        The device; the process's shared device if None.
    stop
        The deadline.

    Raises
    ------
    OutOfTime
        If the deadline passes, or if too little time is left to page-lock the arena.
    """
    device = device or shared_device()
    if stop.left < tuning.PINNING_SECONDS_PER_BYTE * plan.entries * arithmetic.dtype.itemsize:
        raise OutOfTime("out of time")
    arena = device.page_locked(plan.entries, arithmetic.dtype)
    flat = flat_tables(flat, arithmetic, semiring)
    done = Elimination(plan, arena, arithmetic, semiring=semiring)
    place_tables(plan, arena, flat, arithmetic.dtype.type(arithmetic.lowest), stop)
    next_bucket = 0
    for b in (*np.flatnonzero(plan.program.cells >= streaming.threshold).tolist(), plan.buckets):
        run_on_cpu(done, next_bucket, b, semiring, threads, stop)
        if b < plan.buckets:
            stream_bucket(done, b, semiring, threads, device, streaming, stop)
        next_bucket = b + 1
    return done
