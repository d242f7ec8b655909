"""Carry out a mini-bucket plan with moment matching on CPU and GPU together: large variables there, small ones here.

Shifts depend on what is live when they are made, so variables go in the plan's own order, whoever runs them, and
everything is what :func:`dmcmc.inference.minibuckets.moment_matching.eliminate_matched` makes: integers to the bit, floats but
for the order in which a bucket's tables are added up, which the margin allows for: it bounds the rounding of any order.
Tables lie where :mod:`dmcmc.inference.elimination.cuda.divide_work` places them; those that only the GPU needs stay
there. A variable with several mini-buckets takes two copies:

    A's messages  ──up──▶  max-marginals  ──down──▶  shifts (host)  ──up──▶  joins, bounds of their messages
                                            with the bounds of all messages since the last copy

One without shifts takes none: its bounds wait for the next copy down. The mini-buckets of a variable share their
launches. They are prepared twice, as shifts change the sums: that is little work, and adding shifts would be a launch.
"""

from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.elimination.cuda import descriptors as w
from dmcmc.inference.elimination.cuda.divide_work import Hybrid
from dmcmc.inference.elimination.cuda.eliminate import GpuElimination
from dmcmc.inference.elimination.cuda.join_kernels import GROUPS, LANES, PREPARERS, prepare
from dmcmc.inference.elimination.cuda.waves import Queue, Waves, describe_waves, run_waves
from dmcmc.inference.elimination.cuda.waves import load_kernels as load_joins
from dmcmc.inference.elimination.eliminate import flat_tables
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.minibuckets import moment_matching_kernels as max_marginals
from dmcmc.inference.minibuckets.cuda.moment_matching_kernels import add_marginals, bound_kernel, cut, marginal_kernel
from dmcmc.inference.minibuckets.moment_matching import Ledger, Matched, open_ledger
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.device import Device, shared_device
from dmcmc.inference.runtime.memory import ACCOUNT


def eliminate_matched_hybrid(
    flat: FlatTables,
    plan: Plan,
    hybrid: Hybrid,
    arithmetic: Arithmetic,
    room: int | float | None = None,
    device: Device | None = None,
    stop: Stop = NO_STOP,
) -> Matched:
    """Carry out a divided mini-bucket plan with moment matching.

    Parameters
    ----------
    flat
        Encoded tables: the inputs of the plan without those of its shifts.
    plan
        Made with ``shifts``; its order of variables is kept.
    hybrid
        From :func:`dmcmc.inference.elimination.cuda.divide_work.divide_work` of that plan; its ``plan`` numbers the
        result's tables.
    room
        As in :func:`dmcmc.inference.minibuckets.moment_matching.eliminate_matched`.
    stop
        When to give up.

    Raises
    ------
    OutOfTime
    """
    device = device or shared_device()
    program, lowest = hybrid.plan.program, arithmetic.dtype.type(arithmetic.lowest)
    ACCOUNT.claim(hybrid.host_entries * arithmetic.dtype.itemsize, "tables on the host")
    arena = np.empty(max(1, hybrid.host_entries), dtype=arithmetic.dtype)
    done = GpuElimination(hybrid.plan, arena, arithmetic, hybrid, device)
    done.device_arena.append(device.lease(hybrid.device_entries, arithmetic.dtype, done))
    ledger = open_ledger(done, flat_tables(flat, arithmetic), room, stop)
    there = DeviceSide(done, ledger, stop)
    for first, last in variables_in_order(plan, hybrid):
        stop.check()
        if hybrid.first <= first < hybrid.last:
            there.run(first, last)
        else:
            there.bring(first, last)
            bounds, state = ledger.bounds, ledger.state
            max_marginals.run_matched(program, arena, bounds, state, first, last, ledger.limit, lowest)
            there.note(first, last)
    there.finish()
    return ledger.close(done)


def variables_in_order(plan: Plan, hybrid: Hybrid) -> list[tuple[int, int]]:
    """Return ranges of the divided plan's buckets in the order of ``plan``: a variable of G each, or several others."""
    variable = hybrid.plan.program.variable
    starts = [b for b in range(variable.size) if b == 0 or variable[b] != variable[b - 1]]
    ends = [*starts[1:], variable.size]
    buckets = {int(variable[b]): (b, end) for b, end in zip(starts, ends, strict=True)}
    ranges: list[tuple[int, int]] = []
    for v in dict.fromkeys(plan.program.variable.tolist()):
        first, last = buckets[v]
        on_gpu = hybrid.first <= first < hybrid.last
        if ranges and ranges[-1][1] == first and not on_gpu and not hybrid.first <= ranges[-1][0] < hybrid.last:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
    return ranges


