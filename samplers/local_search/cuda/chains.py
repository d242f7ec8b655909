"""Chains over the whole assignment on the GPU, all of which cool at the same time, in launches of some milliseconds."""

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.device import gpu_limits, shared_device
from dmcmc.samplers.local_search.chains import Range
from dmcmc.samplers.local_search.cuda.graph_chain_kernels import REGISTERS, anneal_chains
from dmcmc.samplers.local_search.cuda.layout import Layout, bytes_shared, fits, lay_out
from dmcmc.samplers.local_search.factor_graph import Graph
from dmcmc.samplers.local_search.graph_chain_kernels import typical_spread
from dmcmc.samplers.local_search.graph_kernels import weigh
from dmcmc.samplers.model.draw_kernels import rate_of, share_unit

STEPS = 3  # sweeps at temperature 0 after those that cool
_PASS = 0.015  # seconds of a launch, about: nothing can stop it, and others may want the device
# The part of a multiprocessor's threads that chains have beside other work on the device; blocks of it, at most.
_BESIDE, _MOST_OF_A_PROCESSOR = 0.5, 16
_LEAST, _MOST, _MOST_VALUES = 8, 2048, 1 << 24  # chains; values of all chains
_MEMORY = 1 / 16  # of what the device has for tables

_RECORDS = ("pair_start", "pairs", "wide_start", "wide_at", "wide", "long_start", "long")
_KINDS = (np.int32, np.int64, np.float64, np.float32)  # of the kernel's arrays

Values = NDArray[np.int64]
rate = getattr(rate_of, "py_func", rate_of)
unit_of = getattr(share_unit, "py_func", share_unit)


class Schedule(NamedTuple):
    """How the chains of a heat cool.

    Attributes
    ----------
    spans : sequence of Range
        In typical spreads of a conditional.
    of_chain : (chains,) int
        Which of the spans each chain has.
    spread : float
    sweeps : int
        That cool; :data:`STEPS` at temperature 0 follow.
    """

    spans: Sequence[Range]
    of_chain: NDArray[np.int64]
    spread: float
    sweeps: int

    def rates(self) -> NDArray[np.float32]:
        """Return log2(e) / temperature of each sweep of each span; 0 at temperature 0."""
        found = np.zeros((len(self.spans), self.sweeps + STEPS), dtype=np.float32)
        for i, span in enumerate(self.spans):
            cooling = np.geomspace(span.first, span.last, self.sweeps) * self.spread
            found[i, : self.sweeps] = [rate(float(temperature)) for temperature in cooling]
        return found

    def penalties(self, whole: bool) -> NDArray[np.float64]:
        """Return what violations cost: whole numbers where utilities are, so that sums are exact."""
        costs = np.array([span.penalty * self.spread for span in self.spans])
        return (np.ceil(costs) if whole else costs).astype(np.float32).astype(np.float64)


