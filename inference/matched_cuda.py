"""Carry out a mini-bucket plan with moment matching on CPU and GPU together: large variables there, small ones here.

Shifts depend on what is live when they are made, so variables go in the plan's own order, whoever runs them, and
everything is what :func:`dmcmc.inference.moment_matching.eliminate_matched` makes: integers to the bit, floats but for
the order in which a bucket's tables are added up, which the margin allows for: it bounds the rounding of any order.
Tables lie where :mod:`dmcmc.inference.hybrid` places them; those that only the GPU needs stay there. A variable with
several mini-buckets takes two copies:

    A's messages  ──up──▶  max-marginals  ──down──▶  shifts (host)  ──up──▶  joins, bounds of their messages
                                            with the bounds of all messages since the last copy

One without shifts takes none: its bounds wait for the next copy down.
"""

import numpy as np

from dmcmc.inference import max_marginals
from dmcmc.inference.arithmetic import Arithmetic
from dmcmc.inference.device import Device, shared_device
from dmcmc.inference.elimination import flat_tables
from dmcmc.inference.flat import FlatTables
from dmcmc.inference.gpu_description import choose_low, describe
from dmcmc.inference.gpu_elimination import GpuElimination, join_rows
from dmcmc.inference.hybrid import Hybrid
from dmcmc.inference.join_cuda import GROUPS, LANES, prepare
from dmcmc.inference.max_marginals_cuda import TILE, bound_kernel, marginal_kernel
from dmcmc.inference.moment_matching import Ledger, Matched, open_ledger
from dmcmc.inference.plan import Plan
from dmcmc.inference.semirings import MAX_PLUS

_BLOCKS = 132 * 16  # of a launch, about, where there is work for so many
_STEPS = 8  # of a thread, at least, before another block is worth its maximum


def eliminate_matched_hybrid(
    flat: FlatTables,
    plan: Plan,
    hybrid: Hybrid,
    arithmetic: Arithmetic,
    room: int | float | None = None,
    device: Device | None = None,
) -> Matched:
    """Carry out a divided mini-bucket plan with moment matching.

    Parameters
    ----------
    flat
        Encoded tables: the inputs of the plan without those of its shifts.
    plan
        Made with ``shifts``; its order of variables is kept.
    hybrid
        From :func:`dmcmc.inference.hybrid.divide_work` of that plan; its ``plan`` numbers the result's tables.
    room
        As in :func:`dmcmc.inference.moment_matching.eliminate_matched`.
    """
    device = device or shared_device()
    program, lowest = hybrid.plan.program, arithmetic.dtype.type(arithmetic.lowest)
    arena = np.empty(max(1, hybrid.host_entries), dtype=arithmetic.dtype)
    done = GpuElimination(hybrid.plan, arena, arithmetic, hybrid, device)
    done.device_arena.append(device.lease(hybrid.device_entries, arithmetic.dtype, done))
    ledger = open_ledger(done, flat_tables(flat, arithmetic), room)
    there = _There(done, ledger)
    for first, last in variables_in_order(plan, hybrid):
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


