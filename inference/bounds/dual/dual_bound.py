"""The dual bound, and its ascent over the rows of an agent.

The bound of ``dual`` and ``triangles``: one dual ascent on an agent's whole graph, then one for every row.

A row is one assignment of the agent's interface (boundary) variables. The ascent on the whole graph leaves the
interface variables free. Every row starts from its potentials, so the messages that help all rows are found once. The
potentials of a row are discarded; with more time, rows are ascended again with more sweeps and from better initial
potentials. ``ascent_kernels`` has the kernels, ``row_ascent`` runs them for rows.

A sweep passes messages once between all tables of a graph: variables, pairs, triangles (triplet regions of three pairs)
and higher-order factors. Tables are int32 in the agent's integer scale; an entry beyond ±``MAX_MAGNITUDE`` is out of
range, and no further message may be sent then. A cutoff is a row's threshold in that scale: a row whose bound is below
its cutoff is dropped, and so is a value with which the row's bound would be. W is the number of columns of a table.

Dual ascent of an agent's rows from the potentials of the whole graph, on this process or split over several.

A row is one assignment of the agent's interface (boundary) variables. ``DualState`` creates a ``RowAscentTask`` and
calls ``ascend_rows``, or ``RowHelpers`` if other processes take a part of the rows. The task consists of arrays only,
so a process can carry it out that knows nothing else about the agent. Rows are independent: their bounds are identical
to the bit, whichever process or thread computes them.

The whole graph has the hidden and the interface variables; the hidden graph is what remains once a row is fixed. A
sweep passes messages once between all tables of a graph. W is the number of columns of a table. Bounds and cutoffs are
int64 in the agent's integer scale.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.contract.tuning import (
    INITIAL_SWEEPS,
    MAX_INITIAL_FRACTION,
    MAX_TEMPERATURE_RATIO,
    MIN_ANNEALED_SWEEPS,
    MIN_PAIRS_PER_TRIANGLE,
    MIN_REHEATING_SHARE,
    MIN_RELATIVE_GAIN,
    RECENTRE_EVERY,
    REHEATED_SWEEPS,
    REHEATING_DECAY,
    ROW_BATCHES,
    ROW_TEMPERATURE_RATIO,
    SMOOTHED_SWEEP_COST,
    STALLED_SHARE,
    TEMPERATURE_PER_TRIANGLE,
    TIMED_CALLS,
    WHOLE_SWEEPS_PER_ROW_SWEEP,
)
from dmcmc.inference.bounds.dual import ascent_kernels as rows
from dmcmc.inference.bounds.dual import pair_kernels as kernels
from dmcmc.inference.bounds.dual.decomposed_bounds import BoundSummand, encode_parts, local_maxima
from dmcmc.inference.bounds.dual.graph import (
    DualLayout,
    DualPotentials,
    RowGraphs,
    add_triangles,
    empty_potentials,
    lay_out,
    mean_standard_deviation,
)
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW, MAX_MAGNITUDE, MINUS_INFINITY, encode_bounds
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import SCRATCH_TABLES
from dmcmc.inference.bounds.dual.triplet_regions import frustrated_cycle_triangles
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.device import gpu_fault
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.tuning import MAX_CHECK_INTERVAL


class RowAscentTask(NamedTuple):
    """Rows to bound, and all data that this needs.

    Attributes
    ----------
    graphs : RowGraphs
        Graphs over all variables and over the hidden ones.
    potentials : DualPotentials
        Potentials of the whole graph, from which each row's ascent starts.
    sweeps_done : int
        Number of sweeps that the potentials have had; identifies their version.
    rows : (k,) int64
        Row numbers.
    sweeps : int
        Sweeps per row.
    initial_temperature : float32
        Temperature of the first sweep of a row, in the integer scale.
    cutoffs : (k,) int64 or None
        Values with which a row stays below its cutoff are removed; None removes nothing.
    """

    graphs: RowGraphs
    potentials: DualPotentials
    sweeps_done: int
    rows: Ints
    sweeps: int
    initial_temperature: np.float32
    cutoffs: Ints | None

    def of(self, first: int, last: int) -> "RowAscentTask":
        """Return the task for rows ``first`` to ``last`` - 1 of this one."""
        return self._replace(
            rows=self.rows[first:last], cutoffs=None if self.cutoffs is None else self.cutoffs[first:last]
        )

    @property
    def entries(self) -> int:
        """Estimate the number of table entries that are read.

        Per row, conditioning and each sweep read the hidden graph once: W * W entries per pair, 3 W * W per triangle,
        and the entries of the higher-order factors.
        """
        hidden, width = self.graphs.hidden, self.potentials.unary.shape[1]
        graph = (hidden.pairs.shape[0] + 3 * hidden.triangles.shape[0]) * width * width + int(hidden.entry_start[-1])
        return int(self.rows.size * (1 + self.sweeps) * graph)


class RowHelpers(Protocol):
    """Other processes that bound a part of the rows.

    Attributes
    ----------
    size : int
        Number of processes, including this one.
    """

    size: int

    def wanted(self, work: RowAscentTask) -> bool:
        """Return whether the task is large enough to pay for the communication."""
        ...

    def ascend(self, work: RowAscentTask, bounds: Ints, backend: Backend) -> None:
        """Do the work of ``ascend_rows`` together with the other processes."""
        ...


def ascend_rows(work: RowAscentTask, bounds: Ints, backend: Backend) -> None:
    """Lower the bounds of some rows, on the backend's threads.

    Parameters
    ----------
    work : RowAscentTask
    bounds : (rows of the interface,) int64
        Lowered in place.
    backend : Backend
        Threads and deadline; rows that there is no time for keep their bounds.
    """
    width, count = work.potentials.unary.shape[1], work.rows.size
    cutoffs = np.full(count, MINUS_INFINITY, dtype=np.int64) if work.cutoffs is None else work.cutoffs
    n_parts = max(1, min(backend.threads, count))
    part_bounds = [count * i // n_parts for i in range(n_parts + 1)]
    # ``run_until_deadline`` sets ``halt`` to 1 at the deadline; the kernel checks it.
    kernel, halt = cast(Callable[..., None], rows.bound_rows), np.zeros(1, dtype=np.uint8)

    def bound_part(first: int, last: int) -> None:
        """Bound the rows ``first`` to ``last`` - 1 of the task with separate workspace."""
        kernel(
            work.graphs,
            work.potentials,
            empty_potentials(work.graphs.hidden, width),
            work.rows[first:last],
            work.sweeps,
            work.initial_temperature,
            cutoffs[first:last],
            bounds,
            np.zeros((SCRATCH_TABLES, width, width), dtype=np.int32),
            halt,
        )

    tasks = [partial(bound_part, a, b) for a, b in itertools.pairwise(part_bounds)]
    run_until_deadline(tasks, backend.threads, backend.stop, halt)


class RemotePotentials(Protocol):
    """Current potentials of a bound on a device, which also makes the sweeps; see ``cuda.device_ascent``."""

    def potentials(self) -> DualPotentials:
        """Copy the potentials back from the device."""
        ...


class DualState:
    """Bound of one agent by dual ascent; implements ``PruningState``.

    With ``triangles``, ``layout_fixed`` is False until ``tighten`` finds that more triangles would not pay, or another
    object sets it; until then, ``tighten`` may replace the layout. ``in_range`` becomes False for good when an entry
    leaves the range or the deadline interrupts a sweep. ``remote`` is set when the agent is placed on a GPU, and None
    again after ``fetch_potentials``; in between, sweeps on the GPU make the device's potentials newer than the host's.

    Parameters
    ----------
    local : Subproblem
    triangles : bool
        Whether to add the triangles of the factor graph, and later those of four-cycles.
    backend : Backend
        Threads, device and deadline of later calls; the first sweep runs on the CPU without a deadline.

    Attributes
    ----------
    local : Subproblem
    layout : DualLayout
        Graph, initial potentials and integer scale.
    bounds : (rows,) int64
        The best bound of each row in the integer scale; empty if there are too many rows to enumerate.
    sweeps_done : int
        Sweeps made on the whole graph.
    in_range : bool
        Whether all entries are within ±``MAX_MAGNITUDE``, so that more sweeps can be made.
    enumerated : bool
        Whether there is a bound for each row.
    layout_fixed : bool
        Whether no more triangles may be added: another object depends on the layout, or they no longer pay.
    remote : RemotePotentials or None
        Holder of the current potentials on a device.
    has_mini_buckets : bool
        Whether mini-buckets of the potentials compete with the ascent; set by their owner.
    helpers : RowHelpers or None
        Other processes that bound a part of the rows.
    initial_temperature : float32
        Temperature of the first sweeps, in the integer scale. It is 0 without a time budget, so that CPU and GPU give
        identical bounds, and 0 if the graph has fewer triangles than pairs.
    backend : Backend
        Threads, device and deadline.
    exhausted : bool
        Whether no work can tighten the bound.
    """

    def __init__(self, local: Subproblem, triangles: bool, backend: Backend = CPU) -> None:
        self.local = local
        self.backend = CPU  # the first sweep has no deadline
        self.layout: DualLayout = lay_out(local, triangles)
        self._potentials = self.layout.potentials
        self._device_is_newer = False  # whether the potentials on the device are newer
        self.remote: RemotePotentials | None = None
        self.helpers: RowHelpers | None = None
        self.has_mini_buckets = False
        self.sweeps_done = 0
        self.in_range = True
        self.layout_fixed = not triangles
        # At the last call of tighten that added triangles: sweeps made, bound, and decrease of the bound per sweep.
        self._last_tightening: tuple[int, float, float] | None = None
        self._sweep_seconds: tuple[float, ...] = ()  # seconds per sweep on the whole graph, in the last calls
        # Sweeps on the whole graph that the temperature is annealed over, the first one's number and temperature.
        self._annealed_sweeps, self._annealing_start = INITIAL_SWEEPS, 0
        self._temperature = self._reheating_temperature = self._first_reheating = np.float32(0)
        width = self.width
        self._scratch = np.zeros((SCRATCH_TABLES, width, width), dtype=np.int32)
        self.initial_temperature = np.float32(0)
        self.enumerated = local.is_enumerable
        whole, deviation = self.layout.whole, mean_standard_deviation(self.potentials)
        self._sweep_whole(1)
        timed = backend.stop.until < float("inf")
        if timed and self.enumerated and len(whole.triangles):
            ratio = min(MAX_TEMPERATURE_RATIO, TEMPERATURE_PER_TRIANGLE * len(whole.triangles) / len(whole.pairs))
            self._first_reheating = self._reheating_temperature = np.float32(ratio * deviation)
            if len(whole.triangles) >= len(whole.pairs):
                self.initial_temperature = self._temperature = self._reheating_temperature
        self._first_bound = self._whole_bound = int(kernels.bound(whole, self.potentials))
        self.bounds = np.full(local.rows if self.enumerated else 0, self._first_bound, dtype=np.int64)
        # Without hidden variables a row's bound is a sum of entries, which is exact.
        self.exhausted = not self.layout.n_hidden
        if self.exhausted:
            self._bound_rows(self.rows(None), 0, None)
        self.backend = backend

    @property
    def potentials(self) -> DualPotentials:
        """The potentials of the whole graph; copied from the device first if they are newer there.

        If the device has failed, the last ones on the host are used, which are as valid.
        """
        if self._device_is_newer and self.remote is not None:
            self._device_is_newer = False
            try:
                self._potentials = self.remote.potentials()
            except Exception as error:
                if gpu_fault(error) is None:
                    raise
        return self._potentials

    def record_device_sweeps(self, sweeps_done: int, in_range: bool) -> None:
        """Record that the device has made ``sweeps_done`` sweeps in all; potentials are copied when next needed.

        ``in_range`` says whether all entries stayed within ±``MAX_MAGNITUDE``.
        """
        self.sweeps_done, self.in_range, self._device_is_newer = sweeps_done, in_range, True

    def fetch_potentials(self) -> None:
        """Copy the potentials from the device, whose copy is not used any more."""
        self._potentials, self.remote = self.potentials, None

    @property
    def width(self) -> int:
        """Number of columns of a table: the largest padded domain size."""
        return int(self.layout.potentials.unary.shape[1])

    @property
    def row_temperature(self) -> np.float32:
        """Temperature of the first sweeps of a row, and of a branch-and-bound node."""
        return np.float32(self.initial_temperature * ROW_TEMPERATURE_RATIO)

    @property
    def integral(self) -> bool:
        """Whether all utilities are integers."""
        return self.layout.scale.integral

    @property
    def seconds_per_sweep(self) -> float:
        """Seconds per sweep on the whole graph; 0 if unknown."""
        return min(self._sweep_seconds, default=0.0)

    def duplicate(self) -> "DualState":
        """Return a copy that can be tightened in another way, with more triangles."""
        self.fetch_potentials()
        duplicated = copy(self)
        duplicated._potentials = DualPotentials(*(table.copy() for table in self._potentials))
        duplicated.layout = replace(self.layout, potentials=duplicated._potentials)
        duplicated.bounds, duplicated._scratch = self.bounds.copy(), np.zeros_like(self._scratch)
        duplicated.layout_fixed, duplicated._last_tightening = False, None
        return duplicated

    def take_potentials(self, earlier: "DualState", potentials: DualPotentials) -> None:
        """Go on from other reparametrised potentials of the same factors, over the graph of an earlier bound.

        Parameters
        ----------
        earlier : DualState
            The bound whose graph they have; it may have more triangles.
        potentials : DualPotentials
            For each assignment they sum to the same utility as those of this bound.
        """
        self.layout = replace(earlier.layout, potentials=potentials, scale=self.layout.scale)
        self._potentials, self.sweeps_done = potentials, earlier.sweeps_done
        self._last_tightening = earlier._last_tightening
        self.layout_fixed = self.layout_fixed or earlier.layout_fixed
        self.in_range = _in_range(potentials)
        np.minimum(self.bounds, kernels.bound(self.layout.whole, potentials), out=self.bounds)

    def begin_run(self, backend: Backend) -> None:
        """Go on in another run, whose thresholds may be lower: with its threads, device and deadline, without helpers.

        Bounds of rows that were closed are raised by the rounding error of their thresholds.
        """
        self.backend, self.helpers = backend, None
        self.in_range = _in_range(self.potentials)
        self.bounds[self.bounds > MINUS_INFINITY] += self.layout.scale.threshold_error

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound.

        Parameters
        ----------
        seconds : float or None
            Time budget; None makes a fixed number of sweeps.
        sweeps : int or None
            Without a time budget: sweeps per row, 10 if None. The whole graph gets ``WHOLE_SWEEPS_PER_ROW_SWEEP`` times
            as many.
        rows : sequence of int or None
            The rows to bound; None for all.
        """
        self._improve_rows(self.rows(rows), seconds, sweeps, None)

    def prune(
        self,
        thresholds: NDArray[Any],
        rows: Rows | None = None,
        seconds: float | None = None,
        sweeps: int | None = None,
    ) -> None:
        """Tighten the bounds of rows; values with which a row cannot reach its threshold do not count.

        ``thresholds`` is one utility per row of the interface; the other parameters are as for ``improve``.
        """
        chosen, cutoffs = self.rows_above_cutoff(thresholds, rows)
        self._improve_rows(chosen, seconds, sweeps, cutoffs)

    def rows_above_cutoff(
        self, thresholds: NDArray[Any], rows: Rows | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows whose bounds reach their thresholds, and these thresholds in the integer scale.

        Parameters
        ----------
        thresholds : (rows of the interface,)
            Utilities.
        rows : sequence of int or None
            The rows to consider; None for all.

        Returns
        -------
        rows : (k,) int64
        cutoffs : (k,) int64
        """
        chosen, scale = self.rows(rows), self.layout.scale
        cutoffs = scale.encode_all(np.asarray(thresholds)[chosen])
        reaching = self.bounds[chosen] >= cutoffs
        return chosen[reaching], cutoffs[reaching]

    def lower(self, rows: Rows, values: Sequence[int | float]) -> None:
        """Lower the bounds of rows to upper bounds that are known from another method, one utility per row."""
        encoded = np.array([self.layout.scale.encode_up(v) for v in values], dtype=np.int64)
        np.minimum.at(self.bounds, np.asarray(rows, dtype=np.int64), encoded)

    def tables(self, arithmetic: Arithmetic) -> tuple[EncodedTable, ...]:
        """Return one table over the interface, or a sum of small tables where there are too many rows.

        The entries are numbers of ``arithmetic``, rounded up.
        """
        if self.enumerated:
            bounds = encode_bounds(self.bounds, self.layout.scale, arithmetic)
            return (EncodedTable(self.local.interface, bounds.reshape(self.local.interface_shape)),)
        return encode_parts(self.decomposed_bound(), self.layout.scale, self.local, arithmetic)

    def rows(self, wanted: Rows | None) -> NDArray[np.int64]:
        """Return row numbers as an array: the given ones, or all enumerated rows if None."""
        return np.arange(self.bounds.size) if wanted is None else np.asarray(wanted, dtype=np.int64)

    def _improve_rows(
        self, chosen: NDArray[np.int64], seconds: float | None, sweeps: int | None, cutoffs: NDArray[np.int64] | None
    ) -> None:
        """Ascend on the whole graph, then in the chosen rows.

        Parameters
        ----------
        chosen : (k,) int64
            Row numbers.
        seconds : float or None
            Time budget.
        sweeps : int or None
            Sweeps per row without a time budget; 10 if None.
        cutoffs : (k,) int64 or None
            Cutoffs of the chosen rows in the integer scale; None removes no values.
        """
        if seconds is None:
            row_sweeps_wanted = 10 if sweeps is None else sweeps
            self._sweep_whole(WHOLE_SWEEPS_PER_ROW_SWEEP * row_sweeps_wanted - self.sweeps_done)
            self._bound_rows(chosen, row_sweeps_wanted, cutoffs)
            return
        start, rows_at_once = time.perf_counter(), self._parallel_rows(chosen)
        self.tighten()
        whole_fraction = (
            WHOLE_SWEEPS_PER_ROW_SWEEP / (WHOLE_SWEEPS_PER_ROW_SWEEP + chosen.size / rows_at_once)
            if self.layout.n_hidden
            else 1.0
        )
        call_sweeps, done_before, annealing_planned, stalled = 1, self.sweeps_done, False, False
        while self.in_range and not self.backend.stop.over:
            limit = max(whole_fraction, MAX_INITIAL_FRACTION) if self.sweeps_done < INITIAL_SWEEPS else whole_fraction
            if not annealing_planned:
                self._plan_annealing(start + limit * seconds - time.perf_counter())
                annealing_planned = len(self._sweep_seconds) == TIMED_CALLS
            # Other processes may have delayed the timed calls: with few of them, make one whatever the estimate says.
            time_again = self.sweeps_done == done_before and len(self._sweep_seconds) < TIMED_CALLS
            if not time_again and time.perf_counter() + call_sweeps * self.seconds_per_sweep > start + limit * seconds:
                break
            self._sweep_whole(call_sweeps)
            if call_sweeps == RECENTRE_EVERY and not self._escape_if_stalled(start + limit * seconds):
                stalled = True
                break
            call_sweeps = min(2 * call_sweeps, RECENTRE_EVERY)
        np.minimum(self.bounds, kernels.bound(self.layout.whole, self.potentials), out=self.bounds)
        seconds_per_sweep = (
            (time.perf_counter() - start) / (self.sweeps_done - done_before)
            if self.sweeps_done > done_before
            else self.seconds_per_sweep
        )
        rows_done, sweeps_made, rows_begin = 0, 0.0, time.perf_counter()
        for part in np.array_split(chosen, min(ROW_BATCHES, -(-chosen.size // rows_at_once))) if chosen.size else []:
            if self.backend.stop.over:
                break
            # The average of all batches so far, since other processes use the cores from time to time.
            seconds_left = start + seconds - time.perf_counter()
            # Sweeps per row that fit: the time left over the time of one sweep for all remaining rows. The 0.25 rounds
            # up from three quarters of a sweep.
            row_sweeps = max(
                0,
                int(0.25 + seconds_left / max(seconds_per_sweep, 1e-9) / -(-(chosen.size - rows_done) // rows_at_once)),
            )
            if stalled and not self.local.interface:  # the only row is the whole graph
                row_sweeps = min(row_sweeps, INITIAL_SWEEPS)
            self._bound_rows(part, row_sweeps, None if cutoffs is None else cutoffs[rows_done : rows_done + part.size])
            rows_done += part.size
            # Conditioning on a row counts as a sweep.
            sweeps_made += (row_sweeps + 1) * -(-part.size // rows_at_once)
            seconds_per_sweep = (time.perf_counter() - rows_begin) / sweeps_made

    def tighten(self) -> None:
        """Add triangles for four-cycles if the graph has few, as long as the bound keeps falling fast.

        Triangles are added again if, since the last time, the bound has fallen per sweep by more than
        ``MIN_RELATIVE_GAIN`` of its earlier rate; otherwise ``layout_fixed`` becomes True.
        """
        whole = self.layout.whole
        if self.layout_fixed or not self.in_range or self.sweeps_done < INITIAL_SWEEPS:
            return
        if self._last_tightening is None and MIN_PAIRS_PER_TRIANGLE * len(whole.triangles) > len(whole.pairs):
            self.layout_fixed = True
            return
        self.fetch_potentials()
        current_bound, previous = float(kernels.bound(whole, self.potentials)), self._last_tightening
        rate = (previous[1] - current_bound) / max(1, self.sweeps_done - previous[0]) if previous is not None else 0.0
        if previous is not None and rate <= MIN_RELATIVE_GAIN * previous[2]:
            self.layout_fixed = True
            return
        # A triangle takes 12 W * W bytes: three tables of four-byte entries.
        capacity = MEMORY_ACCOUNT.workspace_bytes() // (12 * self.width * self.width) - len(whole.triangles)
        triples = (
            frustrated_cycle_triangles(self.layout, self.potentials, min(len(whole.pairs), capacity))
            if capacity > 1
            else []
        )
        self.layout_fixed = not triples
        self._last_tightening = (self.sweeps_done, current_bound, rate)
        self._sweep_seconds = ()
        self.layout, self._potentials = add_triangles(self.layout, self.potentials, triples)
        self._reheating_temperature = self._first_reheating

    def _plan_annealing(self, seconds: float) -> None:
        """Set the number of sweeps of the annealing schedule to what fits the time; 0 (no smoothing) if it is few."""
        sweeps = int(seconds / (SMOOTHED_SWEEP_COST * self.seconds_per_sweep)) if self.seconds_per_sweep else 0
        self._annealed_sweeps = min(INITIAL_SWEEPS, self.sweeps_done + sweeps) if sweeps >= MIN_ANNEALED_SWEEPS else 0

    def _escape_if_stalled(self, until: float) -> bool:
        """Anneal the potentials again and again if the bound hardly falls; return False if that does not help either.

        Potentials with a lower bound are kept; otherwise the old ones are, and the next annealing starts colder.
        """
        least_fall, before = STALLED_SHARE * (self._first_bound - self._whole_bound), self._whole_bound
        self._whole_bound = int(kernels.bound(self.layout.whole, self.potentials))
        seconds = REHEATED_SWEEPS * SMOOTHED_SWEEP_COST * self.seconds_per_sweep
        if before - self._whole_bound > least_fall or not (self.in_range and self._reheating_temperature):
            return True
        while self._reheating_temperature > MIN_REHEATING_SHARE * self._first_reheating:
            if time.perf_counter() + seconds > until:
                return True
            kept = DualPotentials(*(table.copy() for table in self.potentials))
            self._temperature, self._annealing_start = self._reheating_temperature, self.sweeps_done
            self._annealed_sweeps = REHEATED_SWEEPS // 4
            self._sweep_whole(REHEATED_SWEEPS)
            self._temperature = np.float32(0)
            fall = self._whole_bound - int(kernels.bound(self.layout.whole, self.potentials)) if self.in_range else 0
            if fall > 0:
                self._whole_bound -= fall
            else:
                self._potentials, self.in_range = kept, True
            if fall <= least_fall:
                self._reheating_temperature = np.float32(REHEATING_DECAY * self._reheating_temperature)
        return False

    def _sweep_whole(self, sweeps: int) -> None:
        """Make ``sweeps`` sweeps on the whole graph, fewer if an entry leaves the range or the deadline passes."""
        if not self.in_range or sweeps <= 0:
            return
        self.fetch_potentials()
        end = self.sweeps_done + sweeps
        while self.in_range and self.sweeps_done < end and not (self.sweeps_done and self.backend.stop.over):
            start, count = time.perf_counter(), end - self.sweeps_done
            if self.backend.stop is not NO_DEADLINE:
                count = (
                    min(count, max(1, int(MAX_CHECK_INTERVAL / self.seconds_per_sweep)))
                    if self.seconds_per_sweep
                    else 1
                )
            next_sweep = self._ascend(count)
            if count < next_sweep:  # not in the first call, which may compile the kernel; the last TIMED_CALLS remain
                self._sweep_seconds = (*self._sweep_seconds[1 - TIMED_CALLS :], (time.perf_counter() - start) / count)

    def _ascend(self, sweeps: int) -> int:
        """Make sweeps on the whole graph in one kernel call; return the number of sweeps made so far in all.

        Sets ``sweeps_done`` and ``in_range``.
        """
        # ``run_until_deadline`` sets ``halt`` to 1 at the deadline; the kernel checks it.
        halt, results = np.zeros(1, dtype=np.uint8), list[int]()
        whole, potentials, first = self.layout.whole, self.potentials, self.sweeps_done
        kernel = cast(Callable[..., int], rows.ascend)

        def ascend() -> None:
            """Call the kernel on a worker thread."""
            results.append(
                kernel(
                    whole,
                    potentials,
                    first,
                    first + sweeps,
                    self._temperature,
                    first - self._annealing_start,
                    self._annealed_sweeps,
                    self._scratch,
                    halt,
                )
            )

        run_until_deadline([ascend], 1, self.backend.stop, halt)
        self.sweeps_done = results[0]
        self.in_range = self.sweeps_done == first + sweeps  # False as well at the deadline
        return self.sweeps_done

    def _bound_rows(self, chosen: NDArray[np.int64], sweeps: int, cutoffs: NDArray[np.int64] | None) -> None:
        """Lower the bounds of some rows, with the help of other processes if there are any.

        The arguments are as in ``_improve_rows``.
        """
        task = self._row_task(chosen, sweeps, cutoffs)
        if self.helpers is not None and self.helpers.wanted(task):
            self.helpers.ascend(task, self.bounds, self.backend)
        else:
            ascend_rows(task, self.bounds, self.backend)

    def _row_task(self, chosen: NDArray[np.int64], sweeps: int, cutoffs: NDArray[np.int64] | None) -> RowAscentTask:
        """Return the task to ascend in some rows."""
        return RowAscentTask(
            self.layout.row_graphs, self.potentials, self.sweeps_done, chosen, sweeps, self.row_temperature, cutoffs
        )

    def _parallel_rows(self, chosen: NDArray[np.int64]) -> int:
        """Return the number of rows that are processed in parallel."""
        uses_helpers = self.helpers is not None and self.helpers.wanted(self._row_task(chosen, 1, None))
        return self.backend.threads * (self.helpers.size if self.helpers is not None and uses_helpers else 1)

    def decomposed_bound(self) -> list[BoundSummand]:
        """Return the bound as summands: every table is maximised over the hidden variables separately."""
        return local_maxima(self.layout, self.potentials, self.local.interface)


def _in_range(potentials: DualPotentials) -> bool:
    """Return whether all allowed entries are within ±``MAX_MAGNITUDE``."""
    return all(not (np.abs(table[table >= FORBIDDEN_BELOW]) > MAX_MAGNITUDE).any() for table in potentials)