class DeviceChains:
    """Chains on the GPU.

    Parameters
    ----------
    graph : Graph
        For which :func:`usable` holds.
    key : (2,) uint64
        Of random numbers.
    layout, chains
        As threads are divided, and how many chains there are of that; what suits the graph and the device if not given.

    Attributes
    ----------
    chains : int
        How many there are.
    turns, turn : int
        Of a heat, and that have been made.
    """

    def __init__(
        self,
        graph: Graph,
        key: NDArray[np.uint64],
        layout: Layout | None = None,
        chains: Callable[[Layout], int] | None = None,
    ) -> None:
        self.graph, self.key, self._device = graph, (int(key[0]), int(key[1])), shared_device()
        self.layout, self.n = layout or lay_out(graph), graph.domains.size
        self.chains, self.turns, self.turn, self._number = chains_of(self.layout, self.n), 0, 0, 0
        self.chains = self.chains if chains is None else chains(self.layout)
        self._stream, self._at_once = self._device.stream_beside(), 1
        up, own = self._device.upload, self.layout
        self._whole = graph.data.dtype.kind == "i"
        never = int(graph.never) if self._whole else float(graph.never)
        self._problem = (
            up("whole domains", graph.domains.astype(np.int32))[: self.n], up("whole data", graph.data), never,
            up("whole order", own.order), up("whole parts", own.part_start)[: own.part_start.size],
            *(up(f"whole {name}", getattr(own, name)) for name in _RECORDS),
            *(up(f"whole graph {name}", getattr(graph, name)) for name in ("scope_start", "scope", "stride")),
            up("whole following", graph.following), int(graph.first_step),
        )  # fmt: skip
        self._device.synchronize()  # the chains' stream does not wait for copies

    @cached_property
    def _unit(self) -> np.float32:
        return np.float32(unit_of(self.graph.widest))

    def begin(self, states: NDArray[Any], worths: NDArray[np.float64], schedule: Schedule) -> None:
        """Begin a heat.

        Parameters
        ----------
        states : (chains, n)
            Where the chains begin.
        worths : (chains, 2)
            Violations, negated, and utility of these.
        """
        up, rates = self._device.upload, schedule.rates()
        flat = states.astype(np.int32).reshape(-1)
        self._zs, self._kept = up("whole z", flat), up("whole kept", flat)
        self._nows, self._bests = up("whole now", worths.reshape(-1)), up("whole best", np.full(worths.size, -np.inf))
        self._heat = (
            up("whole schedule", schedule.of_chain.astype(np.int32)), up("whole rates", rates.reshape(-1)),
            up("whole penalties", schedule.penalties(self._whole)), rates.shape[1], self._unit,
        )  # fmt: skip
        self._device.synchronize()
        self._number += self.chains if self.turns else 0
        self.turns, self.turn = rates.shape[1] * self.layout.parts, 0

    @property
    def through(self) -> bool:
        """Whether a heat is over."""
        return self.turn >= self.turns

    def advance(self) -> float:
        """Go on with all chains for some milliseconds; return how long that took, seconds."""
        last, own, begun = min(self.turns, self.turn + self._at_once), self.layout, time.perf_counter()
        threads, words = own.lanes * own.groups, bytes_shared(own.groups, self.graph.widest)
        anneal_chains[self.chains, threads, self._stream, words](
            *self._problem, *self._heat, self.turn, last, own.lanes, self.graph.widest, self._number, *self.key,
            self._zs, self._kept, self._nows, self._bests,
        )  # fmt: skip
        self._stream.synchronize()
        took, made = time.perf_counter() - begun, last - self.turn
        self.turn = last
        if made == self._at_once or took > _PASS:
            self._at_once = max(1, min(2 * self._at_once, int(_PASS * made / max(took, 1e-5))))
        return took

    def bests(self) -> NDArray[np.float64]:
        """Return the worths of the chains' best states, (chains, 2)."""
        worths: NDArray[np.float64] = self._fetched(self._bests, 2)
        return worths

    def best(self, chain: int) -> Values:
        """Return a chain's best state."""
        part = self._kept[chain * self.n : (chain + 1) * self.n]
        values: Values = np.asarray(part.copy_to_host()).astype(np.int64)
        return values

    def ends(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return where the chains are now, (chains, n), and what that is worth, (chains, 2)."""
        return self._fetched(self._zs, self.n), self._fetched(self._nows, 2)

    def _fetched(self, held: Any, width: int) -> Any:
        return held.copy_to_host()[: self.chains * width].reshape(self.chains, width)


def usable(graph: Graph) -> bool:
    """Return whether the GPU can have chains on a graph: its numbers fit a kernel's, and the device's memory."""
    if not fits(graph):
        return False
    records = 8 * graph.scope.size * int(np.diff(graph.scope_start).max(initial=1))
    held = graph.data.nbytes + graph.following.nbytes + 24 * graph.scope.size + min(records, 1 << 62)
    return held + 8 * _MOST_VALUES <= _MEMORY * shared_device().limit


def chains_of(layout: Layout, n: int, alone: bool = True) -> int:
    """Return how many chains run at once, all at the same time; on a part of the device where they are not alone."""
    _, processors, threads = gpu_limits(REGISTERS)
    own = threads if alone else int(_BESIDE * threads)
    each = min(_MOST_OF_A_PROCESSOR, max(1, own // (layout.lanes * layout.groups)))
    return max(_LEAST, min(_MOST, processors * each, _MOST_VALUES // n)) & ~1  # half of them go on


def load_kernels(graph: Graph) -> None:
    """Compile what searches graphs of these numbers, or find it on disk."""
    device, whole = shared_device(), graph.data.dtype.kind == "i"
    lay_out(graph)
    typical_spread(graph, np.zeros(graph.domains.size, dtype=np.int64), np.zeros((3, graph.widest)))
    weigh(graph, np.zeros(graph.domains.size, dtype=np.int64), np.zeros((3, 1)))
    ints, longs, floats, singles = (device.buffer("whole none", 1, np.dtype(kind)) for kind in _KINDS)
    data, never = (ints, 0) if whole else (floats, 0.0)
    device.load(
        anneal_chains,
        (ints, data, never, *[ints] * 9, longs, longs, longs, ints, 0, ints, singles, floats, 1, np.float32(1), 0, 0,
         1, 1, 0, 0, 0, ints, ints, floats, floats),
    )  # fmt: skip
