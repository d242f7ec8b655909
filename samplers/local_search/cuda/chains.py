"""Annealed chains over complete assignments on the GPU, all run together in launches of some milliseconds.

A *sweep* draws every variable once, given the others, part by part: the variables of a *part* share no factor and are
drawn simultaneously. A *step* is one part of one sweep. Each chain anneals over one temperature range (*span*).
"""

import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.runtime.device import gpu_limits, shared_device
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.local_search.chains import TemperatureRange
from dmcmc.samplers.local_search.cuda.graph_chain_kernels import REGISTERS, anneal_chains
from dmcmc.samplers.local_search.cuda.layout import DeviceFactorGraph, bytes_shared, fits, lay_out
from dmcmc.samplers.local_search.graph_kernels import evaluate_graph, typical_spread
from dmcmc.samplers.model.draw_kernels import best_value_weight, rate_of

_MAX_BLOCKS_PER_MULTIPROCESSOR = 16

_LAYOUT_ARRAYS = ("pair_start", "pairs", "wide_start", "wide_at", "wide", "automaton_start", "automata")
_DTYPES = (np.int32, np.int64, np.float64, np.float32)  # dtypes of the kernel's arrays

Values = NDArray[np.int64]
rate = getattr(rate_of, "py_func", rate_of)
unit_of = getattr(best_value_weight, "py_func", best_value_weight)


class AnnealingSchedule(NamedTuple):
    """The temperatures of the chains in a round.

    Attributes
    ----------
    spans : sequence of TemperatureRange
        In typical deviations of a variable's conditional utilities.
    of_chain : (chains,) int64
        Index in ``spans`` for each chain.
    spread : float
        The typical spread, in units of utility.
    sweeps : int
        Number of annealed sweeps; ``GRAPH_DESCENT_SWEEPS`` sweeps at temperature 0 follow.
    """

    spans: Sequence[TemperatureRange]
    of_chain: NDArray[np.int64]
    spread: float
    sweeps: int

    def rates(self) -> NDArray[np.float32]:
        """Return log2(e) / temperature per span and sweep, (spans, all sweeps); 0 stands for temperature 0."""
        rates = np.zeros((len(self.spans), self.sweeps + tuning.GRAPH_DESCENT_SWEEPS), dtype=np.float32)
        for i, span in enumerate(self.spans):
            cooling = np.geomspace(span.first, span.last, self.sweeps) * self.spread
            rates[i, : self.sweeps] = [rate(float(temperature)) for temperature in cooling]
        return rates

    def penalties(self, integral: bool) -> NDArray[np.float64]:
        """Return the penalty of a violation per span; integers if utilities are integers, so that sums are exact."""
        costs = np.array([span.penalty * self.spread for span in self.spans])
        return (np.ceil(costs) if integral else costs).astype(np.float32).astype(np.float64)


