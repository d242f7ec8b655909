"""Run a sampler's chains on the CPU: every row, every run, best state kept (DMCMC paper, Algorithm 2 lines 9-10)."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.deadline import NO_STOP
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.samplers.contract.protocol import SampledTable, Sampler, Sampling
from dmcmc.samplers.model.chain_model import build_model, flatten_local
from dmcmc.samplers.model.evaluation import evaluate_rows
from dmcmc.samplers.model.rng import chain_key
from dmcmc.samplers.model.rounds import one_round

_NONE = np.iinfo(np.int64).min  # the utility of a row without a state
_LOOK = 1 << 22  # draws between two looks at the time, some 0.2 seconds
_SHORTEST, _SHORT, _LONG = 8, 64, 1000  # samples of a run in a later pass: least, wanted at least, at most


class Chains:
    """One agent's chains: the state of its rows, before and after the present round.

    Attributes
    ----------
    drawn : (rows,) int64
        Samples that each row has had, without repairs.
    """

    def __init__(self, local: LocalProblem, sampling: Sampling, sampler: Sampler, kernel: Callable[..., None]) -> None:
        start = time.perf_counter()
        self.local, self.sampling, self.sampler, self.kernel = local, sampling, sampler, kernel
        self.flat = flatten_local(local)
        self.model = build_model(local, self.flat)
        self.shape = np.array(local.interface_shape, dtype=np.int64)
        dtype = np.uint8 if self.model.domains.max(initial=0) <= 256 else np.int32
        shape = (local.rows, len(local.hidden))
        self.before, self.after = (
            (np.full(local.rows, _NONE, dtype=np.int64), np.zeros(shape, dtype=dtype)) for _ in range(2)
        )
        self.drawn = np.zeros(local.rows, dtype=np.int64)
        self.seconds, self.draws = [0.0], [0]
        self.passes = 0
        self.plan(sampling.samples, sampling.runs, local.rows)
        self.seconds = [time.perf_counter() - start]

    @property
    def exhausted(self) -> bool:
        """Whether nothing more is to be gained: without hidden variables a row is one state."""
        return not self.local.hidden

    @property
    def states(self) -> NDArray[Any]:
        """The best hidden values of each row, (rows, hidden)."""
        return self.after[1]

    @property
    def updates(self) -> int:
        """Draws made so far."""
        return sum(self.draws)

    def plan(self, samples: int, runs: int, rows: int) -> None:
        """Begin a pass: all of a sampler's rounds, with random bits of its own."""
        self.rounds = (self.sampler.rounds or one_round)(self.model, samples, self.sampling.temperature)
        self.runs = runs
        self.firsts = np.cumsum([1, *(r.temperatures.size for r in self.rounds)]).tolist()
        # A seed of its own for every later pass: no configuration can ask for one beyond 64 bits.
        seed = self.sampling.seed + (self.passes << 64)
        self.key = np.array(chain_key(seed, self.local.agent), dtype=np.uint64)
        self.passes += 1
        self.planned = rows * runs * (self.firsts[-1] - 1) * len(self.local.hidden)

    def tasks(self, number: int, threads: int, rows: NDArray[np.int64] | None = None) -> list[Callable[[], None]]:
        """Divide the rows of a round among the threads; rows that are not chosen stay as they are."""
        if number >= len(self.rounds):
            return []
        if number > 0 or self.passes > 1:
            self.before, self.after = self.after, self.before
        stoppable = self.sampling.backend.stop is not NO_STOP
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

    def count_pass(self, seconds: float) -> None:
        """Count a whole pass over all rows that was made elsewhere, and took some seconds."""
        self.drawn += self.runs * sum(r.temperatures.size for r in self.rounds if not r.repair)
        self.seconds.append(seconds)
        self.draws.append(self.planned)

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Sample on for about some seconds: passes of growing length over some rows, from new random starts.

        Parameters
        ----------
        rows : ascending
            Those that matter.
        """
        if not rows.size or not self.model.hidden:
            return
        deadline, stop = time.perf_counter() + seconds, self.sampling.backend.stop
        while (left := deadline - time.perf_counter()) > 0.05 * seconds:
            pace = max(1e-9, sum(self.seconds) / max(1, self.updates))
            sweeps = left * threads / (pace * rows.size * len(self.local.hidden))  # of all runs of a row together
            runs = int(min(self.sampling.runs, max(1.0, sweeps / _SHORT)))
            samples = int(sweeps / runs)
            if samples < _SHORTEST:
                return
            self.plan(min(samples, _LONG), runs, rows.size)
            for number in range(len(self.rounds)):
                run_parallel(self.tasks(number, threads, rows), threads, stop)
                if time.perf_counter() >= deadline or stop.over:
                    return

    def table(self) -> SampledTable:
        """Return the table as it is, its values computed anew from the states."""
        local, sampling, states = self.local, self.sampling, self.after[1]
        start = time.perf_counter()
        shape = local.interface_shape
        values = evaluate_rows(self.flat, self.model.domains, states, shape, sampling.arithmetic)
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
