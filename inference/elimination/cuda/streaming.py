"""Buckets larger than the GPU: worked off in chunks of their message, with copies under way while it computes.

A chunk fixes the first variables of the separator and takes a range of the next, so its part of the message is one
piece of memory, and its part of every input is one piece for each value of the eliminated variable. Two sets of device
buffers take turns: while one is computed, the other is filled and emptied (GpuBE journal paper, Fig. 8). Where the
inputs do not fit the device either, CPU cores take chunks from the other end of the same list (CP 2015 paper, §3.2,
case b; CUBE, §V-B).
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.copy_tables import place_tables
from dmcmc.inference.elimination.cuda.waves import Queue, Waves, describe_waves, run_waves
from dmcmc.inference.elimination.eliminate import Elimination, flat_tables, run_on_cpu, run_rows
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.device import Device, shared_device
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError

_SETS = 2  # of buffers
_SMALL = 1 << 18  # entries of a chunk's part of a table that are not worth a copy of their own
_CHUNK = 1 << 29  # entries of a chunk at most, and of a copy of what all chunks share: some hundredths of a second
_PINNING = 4e-10  # seconds to make a byte of host memory page-locked: nothing can stop that


class Streaming(NamedTuple):
    """How a plan is streamed.

    Attributes
    ----------
    limit : int
        Bytes of device memory.
    threshold : int
        Joined cells of a bucket from which it is worth the way.
    """

    limit: int
    threshold: int = 1 << 24


@dataclass(frozen=True)
class Chunking:
    """How a bucket is cut.

    Attributes
    ----------
    fixed : int
        Leading separator variables that a chunk fixes.
    size : int
        Values of the next one that a chunk takes.
    chunks : tuple of (tuple of int, int, int)
        For each chunk the fixed values, and the first and end value of the next variable.
    entries : int
        Entries that one set of buffers takes: inputs and message.
    resident : int
        Entries of inputs that all chunks share.
    """

    fixed: int
    size: int
    chunks: tuple[tuple[tuple[int, ...], int, int], ...]
    entries: int
    resident: int


def cut(plan: Plan, b: int, limit: int) -> Chunking:
    """Cut a bucket into chunks whose two sets of buffers hold at most ``limit`` entries together.

    Raises
    ------
    ResourceError
        If even a single row of chunks does not fit.
    """
    program = plan.program
    separator = plan.scope(plan.output(b))
    sizes = [int(program.domains[v]) for v in separator]
    scopes = [plan.scope(t) for t in plan.inputs(b)]
    for fixed in range(len(separator)):
        prefix = separator[: fixed + 1]
        resident = sum(prod(int(program.domains[v]) for v in s) for s in scopes if not set(s) & set(prefix))
        rest = prod(sizes[fixed + 1 :])
        one = rest + sum(  # message, and the inputs that vary with the prefix
            prod(int(program.domains[v]) for v in s if v not in prefix) for s in scopes if set(s) & set(prefix)
        )
        size = (limit - resident) // (_SETS * one)
        if size >= 1:
            size = max(1, min(size, -(-sizes[fixed] // _SETS), _CHUNK // one))
            heads = [tuple(int(i) for i in head) for head in np.ndindex(*sizes[:fixed])]
            ranges = [(a, min(a + size, sizes[fixed])) for a in range(0, sizes[fixed], size)]
            chunks = tuple((head, first, end) for head in heads for first, end in ranges)
            return Chunking(fixed, size, chunks, size * one, resident)
    raise ResourceError(
        f"a bucket over {len(separator) + 1} variables does not fit {limit:,} entries of device memory in any chunks"
    )


class _Description(NamedTuple):
    """A chunk's launches, their words on the device, and where its inputs and its message lie on the device."""

    waves: Waves
    meta: Any
    starts: dict[int, int]
    out_at: int