class DeviceAnnealingChains:
    """Annealed chains on the GPU.

    Parameters
    ----------
    graph : FactorGraph
        A graph for which :func:`fits_device` returns True.
    key : (2,) uint64
        Key of the random numbers.
    layout : DeviceFactorGraph, optional
        The graph in the kernel's layout; computed if not given.
    chains : callable, optional
        Returns the number of chains for a layout; as many as the device runs at once if not given.

    Attributes
    ----------
    chains : int
        Number of chains.
    n : int
        Number of variables.
    steps, step : int
        Number of steps in the round, and steps made. A step draws the variables of one part of a sweep.
    """

    def __init__(
        self,
        graph: FactorGraph,
        key: NDArray[np.uint64],
        layout: DeviceFactorGraph | None = None,
        chains: Callable[[DeviceFactorGraph], int] | None = None,
    ) -> None:
        self.graph, self.key, self._device = graph, (int(key[0]), int(key[1])), shared_device()
        self.layout, self.n = layout or lay_out(graph), graph.domains.size
        self.chains, self.steps, self.step, self._number = chains_of(self.layout, self.n), 0, 0, 0
        self.chains = self.chains if chains is None else chains(self.layout)
        self._stream, self._steps_per_launch = self._device.background_stream(), 1
        hold, arrays = partial(self._device.hold, owner=self), self.layout
        self._integral = graph.data.dtype.kind == "i"
        forbidden_entry = int(graph.forbidden_entry) if self._integral else float(graph.forbidden_entry)
        self._problem = (
            hold(graph.domains.astype(np.int32)), hold(graph.data), forbidden_entry, hold(arrays.order),
            hold(arrays.part_start), *(hold(getattr(arrays, name)) for name in _LAYOUT_ARRAYS),
            *(hold(getattr(graph, name)) for name in ("scope_start", "scope", "stride")), hold(graph.following),
            int(graph.first_step),
        )  # fmt: skip
        states, scores = np.zeros(self.chains * self.n, dtype=np.int32), np.zeros(2 * self.chains)
        self._states, self._best_states = hold(states), hold(states)
        self._scores, self._best_scores = hold(scores), hold(scores)
        self._device.synchronize()  # the chains' stream does not wait for these copies

    @cached_property
    def _unit(self) -> np.float32:
        """The integer weight of the best value of a draw, so small that the sum of all weights fits 31 bits."""
        return np.float32(unit_of(self.graph.widest))

    def begin(self, states: NDArray[Any], scores: NDArray[np.float64], schedule: AnnealingSchedule) -> None:
        """Begin a round.

        Parameters
        ----------
        states : (chains, n) int
            Start states of the chains.
        scores : (chains, 2) float64
            Violations, negated, and utility of the states.
        schedule : AnnealingSchedule
            Temperatures of the round.
        """
        flat, rates, self._schedule = states.astype(np.int32).reshape(-1), schedule.rates(), _ScheduleOwner()
        hold = partial(self._device.hold, owner=self._schedule)
        for memory, data in (
            (self._states, flat), (self._best_states, flat), (self._scores, scores.reshape(-1)),
            (self._best_scores, np.full(scores.size, -np.inf)),
        ):  # fmt: skip
            memory.copy_to_device(data)
        self._round = (
            hold(schedule.of_chain.astype(np.int32)), hold(rates), hold(schedule.penalties(self._integral)),
            rates.shape[1], self._unit,
        )  # fmt: skip
        self._device.synchronize()
        self._number += self.chains if self.steps else 0
        self.steps, self.step = rates.shape[1] * self.layout.parts, 0

    @property
    def finished(self) -> bool:
        """Whether the round is complete."""
        return self.step >= self.steps

    def advance(self) -> float:
        """Advance all chains by one launch of some milliseconds; return its time in seconds."""
        last, layout, begun = min(self.steps, self.step + self._steps_per_launch), self.layout, time.perf_counter()
        threads, shared_bytes = layout.lanes * layout.groups, bytes_shared(layout.groups, self.graph.widest)
        anneal_chains[self.chains, threads, self._stream, shared_bytes](
            *self._problem, *self._round, self.step, last, layout.lanes, self.graph.widest, self._number, *self.key,
            self._states, self._best_states, self._scores, self._best_scores,
        )  # fmt: skip
        self._stream.synchronize()
        seconds, made = time.perf_counter() - begun, last - self.step
        self.step = last
        if made == self._steps_per_launch or seconds > tuning.CHECK_SECONDS:
            self._steps_per_launch = max(
                1, min(2 * self._steps_per_launch, int(tuning.CHECK_SECONDS * made / max(seconds, 1e-5)))
            )
        return seconds

    def bests(self) -> NDArray[np.float64]:
        """Return the scores of the chains' best states, (chains, 2) float64."""
        scores: NDArray[np.float64] = self._fetched(self._best_scores, 2)
        return scores

    def best(self, chain: int) -> Values:
        """Return a chain's best state, (n,) int64."""
        part = self._best_states[chain * self.n : (chain + 1) * self.n]
        values: Values = np.asarray(part.copy_to_host()).astype(np.int64)
        return values

    def ends(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the current states of the chains, (chains, n) int32, and their scores, (chains, 2) float64."""
        return self._fetched(self._states, self.n), self._fetched(self._scores, 2)

    def _fetched(self, held: Any, width: int) -> Any:
        """Copy an array from the device and return it as (chains, width)."""
        return held.copy_to_host()[: self.chains * width].reshape(self.chains, width)


class _ScheduleOwner:
    """Keeps the memory of a round's schedule."""


def fits_device(graph: FactorGraph) -> bool:
    """Return whether chains on a graph fit the GPU: the kernel's 32-bit offsets and the device memory."""
    if not fits(graph):
        return False
    records = 8 * graph.scope.size * int(np.diff(graph.scope_start).max(initial=1))
    held = graph.data.nbytes + graph.following.nbytes + 24 * graph.scope.size + min(records, 1 << 62)
    return held + 8 * tuning.MAX_COPIED_ENTRIES <= tuning.COPY_MEMORY_SHARE * shared_device().limit


def chains_of(layout: DeviceFactorGraph, n: int, alone: bool = True) -> int:
    """Return how many chains run at once; fewer if the device has other work, too (``alone`` is False)."""
    _, processors, threads = gpu_limits(REGISTERS)
    usable_threads = threads if alone else threads // 2
    blocks = min(_MAX_BLOCKS_PER_MULTIPROCESSOR, max(1, usable_threads // (layout.lanes * layout.groups)))
    most = min(2 * tuning.GPU_CHAINS, tuning.MAX_COPIED_ENTRIES // n)
    return max(len(tuning.COMPETING_RANGES), min(most, processors * blocks)) & ~1  # even: half of them continue


def load_kernels(graph: FactorGraph) -> None:
    """Compile the kernels for a graph's dtypes, or load them from disk."""
    device, integral = shared_device(), graph.data.dtype.kind == "i"
    lay_out(graph)
    typical_spread(graph, np.zeros(graph.domains.size, dtype=np.int64), np.zeros((3, graph.widest)))
    evaluate_graph(graph, np.zeros(graph.domains.size, dtype=np.int64), np.zeros((3, 1)))
    ints, longs, floats, singles = (device.buffer("whole none", 1, np.dtype(dtype)) for dtype in _DTYPES)
    data, forbidden_entry = (ints, 0) if integral else (floats, 0.0)
    device.load(
        anneal_chains,
        (ints, data, forbidden_entry, *[ints] * 9, longs, longs, longs, ints, 0, ints, singles, floats, 1,
         np.float32(1), 0, 0, 1, 1, 0, 0, 0, ints, ints, floats, floats),
    )  # fmt: skip
