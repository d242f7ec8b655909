"""Run a sampler's chains on the CPU: every row, every run, best state kept (DMCMC paper, Algorithm 2 lines 9-10)."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.stop import NO_STOP
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.samplers.contract.compile_error import explain
from dmcmc.samplers.contract.protocol import SampledTable, Sampler, Settings
from dmcmc.samplers.cpu.chain_kernels import compile_chains
from dmcmc.samplers.model.chain_model import MOST_ENTRIES, build_model, column_entries, flatten_local
from dmcmc.samplers.model.evaluation import evaluate_rows
from dmcmc.samplers.model.rng import chain_key
from dmcmc.samplers.model.rounds import one_round

_NONE = np.iinfo(np.int64).min  # the utility of a row without a state
_LOOK = 1 << 22  # draws between two looks at the time, some 0.2 seconds
_SHORTEST, _SHORT, _LONG = 8, 64, 1000  # samples of a run in a later pass: least, wanted at least, at most


@dataclass(frozen=True)
class ChainSolver:
    """A local solver made of a sampler: R runs of S trials for every row, the best state of a row kept."""

    sampler: Sampler

    @property
    def name(self) -> str:
        """The sampler's name."""
        return self.sampler.name

    @property
    def summary(self) -> str:
        """The sampler's line of help."""
        return self.sampler.summary

    def check(self, local: LocalProblem, memory: int, arithmetic: Arithmetic) -> None:
        """Refuse an agent whose rows or columns do not fit the memory."""
        state = 1 if local.domains.max(initial=1) <= 256 else 4
        rows = local.rows * (arithmetic.dtype.itemsize + 16 + 2 * state * len(local.hidden))
        if rows > memory:
            raise ResourceError(
                f"local.method: {self.name}: {len(local.interface)} interface variables make {local.rows:,} rows"
                f" ({rows:,} bytes, budget.memory allows {memory:,}); use local.method: exact, which never enumerates"
                " them, or fewer interface variables"
            )
        entries = column_entries(local)
        if entries > MOST_ENTRIES or 4 * entries > memory:
            raise ResourceError(
                f"local.method: {self.name}: an agent's tables make up to {entries:,} column entries, 4 bytes each"
                f" (at most {MOST_ENTRIES:,}, and budget.memory allows {memory:,} bytes); divide it into more agents"
            )

    def solve(self, problems: Sequence[LocalProblem], settings: Settings) -> list[SampledTable]:
        """Sample every agent."""
        return [chains.table() for chains in self.start(problems, settings)]

    def start(self, problems: Sequence[LocalProblem], settings: Settings) -> list["Chains"]:
        """Sample every agent, to go on with later; chains of all agents are spread over the threads.

        When it is time to stop, rows stay as they are: at first all hidden variables have their first values.
        """
        kernel, threads, stop = compile_chains(self.sampler), settings.backend.threads, settings.backend.stop
        started = [Chains(local, settings, self.sampler, kernel) for local in problems]
        try:
            left = _on_gpu(self.sampler, started, settings)
            for number in range(max((len(chains.rounds) for chains in left), default=0)):
                run_parallel([task for chains in left for task in chains.tasks(number, threads)], threads, stop)
                if stop.over:
                    break
        except NumbaError as error:
            raise explain(self.sampler, error) from error
        for _ in started:
            settings.progress(1)
        return started


def _on_gpu(sampler: Sampler, started: "list[Chains]", settings: Settings) -> "list[Chains]":
    """Sample on the GPU where that is quicker; return the chains that are left for the CPU."""
    if not settings.backend.samples_on_gpu(sum(chains.planned for chains in started)):
        return started
    from dmcmc.samplers.cuda.launch import sample_rows

    start = time.perf_counter()
    try:
        found = sample_rows(
            sampler,
            [chains.model for chains in started],
            [(int(chains.key[0]), int(chains.key[1])) for chains in started],
            [chains.rounds for chains in started],
            settings.runs,
        )
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        shared_device().release()
        return started
    left, each = [], (time.perf_counter() - start) / max(1, len(started))
    for chains, states in zip(started, found, strict=True):
        if states is None:
            left.append(chains)
        else:
            chains.after = chains.after[0], states
            chains.on_gpu = True
            chains.seconds.append(each)
            chains.draws.append(chains.planned)
            chains.count_pass()
    return left


