"""A local solver made of a sampler: the one place that decides between CPU and GPU.

Chains run on the CPU (:mod:`dmcmc.samplers.cpu.launch`) or on the GPU (:mod:`dmcmc.samplers.cuda.launch`), whose
modules are imported when they are first of use.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.samplers.contract.compile_error import explain
from dmcmc.samplers.contract.protocol import SampledTable, Sampler, Sampling
from dmcmc.samplers.cpu.chain_kernels import compile_chains
from dmcmc.samplers.cpu.launch import Chains
from dmcmc.samplers.model.chain_model import MOST_ENTRIES, column_entries
from dmcmc.samplers.model.evaluation import chain_utilities, evaluate_rows

_LITTLE = 2  # samples: next to no work


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

    def solve(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[SampledTable]:
        """Sample every agent."""
        return [chains.table() for chains in self.start(problems, sampling)]

    def load(self, problems: Sequence[LocalProblem], sampling: Sampling, updates: int) -> None:
        """Load what sampling agents uses on a GPU, where so many draws would be worth the way there."""
        if sampling.backend.samples_on_gpu(updates):
            kernel, little = compile_chains(self.sampler), replace(sampling, samples=_LITTLE)
            _sample_on_gpu(self.sampler, [Chains(local, little, self.sampler, kernel) for local in problems])

    def start(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list["Chains | DeviceChains"]:
        """Sample every agent, to go on with later: on the GPU where that is quicker, else spread over the threads.

        When it is time to stop, rows stay as they are: at first they have the incumbent's hidden values, or the first.
        """
        kernel, threads, stop = compile_chains(self.sampler), sampling.backend.threads, sampling.backend.stop
        planned = [Chains(local, sampling, self.sampler, kernel) for local in problems]
        try:
            started = _on_gpu(self.sampler, planned, sampling)
            left, halt = [chains for chains in started if isinstance(chains, Chains)], np.zeros(1, dtype=np.uint8)
            if sampling.seconds is not None:
                _fit(left, sampling.seconds, threads)
            for number in range(max((len(chains.rounds) for chains in left), default=0)):
                if stop.over or not run_watched(
                    [task for chains in left for task in chains.tasks(number, threads, halt)], threads, stop, halt
                ):
                    break
        except NumbaError as error:
            raise explain(self.sampler, error) from error
        for _ in started:
            sampling.progress(1)
        return started


class DeviceChains:
    """One agent's chains on the GPU, to go on with: later passes start anew, a row keeps the better of two states."""

    def __init__(self, chains: Chains, states: NDArray[Any]) -> None:
        chains.after = chains.after[0], states
        self._chains = chains

    @property
    def exhausted(self) -> bool:
        """Whether nothing more is to be gained."""
        return self._chains.exhausted

    @property
    def states(self) -> NDArray[Any]:
        """The best hidden values of each row, (rows, hidden)."""
        return self._chains.states

    def table(self) -> SampledTable:
        """Return the table as it is."""
        return self._chains.table()

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Sample all rows anew as long as there is time, and keep what is better; ``rows`` only say whether."""
        chains, deadline = self._chains, time.perf_counter() + seconds
        stop = chains.sampling.backend.stop
        while rows.size and chains.model.hidden and time.perf_counter() < deadline and not stop.over:
            start = time.perf_counter()
            chains.plan(chains.sampling.samples, chains.sampling.runs, chains.local.rows)
            found = _sample_on_gpu(chains.sampler, [chains])
            if found is None or found[0] is None:
                return
            self.keep(found[0])
            chains.count_pass(time.perf_counter() - start)

    def keep(self, states: NDArray[Any]) -> None:
        """Take other states of rows where they are worth more, or break less where neither of the two is feasible."""
        chains, old = self._chains, self._chains.states
        shape, arithmetic = chains.local.interface_shape, chains.sampling.arithmetic
        before, now = (
            evaluate_rows(chains.flat, chains.model.domains, s, shape, arithmetic).reshape(-1) for s in (old, states)
        )
        better = now > before
        never = np.flatnonzero((now == arithmetic.lowest) & (before == arithmetic.lowest))
        first, second = (chain_utilities(chains.model, shape, never, s) for s in (old, states))
        better[never] = second > first
        old[better] = states[better]


def _fit(planned: Sequence[Chains], seconds: float, threads: int) -> None:
    """Shorten first passes that would take longer than some seconds together, all by the same share."""
    expected = sum(chains.pace() * chains.planned for chains in planned) / threads
    if expected > seconds:
        for chains in planned:
            chains.shorten(seconds / expected)


def _on_gpu(sampler: Sampler, planned: list[Chains], sampling: Sampling) -> list[Chains | DeviceChains]:
    """Sample on the GPU where that is quicker; return chains as they were planned where they are left for the CPU."""
    if not sampling.backend.samples_on_gpu(sum(chains.planned for chains in planned)):
        return [*planned]
    start = time.perf_counter()
    found = _sample_on_gpu(sampler, planned)
    if found is None:
        return [*planned]
    each, started = (time.perf_counter() - start) / max(1, len(planned)), list[Chains | DeviceChains]()
    for chains, states in zip(planned, found, strict=True):
        if states is None:
            started.append(chains)
        else:
            chains.count_pass(each)
            on_device = DeviceChains(chains, states if sampling.incumbent is None else chains.states)
            if sampling.incumbent is not None:
                on_device.keep(states)
            started.append(on_device)
    return started


def _sample_on_gpu(sampler: Sampler, planned: Sequence[Chains]) -> list[NDArray[Any] | None] | None:
    """Return the states of some agents' rows after their pass; None if the device has no memory for it."""
    from dmcmc.samplers.cuda.launch import sample_rows

    keys = [(int(chains.key[0]), int(chains.key[1])) for chains in planned]
    models, rounds = [chains.model for chains in planned], [chains.rounds for chains in planned]
    try:
        return sample_rows(sampler, models, keys, rounds, planned[0].runs)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    shared_device().release()
    return None