class _Turn(NamedTuple):
    """What the GPU does for one variable.

    Attributes
    ----------
    waves : Waves
        Joins of its mini-buckets.
    marginals : list of (number, table, blocks, groups, cells)
        Launches that find its max-marginals, see
        :func:`dmcmc.inference.minibuckets.cuda.moment_matching_kernels.add_marginals`.
    found : int
        Where its max-marginals are in ``found``.
    """

    waves: Waves
    marginals: list[tuple[int, int, int, int, float]]
    found: int


class DeviceSide:
    """The GPU's part of an elimination: what it has been given, what it has made, what of that the host knows.

    ``sent`` and ``made_here`` are places in the common address space: what lies between waits for the way up. Likewise
    ``fetched`` and ``made_there`` for the way down.
    """

    def __init__(self, done: GpuElimination, ledger: Ledger, stop: Stop = NO_STOP) -> None:
        self.queue = Queue(done.device, stop=stop)
        self.done, self.ledger, self.device = done, ledger, done.device
        self.hybrid, self.program, self.arena = done.hybrid, done.plan.program, done.device_arena[0]
        self.lowest = done.arithmetic.dtype.type(done.arithmetic.lowest)
        self.half = done.arithmetic.dtype.type(done.arithmetic.threshold)
        h, program = self.hybrid, self.program
        given = done.plan.tables - done.plan.buckets
        self.sent = h.device_begin
        self.made_here = int(program.at[given - 1] + done.plan.sizes[given - 1]) if given else h.device_begin
        self.fetched = self.made_there = h.upload_end
        self.waiting: list[tuple[int, int]] = []  # variables whose bounds the host does not know
        self._lay_out()
        self.found_there = self.device.upload("found", self.found)
        self.spans_there = self.device.upload("spans", self.spans)
        self.read = 0  # entries of ``found`` that were copied

    def _lay_out(self) -> None:
        """Describe variables to the GPU, and give every number that it finds its place, in their order in G."""
        h, program, dtype = self.hybrid, self.program, self.done.arithmetic.dtype
        first_message = self.done.plan.output(h.first)
        count = h.last - h.first
        spans = np.empty((count, w.SPAN), dtype=np.int64)
        spans[:, w.BEGIN] = program.at[first_message : first_message + count] - h.device_begin
        spans[:, w.ENTRIES] = self.done.plan.sizes[first_message : first_message + count]
        self.turns: dict[int, _Turn] = {}  # by first bucket
        parts = [np.zeros(0, dtype=dtype)]
        at, first = 0, h.first
        while first < h.last:
            last = first + 1
            while last < h.last and program.variable[last] == program.variable[first]:
                last += 1
            waves = describe_waves(program, first, last, h.device_begin, dtype, MAX_PLUS.operation)
            turn = _Turn(waves, [], at)
            if last - first > 1:
                x_size = int(program.domains[program.variable[first]])
                slots = range(at, at + 2 * x_size * (last - first), 2 * x_size)
                turn = _Turn(*add_marginals(waves, slots), at)
                parts.append(np.full(len(slots) * 2 * x_size, self.lowest, dtype=dtype))
                at += parts[-1].size
            self.turns[first] = turn
            spans[first - h.first : last - h.first, w.SLOT] = at + np.arange(last - first)
            parts.append(np.zeros(last - first, dtype=dtype))
            at += last - first
            first = last
        self.found, self.spans = np.concatenate(parts), spans.reshape(-1)
        words = [turn.waves.meta for turn in self.turns.values()]
        there = self.device.upload("meta", np.concatenate([np.zeros(0, dtype=np.int64), *words]))
        ends = np.cumsum([0, *(part.size for part in words)]).tolist()
        self.meta = {first: there[a:b] for first, a, b in zip(self.turns, ends, ends[1:], strict=False)}

    def run(self, first: int, last: int) -> None:
        """Match and eliminate one variable."""
        h, program, turn = self.hybrid, self.program, self.turns[first]
        self._send(first, last)
        if last - first > 1:
            self._raise_marginals(turn, self.meta[first])
            x_size = int(program.domains[program.variable[first]])
            self._read(turn.found + 2 * x_size * (last - first))
            halves = self.found[turn.found : self.read].reshape(last - first, 2, x_size)
            marginals = np.maximum(halves[:, 0] + halves[:, 1], self.lowest)
            state, limit = self.ledger.state, self.ledger.limit
            max_marginals.set_shifts(program, self.done.arena, state, first, last, marginals, limit, self.lowest)
            shift = int(program.at[program.inputs[program.input_start[first + 1] - 1]])  # they lie next to each other
            self._up(shift, shift + marginals.size)
        run_waves(self.queue, self.arena, turn.waves, self.meta[first], self.lowest, MAX_PLUS.operation)
        for b in range(first, last):
            output = self.done.plan.output(b)
            if h.upload_end <= program.at[output] < h.download_end:
                self.made_there = int(program.at[output] + self.done.plan.sizes[output])
        self._raise_bounds(first, last)
        self.waiting.append((first, last))

    def bring(self, first: int, last: int) -> None:
        """Let the host have what it needs to run buckets ``first`` to ``last``."""
        if self.waiting:
            self._read(int(self.spans[3 * (self.waiting[-1][1] - 1 - self.hybrid.first) + 2]) + 1)
        if self._needs(first, last, self.fetched, self.made_there):
            self._down()

    def note(self, first: int, last: int) -> None:
        """Remember that the host ran buckets ``first`` to ``last``: some of their messages are for the GPU."""
        for b in range(first, last):
            output = self.done.plan.output(b)
            if self.made_here <= self.program.at[output] < self.hybrid.upload_end:
                self.made_here = int(self.program.at[output] + self.done.plan.sizes[output])

    def finish(self) -> None:
        """Let the host have everything that is its."""
        self.bring(0, 0)
        self._down()

    def _needs(self, first: int, last: int, begin: int, end: int) -> bool:
        """Return whether an input of the buckets lies in a piece of the address space."""
        if begin == end:
            return False
        start = self.program.input_start
        at = self.program.at[self.program.inputs[start[first] : start[last]]]
        return bool(((at >= begin) & (at < end)).any())

    def _send(self, first: int, last: int) -> None:
        if self._needs(first, last, self.sent, self.made_here):
            self._up(self.sent, self.made_here)
            self.sent = self.made_here

    def _up(self, begin: int, end: int) -> None:
        there = self.hybrid.device_begin
        self.arena[begin - there : end - there].copy_to_device(self.done.arena[begin:end])

    def _down(self) -> None:
        there, begin, end = self.hybrid.device_begin, self.fetched, self.made_there
        if begin < end:
            self.arena[begin - there : end - there].copy_to_host(self.done.arena[begin:end])
        self.fetched = end

    def _read(self, end: int) -> None:
        """Copy what was found up to ``end``, and account for the variables whose bounds come with it."""
        self.found_there[self.read : end].copy_to_host(self.found[self.read : end])
        self.read = end
        bounds, h = self.ledger.bounds, self.hybrid
        for first, last in self.waiting:
            at = int(self.spans[w.SPAN * (first - h.first) + w.SLOT])
            output = self.done.plan.output(first)
            bounds[output : output + last - first] = self.found[at : at + last - first]
            max_marginals.account(self.program, bounds, self.ledger.state, first, last)
        self.waiting.clear()

    def _raise_marginals(self, turn: _Turn, meta: Any) -> None:
        """Queue the max-marginals of a variable's mini-buckets."""
        dtype = self.done.arithmetic.dtype
        sums = self.device.buffer("sums", turn.waves.sums, dtype)
        start = self.device.buffer("start", turn.waves.start, np.dtype(np.int64))
        for number, table, blocks, groups, cells in turn.marginals:
            self.queue.add(cells)
            if number < 0:
                prepare[blocks, PREPARERS](self.arena, meta, table, sums, start, self.lowest)
            else:
                marginal_kernel(dtype, number)[blocks, (LANES, groups)](
                    self.arena, meta, table, sums, start, self.found_there, self.lowest, self.half
                )

    def _raise_bounds(self, first: int, last: int) -> None:
        """Queue the bounds of a variable's messages."""
        begin = first - self.hybrid.first
        entries = int(self.spans[w.SPAN * begin + w.ENTRIES : w.SPAN * (last - self.hybrid.first) : w.SPAN].max())
        lines = -(-entries // LANES)
        groups = min(GROUPS, lines)
        bound_kernel(self.done.arithmetic.dtype)[(cut(lines, last - first, groups), last - first), (LANES, groups)](
            self.arena, self.spans_there, begin, self.found_there, self.lowest, self.half
        )


def load_kernels(dtype: np.dtype[Any]) -> None:
    """Compile the kernels of moment matching and its joins for a number type, or find them on disk."""
    load_joins(dtype, MAX_PLUS.operation)
    device, number = shared_device(), dtype.type(0)
    tables, longs = device.buffer("kernels", 1, dtype), device.buffer("kernels", 1, np.dtype(np.int64))
    for both in range(4):
        device.load(marginal_kernel(dtype, both), (tables, longs, 0, tables, longs, tables, number, number))
    device.load(bound_kernel(dtype), (tables, longs, 0, tables, number, number))
