"""Bounds of several agents at once: on a GPU, where there is one and the agents' provider can use it."""

import time
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import BoundState, Pruned, Rows
from dmcmc.inference.bounds.dual.state import FIRST_SHARE, FIRST_SHIFTS, SHIFTS, DualState
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device

if TYPE_CHECKING:
    from dmcmc.inference.bounds.dual.cuda.device import DeviceDuals

_PROBE = 2  # sweeps of a first look at how long rows take
_BATCH = 16  # sweeps with the interface free between two looks at the clock
_LONGEST = 1.0  # seconds that rows are worked on at once: nothing can stop a GPU in between


class Wish(NamedTuple):
    """What is wanted of one agent's bound.

    Attributes
    ----------
    state : BoundState
    rows : sequence of int or None
        Those that still matter; None for all.
    thresholds : (rows of the interface,) or None
        As in :meth:`dmcmc.inference.bounds.contract.protocol.PruningState.prune`; None removes no values.
    """

    state: BoundState
    rows: Rows | None = None
    thresholds: NDArray[Any] | None = None


def improve_on_gpu(
    wishes: Sequence[Wish], backend: Backend, seconds: float | None = None, sweeps: int | None = None
) -> list[Pruned | None] | None:
    """Tighten the bounds of several agents on the GPU.

    Parameters
    ----------
    seconds, sweeps
        As in :meth:`dmcmc.inference.bounds.contract.protocol.BoundState.improve`, for all agents together.

    Returns
    -------
    list or None
        For each wish what is left of its rows, None without thresholds. None in place of the list where the GPU cannot
        do it: the agents are then to be improved one by one.
    """
    from dmcmc.inference.bounds.dual.cuda.device import takes

    states = [wish.state for wish in wishes if isinstance(wish.state, DualState)]
    if not states or len(states) < len(wishes) or not all(map(takes, states)):
        return None
    try:
        return _Work(wishes, states, backend).improve(seconds, sweeps)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        for state in states:
            state.leave_device()
        shared_device().release()
        return None


class _Work:
    """One call: where the agents are on the device, and the rows of each."""

    def __init__(self, wishes: Sequence[Wish], states: Sequence[DualState], backend: Backend) -> None:
        from dmcmc.inference.bounds.dual.cuda.device import DeviceDuals

        self.wishes, self.states, self.stop = wishes, states, backend.stop
        for width in sorted({s.width for s in states if s.on_device is None}):
            new = [s for s in states if s.on_device is None and s.width == width]
            group = DeviceDuals(new, backend.sharers)
            for place, state in enumerate(new):
                state.on_device = group, place
        self.rows: list[NDArray[np.int64]] = []
        self.limits: list[NDArray[np.int64] | None] = []
        self.groups: dict[int, list[int]] = {}
        for k, (wish, state) in enumerate(zip(wishes, states, strict=True)):
            if wish.thresholds is None:
                rows, limits = state.rows(wish.rows), None
            else:
                rows, limits = state.reaching(wish.thresholds, wish.rows)
            self.rows.append(rows)
            self.limits.append(limits)
            self.groups.setdefault(id(self._device(k)), []).append(k)

    def _device(self, k: int) -> "DeviceDuals":
        on_device = self.states[k].on_device
        assert on_device is not None
        return on_device[0]

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
            batch = min(2 * batch, _BATCH)
        begin = time.perf_counter()
        left = self._run(_PROBE)
        row_pace = (time.perf_counter() - begin) / _PROBE
        pace = pace or self._timed_shift(1)
        # For each sweep of the rows SHIFTS of the free interface, as on the CPU; the rows' launch is the last.
        most = int(_LONGEST / row_pace)
        count = min(int((end - time.perf_counter()) / (SHIFTS * pace + row_pace)), most)
        if count <= _PROBE:
            return left
        until = end - count * row_pace
        while time.perf_counter() + _BATCH * pace < until and self._least_done() < inf:
            pace = self._timed_shift(_BATCH)
        count = min(int((end - time.perf_counter()) / row_pace), most)
        return self._run(count) if count > _PROBE and not self.stop.over else left

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
            device = self._device(group[0])
            chosen = [k for k in group if sweeps[k] > 0 and self.states[k].fits]
            places = [self._place(k) for k in chosen]
            firsts = [self.states[k].done for k in chosen]
            lasts = [first + sweeps[k] for k, first in zip(chosen, firsts, strict=True)]
            made = device.shift(places, firsts, lasts)
            for k, place, last, wanted in zip(chosen, places, made, lasts, strict=True):
                self.states[k].moved(last, last == wanted, partial(device.shares, place))

    def _run(self, sweeps: int) -> list[Pruned | None]:
        """Lower the bounds of all rows; return what is left of them."""
        left: list[Pruned | None] = [None] * len(self.wishes)
        for group in self.groups.values():
            rows, limits = [self.rows[k] for k in group], [self.limits[k] for k in group]
            found = self._device(group[0]).run([self._place(k) for k in group], rows, sweeps, limits)
            for k, own, limit, (bounds, live) in zip(group, rows, limits, found, strict=True):
                state, thresholds = self.states[k], self.wishes[k].thresholds
                state.bounds[own] = np.minimum(state.bounds[own], bounds)
                if thresholds is not None and limit is not None:
                    left[k] = state.pruned(own, limit, thresholds, live)
        return left

    def _place(self, k: int) -> int:
        on_device = self.states[k].on_device
        assert on_device is not None
        return on_device[1]