class _Stream:
    """A bucket being worked off on the device: its chunk buffers and descriptions."""

    def __init__(self, work: Elimination, b: int, chunking: Chunking, device: Device, lowest: Any, stop: Stop) -> None:
        plan, arena = work.plan, work.arena
        self.plan, self.b, self.arena, self.device, self.lowest = plan, b, arena, device, lowest
        self.chunking = chunking
        self.queues = [Queue(device, stream, str(slot), stop) for slot, stream in enumerate(device.streams)]
        program = plan.program
        self.separator = plan.scope(plan.output(b))
        self.sizes = [int(program.domains[v]) for v in self.separator]
        self.prefix = self.separator[: chunking.fixed + 1]
        self.x_size = int(program.domains[program.variable[b]])
        self.moving = [t for t in plan.inputs(b) if set(plan.scope(t)) & set(self.prefix)]
        self.room = device.buffer("chunks", chunking.resident + _SETS * chunking.entries, arena.dtype)
        self.resident_at: dict[int, int] = {}
        at = 0
        for t in plan.inputs(b):
            if t not in self.moving:
                size = int(plan.sizes[t])
                first = int(program.at[t])
                for begin in range(0, size, _CHUNK):
                    stop.check()
                    end = min(begin + _CHUNK, size)
                    part = arena[first + begin : first + end]
                    self.room[at + begin : at + end].copy_to_device(part, stream=device.streams[0])
                    if stop is not NO_STOP:
                        device.streams[0].synchronize()
                self.resident_at[t] = at
                at += size
        device.streams[0].synchronize()
        self._described: dict[tuple[int, int], _Description] = {}

    def _description(self, slot: int, count: int, operation: int) -> "_Description":
        """Return the words of a chunk of ``count`` values in a set of buffers, and where its inputs and message lie."""
        key = (slot, count)
        if key not in self._described:
            program = self.plan.program
            domains = program.domains.copy()
            domains[list(self.prefix[:-1])] = 1
            domains[self.prefix[-1]] = count
            at = program.at.copy()
            place = self.chunking.resident + slot * self.chunking.entries
            for t, resident in self.resident_at.items():
                at[t] = resident
            size = {t: prod(int(domains[v]) for v in self.plan.scope(t)) for t in self.moving}
            starts = {}
            for t in sorted(self.moving, key=lambda t: size[t] >= _SMALL):
                at[t] = starts[t] = place
                place += size[t]
            at[self.plan.output(self.b)] = place
            cells = program.cells.copy()
            cells[self.b] = prod(int(domains[v]) for v in self.separator) * self.x_size
            chunk = program._replace(domains=domains, at=at, cells=cells)
            waves = describe_waves(chunk, self.b, self.b + 1, 0, self.arena.dtype, operation)
            meta = self.device.upload(f"meta{slot}/{count}", waves.meta)
            self._described[key] = _Description(waves, meta, starts, place)
        return self._described[key]

    def run(self, chunk: tuple[tuple[int, ...], int, int], slot: int, semiring: Semiring) -> None:
        """Queue one chunk: its inputs up, the join, its message down."""
        head, first, end = chunk
        stream = self.device.streams[slot]
        count = end - first
        waves, meta, starts, out_at = self._description(slot, count, semiring.operation)
        values = {v: (i, i + 1) for v, i in zip(self.prefix[:-1], head, strict=True)} | {self.prefix[-1]: (first, end)}
        small: list[NDArray[Any]] = []
        for t, start in starts.items():
            pieces = self._pieces(t, values)
            if pieces.size < _SMALL:  # gathered on the host, one copy for all of them: they come first
                small.append(pieces.reshape(-1))
                continue
            for x in range(self.x_size):
                to = start + x * pieces.shape[1]
                self.room[to : to + pieces.shape[1]].copy_to_device(pieces[x], stream=stream)
        if small:
            begin = self.chunking.resident + slot * self.chunking.entries
            entries = sum(part.size for part in small)
            staged = self.device.pinned(f"staged{slot}", _SMALL * len(starts), self.arena.dtype)[:entries]
            np.concatenate(small, out=staged)
            self.room[begin : begin + entries].copy_to_device(staged, stream=stream)
        run_waves(self.queues[slot], self.room, waves, meta, self.lowest, semiring.operation)
        message, entries = self.message(chunk)
        self.room[out_at : out_at + entries].copy_to_host(self.arena[message : message + entries], stream=stream)

    def _pieces(self, t: int, values: dict[int, tuple[int, int]]) -> NDArray[Any]:
        """Return a chunk's part of an input, (domain of x, entries): a view of the arena."""
        scope, domains = self.plan.scope(t), self.plan.program.domains
        fixed = [v for v in scope[1:] if v in values]  # they lead
        width = prod(int(domains[v]) for v in scope[1 + len(fixed) :])
        begin = 0
        for v in fixed:
            begin = begin * int(domains[v]) + values[v][0]
        count = prod(values[v][1] - values[v][0] for v in fixed)
        at, size = int(self.plan.program.at[t]), int(self.plan.sizes[t])
        table = self.arena[at : at + size].reshape(self.x_size, -1)
        return table[:, begin * width : (begin + count) * width]

    def message(self, chunk: tuple[tuple[int, ...], int, int]) -> tuple[int, int]:
        """Return where a chunk's part of the message starts in the host's arena, and its entries."""
        head, first, end = chunk
        at = 0
        for size, i in zip(self.sizes, (*head, first), strict=False):
            at = at * size + i
        rest = prod(self.sizes[len(head) + 1 :])
        return int(self.plan.program.at[self.plan.output(self.b)]) + at * rest, (end - first) * rest


