"""Tighten the bounds of several agents at once on a GPU, where their providers use dual ascent.

``tighten`` calls ``improve_on_gpu``. Agents whose tables have the same width are on the device together, as a group
(``DeviceDualAscent``). The time is divided between sweeps on the agents' whole graphs and sweeps of their rows.

A row is an assignment of an agent's interface (boundary) variables. The whole graph leaves these variables free, and
each row's ascent starts from the potentials of the whole graph. A sweep passes messages once between all tables of a
graph. A row's threshold is the utility that it has to reach; a cutoff is the same in the agent's integer scale.
"""

import time
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import BoundRequest
from dmcmc.inference.bounds.contract.tuning import (
    INITIAL_SWEEPS,
    MAX_INITIAL_FRACTION,
    RECENTRE_EVERY,
    TIMED_CALLS,
    WHOLE_SWEEPS_PER_ROW_SWEEP,
)
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import leave_to_cpu
from dmcmc.inference.tuning import MAX_CHECK_INTERVAL

if TYPE_CHECKING:
    from dmcmc.inference.bounds.dual.cuda.device_ascent import DeviceDualAscent, DevicePlacement


def improve_on_gpu(
    requests: Sequence[BoundRequest], backend: Backend, seconds: float | None = None, sweeps: int | None = None
) -> bool:
    """Tighten the bounds of several agents on the GPU.

    Parameters
    ----------
    requests : sequence of BoundRequest
    backend : Backend
        Number of processes per GPU, and deadline.
    seconds, sweeps
        As in ``BoundState.improve``, for all agents together.

    Returns
    -------
    bool
        False if the GPU cannot take all agents or its memory is exhausted; they are to be improved one by one then.
    """
    from dmcmc.inference.bounds.dual.cuda.device_ascent import fits_gpu, place_on_device

    states = [request.state for request in requests if isinstance(request.state, DualState)]
    if not states or len(states) < len(requests) or not all(map(fits_gpu, states)):
        return False
    try:
        places = place_on_device(states, backend.processes_per_gpu)
        _BatchedAscent(requests, states, places, backend.stop).improve(seconds, sweeps)
        return True
    except Exception as error:
        if not leave_to_cpu(error):
            raise
        for state in states:
            state.fetch_potentials()
        return False


