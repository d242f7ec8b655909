"""What works on the nodes of a wave: here threads, elsewhere a GPU; nodes of several agents at once."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound import node_kernels
from dmcmc.inference.bounds.branch_and_bound.node_buffers import (
    STUCK,
    UNDONE,
    Area,
    Found,
    Wave,
    make_area,
    make_pool,
    slot_bytes,
)
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import SCRATCH
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.threads import run_watched

WAVE = 64  # nodes at which a wave branches on the CPU, whatever the number of threads and agents


class Workers(Protocol):
    """What several agents' nodes share."""

    def run(self, waves: "Sequence[tuple[Engine, Wave]]", stop: Stop) -> list[Found]:
        """Work on a wave of each engine, on all of them at once; some nodes are left undone when it is time to stop."""
        ...


class Engine(Protocol):
    """Where the tables of an agent's nodes are, and what works on them."""

    @property
    def slots(self) -> int:
        """How many nodes have tables at a time."""
        ...

    @property
    def width(self) -> int:
        """At how many nodes, of all agents, a wave branches."""
        ...

    @property
    def workers(self) -> Workers:
        """The same object for all engines whose nodes can be worked on at once."""
        ...


class CpuWorkers:
    """Threads: each takes the next group of jobs, whosever it is."""

    def run(self, waves: "Sequence[tuple[Engine, Wave]]", stop: Stop) -> list[Found]:
        """Work on a wave of each engine."""
        halt, tasks, found, threads = np.zeros(1, dtype=np.uint8), list[Callable[[], None]](), list[Found](), 1
        for engine, wave in waves:
            assert isinstance(engine, CpuEngine)
            own, results = engine.tasks(wave, halt)
            tasks += own
            found.append(results)
            threads = max(threads, engine.state.backend.threads)
        run_watched(tasks, threads, stop, halt)
        return found


_THREADS = CpuWorkers()


class CpuEngine:
    """Nodes' tables in memory."""

    def __init__(self, state: DualState, room: int) -> None:
        hidden, width = state.layout.hidden, state.width
        self.slots = room // slot_bytes(hidden, width)
        self.width, self.workers, self.state = WAVE, _THREADS, state
        self._shape = np.array(state.local.interface_shape, dtype=np.int64)
        self._pool = make_pool(hidden, width, self.slots)
        self._areas = list[Area]()  # where nodes are worked on, one for each thread that has been at it

    def tasks(self, wave: Wave, halt: NDArray[np.uint8]) -> tuple[list[Callable[[], None]], Found]:
        """Return what is to be done for a wave, a call for each of its groups, and where the results will be."""
        state, layout, width = self.state, self.state.layout, self.state.width
        count = len(wave.jobs)
        found = Found(
            np.full(count, UNDONE, dtype=np.int64),
            wave.masks.copy(),
            np.full(count, STUCK, dtype=np.int64),
            np.zeros((count, width), dtype=np.bool_),
        )
        kernel, shares = cast(Callable[..., None], node_kernels.run_nodes), state.shares

        def group(first: int, last: int) -> None:
            area = self._areas.pop() if self._areas else make_area(layout.hidden, width)
            kernel(
                layout.whole, shares, layout.hidden, layout.slices, self._shape, self._pool, area,
                wave.jobs[first:last], found.masks[first:last], found.bounds[first:last],
                found.variables[first:last], found.firsts[first:last], state.row_warmth,
                np.zeros((SCRATCH, width, width), dtype=np.int32), halt,
            )  # fmt: skip
            self._areas.append(area)

        return [partial(group, first, last) for first, last in pairwise(wave.groups.tolist())], found


def run_waves(waves: Sequence[tuple[Engine, Wave]], stop: Stop) -> list[Found]:
    """Work on waves, those of the same workers at once."""
    found: list[Found | None] = [None] * len(waves)
    for workers in {id(engine.workers): engine.workers for engine, _ in waves}.values():
        own = [k for k, (engine, _) in enumerate(waves) if engine.workers is workers]
        for k, one in zip(own, workers.run([waves[k] for k in own], stop), strict=True):
            found[k] = one
    return [one for one in found if one is not None]
