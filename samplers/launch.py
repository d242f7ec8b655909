"""Run a sampler's chains on the CPU: every row, every run, best state kept (DMCMC paper, Algorithm 2 lines 9-10)."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.agents import LocalProblem
from dmcmc.inference.arithmetic import Arithmetic, Table
from dmcmc.inference.errors import ResourceError
from dmcmc.inference.tables import Array, forbidden
from dmcmc.inference.threads import run_parallel
from dmcmc.samplers.chains import compile_chains
from dmcmc.samplers.model import build_model
from dmcmc.samplers.protocol import SampledTable, Sampler, Settings
from dmcmc.samplers.rng import chain_key

_CHUNK = 1 << 26  # bytes of states that one batch of chains may return


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
        """Refuse an interface whose row table does not fit the memory."""
        state = 1 if local.domains.max(initial=1) <= 256 else 4
        need = local.rows * (arithmetic.dtype.itemsize + 8 * (len(local.interface) + 2) + 2 * state * len(local.hidden))
        if need > memory:
            raise ResourceError(
                f"local.method: {self.name}: {len(local.interface)} interface variables make {local.rows:,} rows"
                f" ({need:,} bytes, budget.memory allows {memory:,}); use local.method: exact, which never enumerates"
                " them, or fewer interface variables"
            )

    def solve(self, problems: Sequence[LocalProblem], settings: Settings) -> list[SampledTable]:
        """Sample every agent; chains of all agents are spread over the threads."""
        kernel = compile_chains(self.sampler)
        jobs = [_Job(local, settings, kernel) for local in problems]
        run_parallel([task for job in jobs for task in job.tasks(settings.backend.threads)], settings.backend.threads)
        return [job.result(self.name) for job in jobs]


class _Job:
    """One agent's chains in flight: its share of tasks, and the arrays they fill."""

    def __init__(self, local: LocalProblem, settings: Settings, kernel: Callable[..., None]) -> None:
        start = time.perf_counter()
        self.local, self.settings, self.kernel = local, settings, kernel
        self.model = build_model(local)
        self.temperatures = settings.temperature.of_trials(self.model, settings.samples)
        self.key = np.array(chain_key(settings.seed, local.agent), dtype=np.uint64)
        hidden = len(local.hidden)
        dtype = np.uint8 if self.model.domains.max(initial=0) <= 256 else np.int32
        self.states = np.zeros((local.rows, hidden), dtype=dtype)
        self.seconds = [time.perf_counter() - start]

    def tasks(self, threads: int) -> list[Callable[[], None]]:
        """Divide the rows; one thread's worth of rows at a time, fewer where they are many."""
        rows = self.local.rows
        at_once = max(1, _CHUNK // (self.settings.runs * (8 + max(1, len(self.local.hidden)))))
        pieces = max(-(-rows // at_once), min(rows, 4 * threads if threads > 1 else 1))
        bounds = [rows * i // pieces for i in range(pieces + 1)]
        return [partial(self.run, begin, end) for begin, end in pairwise(bounds)]

    def run(self, begin: int, end: int) -> None:
        """Run the chains of rows ``begin`` to ``end`` and keep the best of each row; ties go to the first run."""
        start = time.perf_counter()
        runs = self.settings.runs
        best = np.zeros((end - begin) * runs, dtype=self.model.data.dtype)
        states = np.zeros((best.size, self.model.hidden), dtype=self.states.dtype)
        shape = np.array(self.local.interface_shape, dtype=np.int64)
        self.kernel(self.model, shape, begin * runs, best.size, runs, self.temperatures, self.key, best, states)
        winner = best.reshape(-1, runs).argmax(axis=1)
        self.states[begin:end] = states.reshape(end - begin, runs, -1)[np.arange(end - begin), winner]
        self.seconds.append(time.perf_counter() - start)

    def result(self, method: str) -> SampledTable:
        """Return the table, its values computed anew from the states."""
        local, settings = self.local, self.settings
        start = time.perf_counter()
        values = evaluate_rows(local, self.states, settings.arithmetic)
        seconds = sum(self.seconds) + time.perf_counter() - start
        settings.progress(1)
        return SampledTable(
            lower=(Table(local.interface, values),),
            upper=None,
            witness=partial(_witness, local, self.states),
            method=method,
            seconds=seconds,
            updates=local.rows * settings.runs * settings.samples * len(local.hidden),
        )


def _witness(local: LocalProblem, states: NDArray[Any], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values kept for a row."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))


def evaluate_rows(local: LocalProblem, states: NDArray[Any], arithmetic: Arithmetic) -> Array:
    """Evaluate F_i for one hidden assignment a row.

    Parameters
    ----------
    states : (rows, |H_i|) integers
        Hidden values of every interface assignment, rows in C order.

    Returns
    -------
    ndarray, shape of the interface domains
        Encoded utilities; −∞ where a hard constraint is violated.
    """
    shape = local.interface_shape
    total = np.zeros(local.rows, dtype=np.int64 if arithmetic.exact else np.float64)
    hard = np.zeros(local.rows, dtype=bool)
    interface = np.indices(shape).reshape(len(shape), local.rows) if shape else np.zeros((0, 1), dtype=np.int64)
    column = {v: states[:, i] for i, v in enumerate(local.hidden)} | dict(zip(local.interface, interface, strict=True))
    for factor in local.factors:
        picked = factor.table[tuple(column[v] for v in factor.scope)]
        here = forbidden(picked)
        hard |= here
        total += np.where(here, 0, picked)
    values = total.astype(arithmetic.dtype)
    values[hard] = arithmetic.lowest
    return values.reshape(shape)