class _BatchedAscent:
    """One call of ``improve_on_gpu``: the agents, their positions on the device, and the rows to bound.

    With a time budget, ``improve`` makes four steps: the first sweeps on the whole graphs, a short timed pass over the
    rows, more sweeps on the whole graphs, and a last pass over the rows with the sweeps per row that fit the time.

    Attributes
    ----------
    states : sequence of DualState
    places : sequence of DevicePlacement
    stop : Deadline
        No launch starts after it.
    rows : list of (k,) int64
        Row numbers for each request.
    cutoffs : list of ((k,) int64 or None)
        Their cutoffs in the agents' integer scales.
    groups : dict
        Indices of the requests in each device group, by the identity (``id``) of the group.
    """

    def __init__(
        self,
        requests: Sequence[BoundRequest],
        states: Sequence[DualState],
        places: "Sequence[DevicePlacement]",
        stop: Deadline,
    ) -> None:
        self.states, self.places, self.stop = states, places, stop
        self.rows: list[NDArray[np.int64]] = []
        self.cutoffs: list[NDArray[np.int64] | None] = []
        self.groups: dict[int, list[int]] = {}
        for k, (request, state) in enumerate(zip(requests, states, strict=True)):
            if request.thresholds is None:
                rows, cutoffs = state.rows(request.rows), None
            else:
                rows, cutoffs = state.rows_above_cutoff(request.thresholds, request.rows)
            self.rows.append(rows)
            self.cutoffs.append(cutoffs)
            self.groups.setdefault(id(places[k].group), []).append(k)

    def _device(self, group: Sequence[int]) -> "DeviceDualAscent":
        """Return the device object of a group, given the indices of its requests."""
        return self.places[group[0]].group

    def improve(self, seconds: float | None, sweeps: int | None) -> None:
        """Ascend on the whole graphs, then in the rows.

        ``seconds`` is the time budget for all agents together. Without it, each row gets ``sweeps`` sweeps (10 if None)
        and each whole graph ``WHOLE_SWEEPS_PER_ROW_SWEEP`` times as many.
        """
        if seconds is None:
            row_sweeps = 10 if sweeps is None else sweeps
            self._sweep([WHOLE_SWEEPS_PER_ROW_SWEEP * row_sweeps - state.sweeps_done for state in self.states])
            self._bound_rows(row_sweeps)
            return
        start = time.perf_counter()
        deadline, seconds_per_sweep, sweeps_per_call = start + seconds, 0.0, 1
        while self._fewest_sweeps() < INITIAL_SWEEPS and time.perf_counter() < start + MAX_INITIAL_FRACTION * seconds:
            seconds_per_sweep = self._timed_sweeps(sweeps_per_call)
            sweeps_per_call = self._limit_sweeps(2 * sweeps_per_call, seconds_per_sweep)
        trial_start = time.perf_counter()
        self._bound_rows(TIMED_CALLS)
        seconds_per_row_sweep = (time.perf_counter() - trial_start) / TIMED_CALLS  # for one sweep of all rows
        seconds_per_sweep = seconds_per_sweep or self._timed_sweeps(1)
        # The whole graphs get WHOLE_SWEEPS_PER_ROW_SWEEP sweeps per sweep of the rows; the rows come last.
        # A launch contains at least one row per block, so its time limits the sweeps per row.
        max_row_sweeps = max(1, int(MAX_CHECK_INTERVAL / (seconds_per_row_sweep * self._smallest_fraction())))
        row_sweeps_left = min(
            int(
                (deadline - time.perf_counter())
                / (WHOLE_SWEEPS_PER_ROW_SWEEP * seconds_per_sweep + seconds_per_row_sweep)
            ),
            max_row_sweeps,
        )
        if row_sweeps_left <= TIMED_CALLS:
            return
        final_rows_start = deadline - row_sweeps_left * seconds_per_row_sweep
        sweeps_per_call = self._limit_sweeps(RECENTRE_EVERY, seconds_per_sweep)
        while (
            time.perf_counter() + sweeps_per_call * seconds_per_sweep < final_rows_start and self._fewest_sweeps() < inf
        ):
            seconds_per_sweep = self._timed_sweeps(sweeps_per_call)
        row_sweeps_left = min(int((deadline - time.perf_counter()) / seconds_per_row_sweep), max_row_sweeps)
        if row_sweeps_left > TIMED_CALLS and not self.stop.over:
            self._bound_rows(row_sweeps_left)

    def _limit_sweeps(self, sweeps: int, seconds_per_sweep: float) -> int:
        """Limit a number of sweeps so that a launch takes at most ``MAX_CHECK_INTERVAL``."""
        return max(1, min(sweeps, RECENTRE_EVERY, int(MAX_CHECK_INTERVAL / max(seconds_per_sweep, 1e-9))))

    def _smallest_fraction(self) -> float:
        """Return the smallest fraction of the rows that a launch can contain: one row per block that runs at once."""
        row_count = sum(rows.size for rows in self.rows)
        return min(1.0, max(self._device(group).blocks for group in self.groups.values()) / max(1, row_count))

    def _fewest_sweeps(self) -> float:
        """Return the fewest sweeps of an agent that can be swept further; inf if there is none, or at the deadline.

        An agent can be swept further while all its table entries are in range.
        """
        return (
            inf if self.stop.over else min((state.sweeps_done for state in self.states if state.in_range), default=inf)
        )

    def _timed_sweeps(self, sweeps: int) -> float:
        """Make some sweeps on the whole graphs and return the seconds per sweep."""
        start = time.perf_counter()
        self._sweep([sweeps] * len(self.states))
        return (time.perf_counter() - start) / sweeps

    def _sweep(self, sweeps: Sequence[int]) -> None:
        """Make the given number of sweeps on each agent's whole graph."""
        for group in self.groups.values():
            chosen = [k for k in group if sweeps[k] > 0 and self.states[k].in_range]
            firsts = [self.states[k].sweeps_done for k in chosen]
            lasts = [first + sweeps[k] for k, first in zip(chosen, firsts, strict=True)]
            next_sweeps = self._device(group).sweep_whole([self.places[k].index for k in chosen], firsts, lasts)
            for k, next_sweep, last in zip(chosen, next_sweeps, lasts, strict=True):
                self.states[k].record_device_sweeps(next_sweep, next_sweep == last)

    def _bound_rows(self, sweeps: int) -> None:
        """Lower the bounds of all rows."""
        for group in self.groups.values():
            rows = [self.rows[k] for k in group]
            results = self._device(group).bound_rows(
                [self.places[k].index for k in group], rows, sweeps, [self.cutoffs[k] for k in group], self.stop
            )
            for k, request_rows, bounds in zip(group, rows, results, strict=True):
                state = self.states[k]
                state.bounds[request_rows] = np.minimum(state.bounds[request_rows], bounds)