class Chains:
    """One agent's chains: the state of its rows, before and after the present round.

    Attributes
    ----------
    on_gpu : bool
        Whether the rows' states came from there; their utilities are then not known here.
    drawn : (rows,) int64
        Samples that each row has had, without repairs.
    """

    def __init__(self, local: LocalProblem, settings: Settings, sampler: Sampler, kernel: Callable[..., None]) -> None:
        start = time.perf_counter()
        self.local, self.settings, self.sampler, self.kernel = local, settings, sampler, kernel
        self.flat = flatten_local(local)
        self.model = build_model(local, self.flat)
        self.shape = np.array(local.interface_shape, dtype=np.int64)
        dtype = np.uint8 if self.model.domains.max(initial=0) <= 256 else np.int32
        shape = (local.rows, len(local.hidden))
        self.before, self.after = (
            (np.full(local.rows, _NONE, dtype=np.int64), np.zeros(shape, dtype=dtype)) for _ in range(2)
        )
        self.on_gpu = False
        self.drawn = np.zeros(local.rows, dtype=np.int64)
        self.seconds, self.draws = [0.0], [0]
        self.passes = 0
        self._plan(settings.samples, settings.runs, local.rows)
        self.seconds = [time.perf_counter() - start]

    @property
    def exhausted(self) -> bool:
        """Whether nothing more is to be gained: without hidden variables a row is one state."""
        return not self.local.hidden

    @property
    def updates(self) -> int:
        """Draws made so far."""
        return sum(self.draws)

    def _plan(self, samples: int, runs: int, rows: int) -> None:
        """Begin a pass: all of a sampler's rounds, with random bits of its own."""
        self.rounds = (self.sampler.rounds or one_round)(self.model, samples, self.settings.temperature)
        self.runs = runs
        self.firsts = np.cumsum([1, *(r.temperatures.size for r in self.rounds)]).tolist()
        # A seed of its own for every later pass: no configuration can ask for one beyond 64 bits.
        seed = self.settings.seed + (self.passes << 64)
        self.key = np.array(chain_key(seed, self.local.agent), dtype=np.uint64)
        self.passes += 1
        self.planned = rows * runs * (self.firsts[-1] - 1) * len(self.local.hidden)

    def tasks(self, number: int, threads: int, rows: NDArray[np.int64] | None = None) -> list[Callable[[], None]]:
        """Divide the rows of a round among the threads; rows that are not chosen stay as they are."""
        if number >= len(self.rounds):
            return []
        if number > 0 or self.passes > 1:
            self.before, self.after = self.after, self.before
        stoppable = self.settings.backend.stop is not NO_STOP
        if rows is not None or stoppable:  # what is not reached stays as it is
            for source, target in zip(self.before, self.after, strict=True):
                target[:] = source
        if rows is None:
            ranges = [(0, self.local.rows)]
        else:
            cuts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), rows.size]
            ranges = [(int(rows[a]), int(rows[b - 1]) + 1) for a, b in pairwise(cuts) if a < b]
        total = sum(b - a for a, b in ranges)
        largest = max(1, -(-total // (4 * threads if threads > 1 else 1)))
        if stoppable:
            draws = self.runs * self.rounds[number].temperatures.size * len(self.local.hidden)
            largest = min(largest, max(1, _LOOK // max(1, draws)))
        pieces = [(i, min(i + largest, end)) for begin, end in ranges for i in range(begin, end, largest)]
        return [partial(self._run, number, begin, end) for begin, end in pieces]

    def _run(self, number: int, begin: int, end: int) -> None:
        start = time.perf_counter()
        this = self.rounds[number]
        self.kernel(
            self.model,
            self.shape,
            begin,
            end,
            self.runs,
            this.temperatures,
            this.rungs(self.runs),
            self.firsts[number],
            this.warm,
            this.repair,
            this.descent,
            self.key,
            self.before,
            self.after,
        )
        self.seconds.append(time.perf_counter() - start)
        self.draws.append((end - begin) * self.runs * this.temperatures.size * len(self.local.hidden))
        if not this.repair:
            self.drawn[begin:end] += self.runs * this.temperatures.size

    def count_pass(self) -> None:
        """Count the samples of a whole pass over all rows."""
        self.drawn += self.runs * sum(r.temperatures.size for r in self.rounds if not r.repair)

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Sample on for about some seconds: passes of growing length over some rows, from new random starts.

        Parameters
        ----------
        rows : ascending
            Those that matter.
        """
        if not rows.size or not self.model.hidden:
            return
        deadline, stop = time.perf_counter() + seconds, self.settings.backend.stop
        if self.on_gpu:
            self._improve_on_gpu(deadline)
            return
        while (left := deadline - time.perf_counter()) > 0.05 * seconds:
            pace = max(1e-9, sum(self.seconds) / max(1, self.updates))
            sweeps = left * threads / (pace * rows.size * len(self.local.hidden))  # of all runs of a row together
            runs = int(min(self.settings.runs, max(1.0, sweeps / _SHORT)))
            samples = int(sweeps / runs)
            if samples < _SHORTEST:
                return
            self._plan(min(samples, _LONG), runs, rows.size)
            for number in range(len(self.rounds)):
                run_parallel(self.tasks(number, threads, rows), threads, stop)
                if time.perf_counter() >= deadline or stop.over:
                    return

    def _improve_on_gpu(self, deadline: float) -> None:
        """Sample all rows anew on the GPU as long as there is time, and keep what is better."""
        from dmcmc.samplers.cuda.launch import sample_rows

        arithmetic = self.settings.arithmetic
        while time.perf_counter() < deadline and not self.settings.backend.stop.over:
            start = time.perf_counter()
            self._plan(self.settings.samples, self.settings.runs, self.local.rows)
            key = int(self.key[0]), int(self.key[1])
            (states,) = sample_rows(self.sampler, [self.model], [key], [self.rounds], self.runs)
            if states is None:
                return
            old, new = (
                evaluate_rows(self.flat, self.model.domains, s, self.local.interface_shape, arithmetic).reshape(-1)
                for s in (self.after[1], states)
            )
            better = new > old
            self.after[1][better] = states[better]
            self.seconds.append(time.perf_counter() - start)
            self.draws.append(self.planned)
            self.count_pass()

    def table(self) -> SampledTable:
        """Return the table as it is, its values computed anew from the states."""
        local, settings, states = self.local, self.settings, self.after[1]
        start = time.perf_counter()
        shape = local.interface_shape
        values = evaluate_rows(self.flat, self.model.domains, states, shape, settings.arithmetic)
        return SampledTable(
            lower=(Table(local.interface, values),),
            upper=None,
            witness=partial(_witness, local, states.copy()),
            method=self.sampler.name,
            seconds=sum(self.seconds) + time.perf_counter() - start,
            updates=self.updates,
            drawn=int(self.drawn.min()),
        )


def _witness(local: LocalProblem, states: NDArray[Any], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values kept for a row."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))