class _There:
    """The GPU's part of an elimination: what it has been given, what it has made, what of that the host knows.

    ``sent`` and ``made_here`` are places in the common address space: what lies between waits for the way up. Likewise
    ``fetched`` and ``made_there`` for the way down.
    """

    def __init__(self, done: GpuElimination, ledger: Ledger) -> None:
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
        low = program.low.copy()
        for b in range(h.first, h.last):
            low[b] = choose_low(program, b)
        self.meta, lows, self.where = describe(program._replace(low=low), h.first, h.last, h.device_begin)
        self.meta_there, self.lows_there = self.device.upload("meta", self.meta), self.device.upload("lows", lows)
        self._lay_out()
        self.found_there = self.device.upload("found", self.found)
        self.spans_there = self.device.upload("spans", self.spans)
        self.read = 0  # entries of ``found`` that were copied

    def _lay_out(self) -> None:
        """Give every number that the GPU finds its place, in the order in which variables are eliminated."""
        h, program = self.hybrid, self.program
        first_message = h.first + self.done.plan.tables - self.done.plan.buckets
        count = h.last - h.first
        self.marginal_at = np.full(count, -1, dtype=np.int64)
        spans = np.empty((count, 3), dtype=np.int64)  # place, entries, slot of the bound
        spans[:, 0] = program.at[first_message : first_message + count] - h.device_begin
        spans[:, 1] = self.done.plan.sizes[first_message : first_message + count]
        parts = [np.zeros(0, dtype=self.done.arithmetic.dtype)]
        at, first = 0, 0
        while first < count:
            last = first + 1
            while last < count and program.variable[h.first + last] == program.variable[h.first + first]:
                last += 1
            if last - first > 1:
                x_size = int(program.domains[program.variable[h.first + first]])
                for b in range(first, last):
                    self.marginal_at[b] = at
                    starts = np.zeros((2, x_size), dtype=self.done.arithmetic.dtype)
                    starts[0] = self.lowest
                    if self.meta[self.where[b] + 7] == 0:  # two maxima are added
                        starts[1] = self.lowest
                    parts.append(starts.reshape(-1))
                    at += 2 * x_size
            spans[first:last, 2] = at + np.arange(last - first)
            parts.append(np.zeros(last - first, dtype=self.done.arithmetic.dtype))
            at += last - first
            first = last
        self.found = np.concatenate(parts)
        self.spans = spans.reshape(-1)

    def run(self, first: int, last: int) -> None:
        """Match and eliminate one variable."""
        h, program = self.hybrid, self.program
        self._send(first, last)
        if last - first > 1:
            for b in range(first, last):
                self._raise_marginals(b)
            x_size = int(program.domains[program.variable[first]])
            begin = int(self.marginal_at[first - h.first])
            self._read(begin + 2 * x_size * (last - first))
            halves = self.found[begin : self.read].reshape(last - first, 2, x_size)
            marginals = np.maximum(halves[:, 0] + halves[:, 1], self.lowest)
            state, limit = self.ledger.state, self.ledger.limit
            max_marginals.set_shifts(program, self.done.arena, state, first, last, marginals, limit, self.lowest)
            shift = int(program.at[program.inputs[program.input_start[first + 1] - 1]])  # they lie next to each other
            self._up(shift, shift + marginals.size)
        for b in range(first, last):
            at = int(self.where[b - h.first])
            message, rows = int(self.meta[at + 4]), int(self.meta[at + 3])
            join_rows(self.device, self.arena, self.meta, at, self.meta_there, self.lows_there, self.arena, message, 0,
                      rows, self.lowest, MAX_PLUS.operation)  # fmt: skip
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
            at = int(self.spans[3 * (first - h.first) + 2])
            output = self.done.plan.output(first)
            bounds[output : output + last - first] = self.found[at : at + last - first]
            max_marginals.account(self.program, bounds, self.ledger.state, first, last)
        self.waiting.clear()

    def _raise_marginals(self, b: int) -> None:
        """Queue the max-marginal of one mini-bucket."""
        at = int(self.where[b - self.hybrid.first])
        x_size, width, rows, both = (int(self.meta[at + i]) for i in (0, 2, 3, 7))
        dtype = self.done.arithmetic.dtype
        s = self.device.buffer("S", x_size * rows, dtype)
        columns = self.device.buffer("B", x_size * width, dtype)
        start = self.device.buffer("start", both * rows, np.dtype(np.int64))
        work = max(x_size * rows, x_size * width, both * rows)
        prepare[min(-(-work // 256), 4096), 256](
            self.arena, self.meta_there, self.lows_there, at, 0, rows, s, columns, start, self.lowest
        )
        across = 1 if both == 0 else -(-width // TILE)
        lines = rows if both > 0 else -(-max(rows, width) // LANES)  # of work, a group of threads each
        groups, pieces = _cut(lines, x_size * across)
        pieces *= across
        slot = int(self.marginal_at[b - self.hybrid.first])
        marginal_kernel(dtype, min(both, 3))[x_size * pieces, (LANES, groups)](
            self.arena, self.meta_there, self.lows_there, at, s, columns, start, rows, self.found_there, slot,
            pieces, across, self.lowest, self.half,
        )  # fmt: skip

    def _raise_bounds(self, first: int, last: int) -> None:
        """Queue the bounds of a variable's messages."""
        begin = first - self.hybrid.first
        entries = int(self.spans[3 * begin + 1 : 3 * (last - self.hybrid.first) : 3].max())
        groups, pieces = _cut(-(-entries // LANES), last - first)
        kernel = bound_kernel(self.done.arithmetic.dtype)
        kernel[(pieces, last - first), (LANES, groups)](
            self.arena, self.spans_there, begin, self.found_there, self.lowest, self.half
        )


def _cut(lines: int, blocks: int) -> tuple[int, int]:
    """Return the groups of a block, and into how many blocks each of ``blocks`` is cut, so that the GPU is busy."""
    groups = min(GROUPS, lines)
    return groups, max(1, min(lines // (groups * _STEPS), _BLOCKS // blocks))