def stream_bucket(
    work: Elimination,
    b: int,
    semiring: Semiring,
    threads: int,
    device: Device,
    limit: int,
    share: bool = True,
    stop: Stop = NO_STOP,
) -> dict[str, int]:
    """Work off one bucket in chunks; returns how many the GPU and the CPU did.

    Parameters
    ----------
    work
        Its arena holds all inputs; page-locked memory lets copies and kernels overlap.
    limit
        Bytes of device memory.
    share
        Whether CPU cores take chunks too.
    stop
        When to give up.

    Raises
    ------
    OutOfTime
    """
    plan, lowest = work.plan, work.arithmetic.dtype.type(work.arithmetic.lowest)
    chunking = cut(plan, b, limit // work.arithmetic.dtype.itemsize)
    stream = _Stream(work, b, chunking, device, lowest, stop)
    waiting = deque(chunking.chunks)
    done = {"gpu": 0, "cpu": 0}
    helper = _helper(waiting, stream, work, b, semiring, threads, done, stop) if share and threads > 1 else None
    turn = 0
    try:
        while True:
            try:
                chunk = waiting.popleft()
            except IndexError:
                break
            slot = turn % _SETS
            stop.check()
            device.streams[slot].synchronize()  # its buffers are free again
            stream.run(chunk, slot, semiring)
            done["gpu"] += 1
            turn += 1
        device.synchronize()
    except BaseException:
        waiting.clear()  # nobody works for this elimination any more: not the helper, not the copies under way
        if helper is not None:
            wait([helper])
        with suppress(Exception):
            device.synchronize()
        raise
    if helper is not None:
        helper.result()
    return done


_AT_ONCE = ThreadPoolExecutor(1, thread_name_prefix="dmcmc-chunks")


def _helper(
    waiting: deque[Any],
    stream: _Stream,
    work: Elimination,
    b: int,
    semiring: Semiring,
    threads: int,
    done: dict[str, int],
    stop: Stop,
) -> Future[None]:
    """Start taking chunks from the end of the list on the CPU."""

    def take() -> None:
        start = int(work.plan.program.at[work.plan.output(b)])
        while True:
            try:
                chunk = waiting.pop()
            except IndexError:
                return
            first, entries = stream.message(chunk)
            run_rows(work, b, semiring, threads, (first - start, first - start + entries), stop)
            done["cpu"] += 1

    return _AT_ONCE.submit(take)


def eliminate_streamed(
    flat: FlatTables,
    plan: Plan,
    arithmetic: Arithmetic,
    threads: int,
    streaming: Streaming,
    semiring: Semiring = MAX_PLUS,
    device: Device | None = None,
    stop: Stop = NO_STOP,
) -> Elimination:
    """Carry out a plan whose tables lie on the host; large buckets are streamed to the GPU.

    Raises
    ------
    OutOfTime
        Also where there is no time to make the memory ready.
    """
    device = device or shared_device()
    if stop.left < _PINNING * plan.entries * arithmetic.dtype.itemsize:
        raise OutOfTime("out of time")
    arena = device.page_locked(plan.entries, arithmetic.dtype)
    flat = flat_tables(flat, arithmetic, semiring)
    done = Elimination(plan, arena, arithmetic, semiring=semiring)
    place_tables(plan, arena, flat, arithmetic.dtype.type(arithmetic.lowest), stop)
    ready = 0
    for b in (*np.flatnonzero(plan.program.cells >= streaming.threshold).tolist(), plan.buckets):
        run_on_cpu(done, ready, b, semiring, threads, stop)
        if b < plan.buckets:
            stream_bucket(done, b, semiring, threads, device, streaming.limit, stop=stop)
        ready = b + 1
    return done
