"""Best-first search in an agent's rows, as long as there is time, with the dual bound at the nodes."""

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branching import node_kernels
from dmcmc.inference.bounds.branching.pool import STUCK, UNDONE, Found, Wave, make_pool, slot_bytes
from dmcmc.inference.bounds.branching.tree import Tree
from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.dual.scale import THRESHOLD
from dmcmc.inference.bounds.dual.state import DualState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.threads import run_watched

WAVE = 32  # nodes at which a wave branches on the CPU, whatever the number of threads
ROOT_SWEEPS, SWEEPS = 24, 8
LEAST_SLOTS = 3  # a node and its two branches
MOST_NODES = 1 << 20  # that may be open


class Engine(Protocol):
    """Where the tables of nodes are, and what works on them.

    Attributes
    ----------
    slots : int
        How many nodes have tables at a time.
    width : int
        At how many nodes a wave branches.
    """

    slots: int
    width: int

    def run(self, wave: Wave, stop: Stop) -> Found:
        """Work on a wave of nodes; some are left undone when it is time to stop."""
        ...


class CpuEngine:
    """Nodes' tables in memory, a thread a node."""

    def __init__(self, state: DualState, room: int) -> None:
        hidden, width = state.layout.hidden, state.width
        self.slots = room // slot_bytes(hidden, width)
        self.width = WAVE
        self._state, self._shape = state, np.array(state.local.interface_shape, dtype=np.int64)
        self._pool = make_pool(hidden, width, self.slots)

    def run(self, wave: Wave, stop: Stop) -> Found:
        """Work on a wave of nodes."""
        state, layout, width = self._state, self._state.layout, self._state.width
        count, halt = len(wave.jobs), np.zeros(1, dtype=np.uint8)
        found = Found(
            np.full(count, UNDONE, dtype=np.int64),
            wave.masks.copy(),
            np.full(count, STUCK, dtype=np.int64),
            np.zeros(count, dtype=np.int64),
        )
        kernel, shares = cast(Callable[..., None], node_kernels.run_nodes), state.shares

        def group(first: int, last: int) -> None:
            kernel(
                layout.whole, shares, layout.hidden, layout.slices, self._shape, self._pool,
                wave.jobs[first:last], found.masks[first:last], found.bounds[first:last],
                found.variables[first:last], found.values[first:last],
                np.zeros((3, width, width), dtype=np.int32), halt,
            )  # fmt: skip

        tasks = [partial(group, first, last) for first, last in pairwise(wave.groups.tolist())]
        run_watched(tasks, state.backend.threads, stop, halt)
        return found


class RowSearch:
    """Search in an agent's rows.

    Attributes
    ----------
    nodes : int
        That have been worked on.
    """

    def __init__(self, state: DualState, engine: Engine) -> None:
        self.state, self.engine = state, engine
        hidden = state.shares.unary[: state.layout.n_hidden]
        self._tree = Tree(hidden >= THRESHOLD, state.bounds, state.layout.scale, engine.slots)

    @property
    def nodes(self) -> int:
        """How many nodes have been worked on."""
        return self._tree.nodes

    @property
    def exhausted(self) -> bool:
        """Whether nothing is to be searched: nothing is open, or too much, or there is no room."""
        return not 0 < self._tree.size <= MOST_NODES or self.engine.slots < LEAST_SLOTS

    def search(
        self,
        thresholds: NDArray[Any],
        limits: NDArray[Any],
        rows: Rows | None = None,
        seconds: float | None = None,
        waves: int | None = None,
    ) -> None:
        """Lower the bounds of rows that reach their thresholds.

        Parameters
        ----------
        thresholds, rows, seconds
            As in :meth:`dmcmc.inference.bounds.contract.protocol.PruningState.prune`.
        limits : (rows of the interface,)
            Utilities: what a row has to exceed to be in anything better. The row that is furthest beyond is the first.
        waves
            In place of seconds: how much work. The result is then the same on any number of threads.
        """
        state = self.state
        chosen, scale = state.rows(rows), state.layout.scale
        encoded = [scale.encode_all(np.asarray(each)[chosen]) for each in (thresholds, limits)]
        self._tree.begin(state.bounds, chosen, *encoded)
        stop = state.backend.stop if seconds is None else state.backend.stop.by(time.perf_counter() + seconds)
        left = -1 if waves is None else waves
        while left != 0 and not self.exhausted and not (seconds is not None and stop.over):
            chosen, wave = self._tree.wave(self.engine.width, ROOT_SWEEPS, SWEEPS)
            self._tree.take(chosen, wave, self.engine.run(wave, stop))
            left -= 1
        self._take()

    def _take(self) -> None:
        """Lower the state's bounds."""
        rows, bounds = self._tree.bounds()
        self.state.bounds[rows] = np.minimum(self.state.bounds[rows], bounds)


def compile_branching() -> None:
    """Compile what a search uses."""
    local = LocalProblem(0, (), (0, 1), (Factor.of((0, 1), [[0, 1], [1, 0]]),), np.full(2, 2))
    state = DualState(local, triangles=True)
    search = RowSearch(state, CpuEngine(state, 1 << 20))
    search.search(np.array([-np.inf]), np.array([-np.inf]), waves=1)
