"""Carry out a plan on CPU and GPU together: small buckets here, large ones there, one copy each way."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.arena_kernels import choose_rows
from dmcmc.inference.elimination.copy_tables import place_tables
from dmcmc.inference.elimination.cuda.divide_work import Hybrid
from dmcmc.inference.elimination.cuda.join_kernels import choose_kernel
from dmcmc.inference.elimination.cuda.waves import Queue, Waves, describe_waves, run_waves
from dmcmc.inference.elimination.eliminate import Elimination, flat_tables, run_on_cpu
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.model.cuda.device_table import DeviceTable, parted
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.device import Device, shared_device
from dmcmc.inference.runtime.memory import ACCOUNT


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
        """Return table ``t`` of the plan: a view; one that lies on the GPU is copied when its entries are wanted."""
        place, begin = self.plan.place(t), self.hybrid.device_begin
        if place.end <= self.hybrid.host_entries:
            return super().table(t)
        entries = self.device_arena[0][place.begin - begin : place.end - begin]
        return DeviceTable.of(place.scope, place.shape, entries, self)

    def choose(self, values: NDArray[np.int64]) -> None:
        """Set the maximising values; see :meth:`Elimination.choose`. One launch for all of G."""
        self.choose_all(values[None])

    def choose_all(self, values: NDArray[np.int64]) -> None:
        """Set the maximising values for several assignments of the kept variables."""
        h = self.hybrid
        self.choose_rows(values, np.array([[0, h.first], [h.first, h.last], [h.last, h.plan.buckets]]))

    def choose_rows(self, values: NDArray[np.int64], ranges: NDArray[np.int64]) -> None:
        """Set the maximising values for several assignments of the kept variables; one launch for all.

        Parameters
        ----------
        values : (rows, variables), in C order
            Each has the values of the kept variables.
        ranges : (3, ranges + 1)
            Which buckets, of A, G and C each: neighbouring ranges, none of which reads what another one sets.
        """
        h, program = self.hybrid, self.plan.program
        (first_a, last_a), (first_g, last_g), (first_c, last_c) = ranges[:, [0, -1]].tolist()
        lowest = self.arithmetic.dtype.type(self.arithmetic.lowest)
        if last_c > first_c:
            choose_rows(program, self.arena, values, lowest, first_c, last_c)
        if last_g > first_g:
            words = self.device.upload("words", _words(h))
            there = self.device.upload("values", values.reshape(-1))
            ranges_there = self.device.upload("ranges", ranges[1])
            grid = (values.shape[0], ranges.shape[1] - 1)
            most = int(program.domains.max(initial=1))
            scores = self.device.buffer("scores", grid[0] * grid[1] * most, self.arithmetic.dtype)
            choose_kernel[grid, 64](self.device_arena[0], words, ranges_there, there, lowest, scores)
            there[: values.size].copy_to_host(values.reshape(-1))
        if last_a > first_a:
            choose_rows(program, self.arena, values, lowest, first_a, last_a)


def _words(hybrid: Hybrid) -> NDArray[np.int64]:
    """Return a plan as kernels that look maximisers up read it."""
    found: NDArray[np.int64] | None = hybrid.described.get("words")
    if found is None:
        p = hybrid.plan.program
        parts = [p.domains, p.scope_start, p.scope, p.at, p.variable, p.input_start, p.inputs]
        sizes = np.array([*(part.size for part in parts), -hybrid.device_begin], dtype=np.int64)
        hybrid.described["words"] = found = np.concatenate([sizes, *parts])
    return found


def _waves(hybrid: Hybrid, dtype: np.dtype[Any], operation: int) -> Waves:
    """Return the launches of what the GPU does."""
    found: Waves | None = hybrid.described.get((dtype, operation))
    if found is None:
        first, last = hybrid.first, hybrid.last
        found = describe_waves(hybrid.plan.program, first, last, hybrid.device_begin, dtype, operation)
        hybrid.described[dtype, operation] = found
    return found


def eliminate_hybrid(
    tables: Sequence[Table] | FlatTables,
    hybrid: Hybrid,
    arithmetic: Arithmetic,
    threads: int = 1,
    semiring: Semiring = MAX_PLUS,
    device: Device | None = None,
    stop: Stop = NO_STOP,
) -> GpuElimination:
    """Carry out a divided plan.

    Parameters
    ----------
    tables
        Encoded, one for each input of the plan; those that lie on the device are taken from there.
    hybrid
        From :func:`dmcmc.inference.elimination.cuda.divide_work.divide_work`.
    stop
        When to give up.

    Raises
    ------
    OutOfTime
    """
    device = device or shared_device()
    lowest = arithmetic.dtype.type(arithmetic.lowest)
    ACCOUNT.claim(hybrid.host_entries * arithmetic.dtype.itemsize, "tables on the host")
    arena = np.empty(max(1, hybrid.host_entries), dtype=arithmetic.dtype)
    given, there = parted(tables, hybrid.taken if semiring.sign > 0 else ())
    flat = flat_tables(given, arithmetic, semiring)
    done = GpuElimination(hybrid.plan, arena, arithmetic, hybrid, device, semiring=semiring)
    on_device = device.lease(hybrid.device_entries, arithmetic.dtype, done)
    done.device_arena.append(on_device)
    for first, part in _runs(flat, there):
        place_tables(_from(hybrid.plan, first), arena, part, lowest, stop)
    if hybrid.first:
        run_on_cpu(done, 0, hybrid.first, semiring, threads, stop)
    if hybrid.last > hybrid.first:
        begin, up, down = hybrid.device_begin, hybrid.upload_end, hybrid.download_end
        for start, end in _uploaded(hybrid, there):
            on_device[start - begin : end - begin].copy_to_device(arena[start:end])
        for t, table in there.items():
            table.place(on_device, int(hybrid.plan.program.at[t]) - begin, hybrid.plan.scope(t))
        waves = _waves(hybrid, arithmetic.dtype, semiring.operation)
        queue = Queue(device, stop=stop)
        run_waves(queue, on_device, waves, device.upload("meta", waves.meta), lowest, semiring.operation)
        device.work_meanwhile()
        if down > up:
            on_device[up - begin : down - begin].copy_to_host(arena[up:down])
    if hybrid.last < hybrid.plan.buckets:
        run_on_cpu(done, hybrid.last, hybrid.plan.buckets, semiring, threads, stop)
    return done


def _runs(flat: FlatTables, there: Mapping[int, Table]) -> Iterator[tuple[int, FlatTables]]:
    """Yield the given tables of the host, those next to each other together, with the number of the first in the plan.

    Parameters
    ----------
    there
        The numbers of those that lie elsewhere.
    """
    before = 0  # of the host's
    for first, last in pairwise([-1, *sorted(there), flat.tables + len(there)]):
        count = last - first - 1
        if count or not there:
            yield first + 1, flat.part(before, before + count)
        before += count


def _from(plan: Plan, first: int) -> Plan:
    """Return a plan as one whose first tables are left out, for placing what is given."""
    program = plan.program
    if not first:
        return plan
    return replace(plan, program=program._replace(at=program.at[first:], scope_start=program.scope_start[first:]))


def _uploaded(hybrid: Hybrid, there: Mapping[int, Table]) -> Iterator[tuple[int, int]]:
    """Yield the pieces of the address space that go to the device: all but what is there already."""
    start, program = hybrid.device_begin, hybrid.plan.program
    for t in sorted(there, key=lambda t: int(program.at[t])):
        at = int(program.at[t])
        if at > start:
            yield start, at
        start = at + int(hybrid.plan.sizes[t])
    if hybrid.upload_end > start:
        yield start, hybrid.upload_end
