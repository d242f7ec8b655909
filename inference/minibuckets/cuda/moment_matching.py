"""Run a mini-bucket plan with moment matching on CPU and GPU together: large variables on the GPU, small on the CPU.

Before the mini-buckets of a variable are eliminated, cost shifts equalise their max-marginals (the largest sum of each
mini-bucket per value of the variable). The magnitude of a table is its largest finite |entry|; the total magnitude is
the sum over all tables that are not joined yet. Shifts that would raise it above a limit are omitted.

Shifts depend on the total magnitude at the time they are made. Variables are therefore processed in the plan's order,
wherever they run, and the results equal those of :func:`dmcmc.inference.minibuckets.moment_matching.eliminate_matched`:
integers bit by bit, floats except for the order in which a bucket's tables are added. The margin bounds the rounding of
any order.

Tables lie where :mod:`dmcmc.inference.elimination.cuda.eliminate` places them; those that only the GPU reads stay
there. It divides the buckets into three groups: A runs on the CPU and needs no result of the GPU, G runs on the GPU,
C runs on the CPU and needs results of G. A variable with several mini-buckets takes two uploads and one download::

    A's messages  ──up──▶  max-marginals  ──down──▶  shifts (host)  ──up──▶  joins, magnitudes of their messages
                                            with the magnitudes of all messages since the last download

A variable without shifts takes no copy: its magnitudes wait for the next download. The mini-buckets of a variable share
their launches. They are prepared twice because shifts change the sums; this is little work, and adding the shifts would
take a launch too.
"""

from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.elimination.cuda.eliminate import GpuElimination, HybridPlan
from dmcmc.inference.elimination.cuda.join_kernels import (
    BEGIN,
    ENTRIES,
    GROUPS,
    LANES,
    PREPARE_THREADS,
    RESULT,
    SPAN,
    prepare,
)
from dmcmc.inference.elimination.cuda.waves import LaunchQueue, Waves, describe_waves, run_waves
from dmcmc.inference.elimination.cuda.waves import load_kernels as load_joins
from dmcmc.inference.elimination.eliminate import flat_tables
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.minibuckets import moment_matching_kernels as max_marginals
from dmcmc.inference.minibuckets.cuda.moment_matching_kernels import (
    add_marginals,
    magnitude_kernel,
    marginal_kernel,
    split_blocks,
)
from dmcmc.inference.minibuckets.moment_matching import MagnitudeTracker, MatchedElimination, start_tracking
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import Device, shared_device
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT


def eliminate_matched_hybrid(
    flat: FlatTables,
    plan: EliminationPlan,
    hybrid: HybridPlan,
    arithmetic: Arithmetic,
    magnitude_limit: int | float | None = None,
    device: Device | None = None,
    stop: Deadline = NO_DEADLINE,
) -> MatchedElimination:
    """Run a mini-bucket plan with moment matching that is divided between CPU and GPU.

    Parameters
    ----------
    flat
        Encoded tables: the inputs of the plan without its cost-shift tables.
    plan
        A plan made with ``shifts``; its order of variables is preserved.
    hybrid
        From :func:`dmcmc.inference.elimination.cuda.eliminate.divide_work` of that plan; its ``plan`` numbers the
        tables of the result.
    arithmetic
        The arithmetic of the tables.
    magnitude_limit
        As in :func:`dmcmc.inference.minibuckets.moment_matching.eliminate_matched`.
    device
        The device; the process's shared device if None.
    stop
        The deadline.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    device = device or shared_device()
    program, lowest = hybrid.plan.program, arithmetic.dtype.type(arithmetic.lowest)
    MEMORY_ACCOUNT.claim(hybrid.host_entries * arithmetic.dtype.itemsize, "tables on the host")
    arena = np.empty(max(1, hybrid.host_entries), dtype=arithmetic.dtype)
    done = GpuElimination(hybrid.plan, arena, arithmetic, hybrid, device)
    done.device_arena.append(device.lease(hybrid.device_entries, arithmetic.dtype, done))
    tracker = start_tracking(done, flat_tables(flat, arithmetic), magnitude_limit, stop)
    gpu = GpuMatching(done, tracker, stop)
    for first, last in variables_in_order(plan, hybrid):
        stop.check()
        if hybrid.first <= first < hybrid.last:
            gpu.run(first, last)
        else:
            gpu.fetch(first, last)
            magnitudes, state = tracker.magnitudes, tracker.state
            max_marginals.run_matched(program, arena, magnitudes, state, first, last, tracker.limit, lowest)
            gpu.record_host_run(first, last)
    gpu.finish()
    return tracker.result(done)


def variables_in_order(plan: EliminationPlan, hybrid: HybridPlan) -> list[tuple[int, int]]:
    """Return ranges of the hybrid plan's buckets in the order of ``plan``.

    A range is a single variable of group G (on the GPU), or several consecutive variables on the CPU.
    """
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


class _VariableLaunches(NamedTuple):
    """The launches of one variable.

    Attributes
    ----------
    waves : Waves
        The joins of its mini-buckets.
    marginals : list of (number, table, blocks, groups, cells)
        The launches of its max-marginals: kernel (−1: ``prepare``, otherwise the argument of ``marginal_kernel``),
        position of the launch's table, number of blocks, groups of threads per block, joined cells. Empty for a single
        mini-bucket.
    result_at : int
        Position of its max-marginals in ``results``.
    """

    waves: Waves
    marginals: list[tuple[int, int, int, int, float]]
    result_at: int


class GpuMatching:
    """The GPU's part of a matched elimination, and which messages host and device have exchanged.

    The constructor uploads the descriptors. The caller then processes all variables in order: ``run`` for a variable on
    the GPU; for the others ``fetch``, its own work on the host, and ``record_host_run``; ``finish`` at the end. ``run``
    leaves the magnitudes of its messages on the device; the next ``fetch``, or the next ``run`` that needs shifts,
    downloads them.

    The four attributes below that end in ``_end`` are offsets in the common address space of ``divide_work``.

    Attributes
    ----------
    uploaded_end, host_end : int
        Entries between them were made by the host and are not uploaded yet.
    downloaded_end, device_end : int
        Entries between them were made by the device and are not downloaded yet.
    waiting : list of (int, int)
        Bucket ranges of the variables whose messages' magnitudes are not downloaded yet.
    launches : dict of int to _VariableLaunches
        The launches of each variable on the GPU, by its first bucket.
    meta : dict of int to int64 device array
        The descriptors of these launches, by the same key.
    results : (entries,) ndarray
        Host copy of the numbers that the kernels return: max-marginals and magnitudes, in the order of the buckets.
    device_results : (entries,) device array
        The same numbers on the device.
    spans : (3 · buckets on the GPU,) int64
        Offset in the device's arena, entries and position in ``results`` of each message (``BEGIN``, ``ENTRIES``,
        ``RESULT``); ``device_spans`` is its copy on the device.
    n_downloaded : int
        Number of entries of ``results`` that were downloaded.
    lowest, half
        The −∞ of the arithmetic, and the bound below which a sum means −∞.
    """

    def __init__(self, done: GpuElimination, tracker: MagnitudeTracker, stop: Deadline = NO_DEADLINE) -> None:
        self.queue = LaunchQueue(done.device, stop=stop)
        self.done, self.tracker, self.device = done, tracker, done.device
        self.hybrid, self.program, self.arena = done.hybrid, done.plan.program, done.device_arena[0]
        self.lowest = done.arithmetic.dtype.type(done.arithmetic.lowest)
        self.half = done.arithmetic.dtype.type(done.arithmetic.forbidden_below)
        h, program = self.hybrid, self.program
        given = done.plan.tables - done.plan.buckets
        self.uploaded_end = h.device_begin
        self.host_end = int(program.at[given - 1] + done.plan.sizes[given - 1]) if given else h.device_begin
        self.downloaded_end = self.device_end = h.upload_end
        self.waiting: list[tuple[int, int]] = []  # variables whose magnitudes are not downloaded yet
        self._lay_out()
        self.device_results = self.device.upload("found", self.results)
        self.device_spans = self.device.upload("spans", self.spans)
        self.n_downloaded = 0  # entries of ``results`` that were downloaded

    def _lay_out(self) -> None:
        """Describe the variables to the GPU, and assign a position in ``results`` to each number, in the order of G."""
        h, program, dtype = self.hybrid, self.program, self.done.arithmetic.dtype
        first_message = self.done.plan.output(h.first)
        count = h.last - h.first
        spans = np.empty((count, SPAN), dtype=np.int64)
        spans[:, BEGIN] = program.at[first_message : first_message + count] - h.device_begin
        spans[:, ENTRIES] = self.done.plan.sizes[first_message : first_message + count]
        self.launches: dict[int, _VariableLaunches] = {}  # by first bucket
        parts = [np.zeros(0, dtype=dtype)]
        at, first = 0, h.first
        while first < h.last:
            last = first + 1
            while last < h.last and program.variable[last] == program.variable[first]:
                last += 1
            waves = describe_waves(program, first, last, h.device_begin, dtype, MAX_PLUS.operation)
            launches = _VariableLaunches(waves, [], at)
            if last - first > 1:
                x_size = int(program.domains[program.variable[first]])
                result_positions = range(at, at + 2 * x_size * (last - first), 2 * x_size)
                launches = _VariableLaunches(*add_marginals(waves, result_positions), at)
                parts.append(np.full(len(result_positions) * 2 * x_size, self.lowest, dtype=dtype))
                at += parts[-1].size
            self.launches[first] = launches
            spans[first - h.first : last - h.first, RESULT] = at + np.arange(last - first)
            parts.append(np.zeros(last - first, dtype=dtype))
            at += last - first
            first = last
        self.results, self.spans = np.concatenate(parts), spans.reshape(-1)
        descriptors = [launches.waves.descriptors for launches in self.launches.values()]
        device_descriptors = self.device.upload("meta", np.concatenate([np.zeros(0, dtype=np.int64), *descriptors]))
        ends = np.cumsum([0, *(part.size for part in descriptors)]).tolist()
        self.meta = {first: device_descriptors[a:b] for first, a, b in zip(self.launches, ends, ends[1:], strict=False)}

    def run(self, first: int, last: int) -> None:
        """Match and eliminate one variable on the GPU."""
        h, program, launches = self.hybrid, self.program, self.launches[first]
        self._upload_messages(first, last)
        if last - first > 1:
            self._launch_max_marginals(launches, self.meta[first])
            x_size = int(program.domains[program.variable[first]])
            self._download_results(launches.result_at + 2 * x_size * (last - first))
            halves = self.results[launches.result_at : self.n_downloaded].reshape(last - first, 2, x_size)
            marginals = np.maximum(halves[:, 0] + halves[:, 1], self.lowest)
            state, limit = self.tracker.state, self.tracker.limit
            max_marginals.set_shifts(program, self.done.arena, state, first, last, marginals, limit, self.lowest)
            # the shift tables of a variable are contiguous
            shift = int(program.at[program.inputs[program.input_start[first + 1] - 1]])
            self._upload(shift, shift + marginals.size)
        run_waves(self.queue, self.arena, launches.waves, self.meta[first], self.lowest, MAX_PLUS.operation)
        for b in range(first, last):
            output = self.done.plan.output(b)
            if h.upload_end <= program.at[output] < h.download_end:
                self.device_end = int(program.at[output] + self.done.plan.sizes[output])
        self._launch_magnitudes(first, last)
        self.waiting.append((first, last))

    def fetch(self, first: int, last: int) -> None:
        """Download what the host needs to run buckets ``first`` to ``last`` − 1.

        The magnitudes of all messages so far are downloaded in any case, also for an empty range of buckets.
        """
        if self.waiting:
            # the result position of the last waiting message, and the end behind it
            self._download_results(int(self.spans[3 * (self.waiting[-1][1] - 1 - self.hybrid.first) + 2]) + 1)
        if self._needs(first, last, self.downloaded_end, self.device_end):
            self._download()

    def record_host_run(self, first: int, last: int) -> None:
        """Record that the host ran buckets ``first`` to ``last`` − 1: some of their messages must be uploaded."""
        for b in range(first, last):
            output = self.done.plan.output(b)
            if self.host_end <= self.program.at[output] < self.hybrid.upload_end:
                self.host_end = int(self.program.at[output] + self.done.plan.sizes[output])

    def finish(self) -> None:
        """Download everything that the host keeps."""
        self.fetch(0, 0)
        self._download()

    def _needs(self, first: int, last: int, begin: int, end: int) -> bool:
        """Return whether an input of the buckets lies between ``begin`` and ``end`` in the address space."""
        if begin == end:
            return False
        start = self.program.input_start
        at = self.program.at[self.program.inputs[start[first] : start[last]]]
        return bool(((at >= begin) & (at < end)).any())

    def _upload_messages(self, first: int, last: int) -> None:
        """Upload the host's messages if one of the buckets reads them."""
        if self._needs(first, last, self.uploaded_end, self.host_end):
            self._upload(self.uploaded_end, self.host_end)
            self.uploaded_end = self.host_end

    def _upload(self, begin: int, end: int) -> None:
        """Upload a range of the address space."""
        device_begin = self.hybrid.device_begin
        self.arena[begin - device_begin : end - device_begin].copy_to_device(self.done.arena[begin:end])

    def _download(self) -> None:
        """Download the messages that the host does not have yet."""
        device_begin, begin, end = self.hybrid.device_begin, self.downloaded_end, self.device_end
        if begin < end:
            self.arena[begin - device_begin : end - device_begin].copy_to_host(self.done.arena[begin:end])
        self.downloaded_end = end

    def _download_results(self, end: int) -> None:
        """Download results up to ``end``, and update the total magnitude by the magnitudes among them."""
        self.device_results[self.n_downloaded : end].copy_to_host(self.results[self.n_downloaded : end])
        self.n_downloaded = end
        magnitudes, h = self.tracker.magnitudes, self.hybrid
        for first, last in self.waiting:
            at = int(self.spans[SPAN * (first - h.first) + RESULT])
            output = self.done.plan.output(first)
            magnitudes[output : output + last - first] = self.results[at : at + last - first]
            max_marginals.update_total(self.program, magnitudes, self.tracker.state, first, last)
        self.waiting.clear()

    def _launch_max_marginals(self, launches: _VariableLaunches, meta: Any) -> None:
        """Queue the launches of the max-marginals of a variable's mini-buckets."""
        dtype = self.done.arithmetic.dtype
        sums = self.device.buffer("sums", launches.waves.sums, dtype)
        start = self.device.buffer("start", launches.waves.start, np.dtype(np.int64))
        for number, table, blocks, groups, cells in launches.marginals:
            self.queue.add(cells)
            if number < 0:
                prepare[blocks, PREPARE_THREADS](self.arena, meta, table, sums, start, self.lowest)
            else:
                marginal_kernel(dtype, number)[blocks, (LANES, groups)](
                    self.arena, meta, table, sums, start, self.device_results, self.lowest, self.half
                )

    def _launch_magnitudes(self, first: int, last: int) -> None:
        """Queue the launch of the magnitudes of a variable's messages, those of buckets ``first`` to ``last`` − 1."""
        begin = first - self.hybrid.first
        entries = int(self.spans[SPAN * begin + ENTRIES : SPAN * (last - self.hybrid.first) : SPAN].max())
        lines = -(-entries // LANES)
        groups = min(GROUPS, lines)
        magnitude_kernel(self.done.arithmetic.dtype)[
            (split_blocks(lines, last - first, groups), last - first), (LANES, groups)
        ](self.arena, self.device_spans, begin, self.device_results, self.lowest, self.half)


def load_kernels(dtype: np.dtype[Any]) -> None:
    """Compile the GPU code of moment matching and of its joins for a number type, or read it from the disk cache."""
    load_joins(dtype, MAX_PLUS.operation)
    device, number = shared_device(), dtype.type(0)
    tables, longs = device.buffer("kernels", 1, dtype), device.buffer("kernels", 1, np.dtype(np.int64))
    for both in range(4):
        device.load(marginal_kernel(dtype, both), (tables, longs, 0, tables, longs, tables, number, number))
    device.load(magnitude_kernel(dtype), (tables, longs, 0, tables, number, number))
