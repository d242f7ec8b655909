"""Bounds of several agents at once: on a GPU, where there is one and the agents' provider can use it."""

import time
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import BoundRequest, Pruned
from dmcmc.inference.bounds.dual.dual_bound import FIRST_SHARE, SHIFTS, DualState
from dmcmc.inference.bounds.dual.row_kernels import FIRST_SHIFTS
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device

if TYPE_CHECKING:
    from dmcmc.inference.bounds.dual.cuda.device_ascent import DeviceDuals, Place

_PROBE = 2  # sweeps of a first look at how long rows take
_BATCH = 16  # sweeps with the interface free between two looks at the clock
_LONGEST = 0.25  # seconds of a launch: nothing can stop a GPU in between


def improve_on_gpu(
    requests: Sequence[BoundRequest], backend: Backend, seconds: float | None = None, sweeps: int | None = None
) -> list[Pruned | None] | None:
    """Tighten the bounds of several agents on the GPU.

    Parameters
    ----------
    seconds, sweeps
        As in :meth:`dmcmc.inference.bounds.contract.protocol.BoundState.improve`, for all agents together.

    Returns
    -------
    list or None
        For each request what is left of its rows, None without thresholds. None in place of the list where the GPU
        cannot do it: the agents are then to be improved one by one.
    """
    from dmcmc.inference.bounds.dual.cuda.device_ascent import places, takes

    states = [request.state for request in requests if isinstance(request.state, DualState)]
    if not states or len(states) < len(requests) or not all(map(takes, states)):
        return None
    try:
        return _Work(requests, states, places(states, backend.sharers), backend.stop).improve(seconds, sweeps)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        for state in states:
            state.return_here()
        shared_device().release()
        return None


class _Work:
    """One call: where the agents are on the device, and the rows of each."""

    def __init__(
        self, requests: Sequence[BoundRequest], states: Sequence[DualState], places: "Sequence[Place]", stop: Stop
    ) -> None:
        self.requests, self.states, self.places, self.stop = requests, states, places, stop
        self.rows: list[NDArray[np.int64]] = []
        self.limits: list[NDArray[np.int64] | None] = []
        self.groups: dict[int, list[int]] = {}
        for k, (request, state) in enumerate(zip(requests, states, strict=True)):
            if request.thresholds is None:
                rows, limits = state.rows(request.rows), None
            else:
                rows, limits = state.reaching(request.thresholds, request.rows)
            self.rows.append(rows)
            self.limits.append(limits)
            self.groups.setdefault(id(places[k].group), []).append(k)

    def _device(self, group: Sequence[int]) -> "DeviceDuals":
        return self.places[group[0]].group

    def improve(self, seconds: float | None, sweeps: int | None) -> list[Pruned | None]:
        """Ascend with the interface free, then in the rows."""
        if seconds is None:
            wanted = 10 if sweeps is None else sweeps
            self._shift([SHIFTS * wanted - state.done for state in self.states])
            return self._run(wanted)
        start = time.perf_counter()
        end, pace, batch = start + seconds, 0.0, 1
        while self._least_done() < FIRST_SHIFTS and time.perf_counter() < start + FIRST_SHARE * seconds:
            pace = self._timed_shift(batch)
            batch = self._batch(2 * batch, pace)
        begin = time.perf_counter()
        left = self._run(_PROBE)
        row_pace = (time.perf_counter() - begin) / _PROBE
        pace = pace or self._timed_shift(1)
        # For each sweep of the rows SHIFTS of the free interface, as on the CPU; the rows' launch is the last.
        most = max(1, int(_LONGEST / (row_pace * self._wave())))
        count = min(int((end - time.perf_counter()) / (SHIFTS * pace + row_pace)), most)
        if count <= _PROBE:
            return left
        until = end - count * row_pace
        batch = self._batch(_BATCH, pace)
        while time.perf_counter() + batch * pace < until and self._least_done() < inf:
            pace = self._timed_shift(batch)
        count = min(int((end - time.perf_counter()) / row_pace), most)
        return self._run(count) if count > _PROBE and not self.stop.over else left

    def _batch(self, sweeps: int, pace: float) -> int:
        """Return so many sweeps or fewer, at most :data:`_BATCH`, that a launch is not too long."""
        return max(1, min(sweeps, _BATCH, int(_LONGEST / max(pace, 1e-9))))

    def _wave(self) -> float:
        """Return which part of the rows a launch has at least: one for each block that runs at once."""
        rows = sum(own.size for own in self.rows)
        return min(1.0, max(self._device(group).blocks for group in self.groups.values()) / max(1, rows))

    def _least_done(self) -> float:
        """Return the fewest sweeps of a state that can take more; inf if none can, or it is time to stop."""
        return inf if self.stop.over else min((state.done for state in self.states if state.fits), default=inf)

    def _timed_shift(self, sweeps: int) -> float:
        """Return the seconds of each of some sweeps with the interface free."""
        start = time.perf_counter()
        self._shift([sweeps] * len(self.states))
        return (time.perf_counter() - start) / sweeps

    def _shift(self, sweeps: Sequence[int]) -> None:
        for group in self.groups.values():
            chosen = [k for k in group if sweeps[k] > 0 and self.states[k].fits]
            firsts = [self.states[k].done for k in chosen]
            lasts = [first + sweeps[k] for k, first in zip(chosen, firsts, strict=True)]
            made = self._device(group).shift([self.places[k].number for k in chosen], firsts, lasts)
            for k, last, wanted in zip(chosen, made, lasts, strict=True):
                self.states[k].moved(last, last == wanted)

    def _run(self, sweeps: int) -> list[Pruned | None]:
        """Lower the bounds of all rows; return what is left of them."""
        left: list[Pruned | None] = [None] * len(self.requests)
        for group in self.groups.values():
            rows, limits = [self.rows[k] for k in group], [self.limits[k] for k in group]
            found = self._device(group).run([self.places[k].number for k in group], rows, sweeps, limits, self.stop)
            for k, own, limit, (bounds, live) in zip(group, rows, limits, found, strict=True):
                state, thresholds = self.states[k], self.requests[k].thresholds
                state.bounds[own] = np.minimum(state.bounds[own], bounds)
                if thresholds is not None and limit is not None and not self.stop.over:  # else not all were reached
                    left[k] = state.pruned(own, limit, thresholds, live)
        return left
