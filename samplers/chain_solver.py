"""A local solver made of a sampler: the one place that decides between CPU and GPU.

Chains run on the CPU (:mod:`dmcmc.samplers.cpu.launch`) or on the GPU (:mod:`dmcmc.samplers.cuda.launch`), whose
modules are imported when they are first of use.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.contract.compile_error import explain
from dmcmc.samplers.contract.protocol import SampledTable, Sampler, Sampling
from dmcmc.samplers.contract.team import said_by_first, share_of
from dmcmc.samplers.cpu.chain_kernels import compile_chains
from dmcmc.samplers.cpu.launch import Chains
from dmcmc.samplers.model.chain_model import MOST_ENTRIES, column_entries
from dmcmc.samplers.model.evaluation import chain_utilities, evaluate_rows

_LITTLE = 2  # samples: next to no work
_TASTE = 16  # samples of a row in a first pass on a GPU whose time is limited
_GROWTH = 16.0  # times as much work as the last pass had, at most
_LONGEST = 1.5  # seconds of a pass on a GPU, which nothing can stop
_USED, _LEAST = 0.7, 0.25  # of the time that is left; a pass of less than this part of the last is of no use


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
                f" ({rows:,} bytes, budget.memory leaves it {memory:,}); use local.method: exact, which never lists"
                " them all, or fewer interface variables"
            )
        entries = column_entries(local)
        if entries > MOST_ENTRIES or 4 * entries > memory:
            raise ResourceError(
                f"local.method: {self.name}: an agent's tables make up to {entries:,} column entries, 4 bytes each"
                f" (at most {MOST_ENTRIES:,}, and budget.memory leaves it {memory:,} bytes); divide it into more agents"
            )

    def solve(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[SampledTable]:
        """Sample every agent."""
        return [chains.table() for chains in self.start(problems, sampling)]

    def load(self, problems: Sequence[LocalProblem], sampling: Sampling, updates: int) -> None:
        """Load what sampling agents uses on a GPU, where so many draws would be worth the way there."""
        if sampling.backend.samples_on_gpu(updates):
            kernel = compile_chains(self.sampler)
            for runs in sorted({1, sampling.runs}):  # a taste, and more: threads may share columns otherwise
                little = replace(sampling, samples=_LITTLE, runs=runs)
                _sample_on_gpu(self.sampler, [Chains(local, little, self.sampler, kernel) for local in problems])

    def start(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list["Chains | DeviceChains"]:
        """Sample every agent, to go on with later: on the GPU where that is quicker, else spread over the threads.

        When it is time to stop, rows stay as they are: at first they have the incumbent's hidden values, or the first.
        The ranks of a team divide an agent's rows among their threads; its GPU the first of them has for itself.

        Raises
        ------
        OutOfTime
            If it is time when the first agent's rows are laid out, and there are more.
        """
        kernel, threads, stop = compile_chains(self.sampler), sampling.backend.threads, sampling.backend.stop
        planned = list[Chains]()
        for local in problems:
            if planned:
                stop.check()
            planned.append(Chains(local, sampling, self.sampler, kernel))
        try:
            if sampling.team.size > 1 and not _left_to_one(planned, sampling):
                _in_a_team(planned[0], sampling, threads)
                return [*planned]
            if sampling.team.rank > 0:
                return [*planned]
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


def _left_to_one(planned: Sequence[Chains], sampling: Sampling) -> bool:
    """Return whether the first rank of a team samples alone, on its GPU."""
    alone = sampling.backend.samples_on_gpu(sum(chains.planned for chains in planned))
    return said_by_first(sampling.team, alone)


def _in_a_team(chains: Chains, sampling: Sampling, threads: int) -> None:
    """Sample an agent on several ranks: each has a share of the rows, and hears of all others' after every round.

    Random numbers are keyed by rows, so the rows' states are those of one rank.
    """
    team, stop, halt = sampling.team, sampling.backend.stop, np.zeros(1, dtype=np.uint8)
    shares = [share_of(chains.local.rows, team, rank) for rank in range(team.size)]
    begin, end = shares[team.rank]
    if sampling.seconds is not None:
        seconds = chains.pace() * chains.planned / (threads * team.size)
        slowest = max(float(part[0][0]) for part in team.together(lambda: [np.array([seconds])]))
        if slowest > sampling.seconds:
            chains.shorten(sampling.seconds / slowest)

    def sample(number: int) -> list[Array]:
        draws, tasks = chains.updates, chains.tasks(number, threads, halt, np.arange(begin, end))
        whole = not stop.over and run_watched(tasks, threads, stop, halt)
        return chains.part(slice(begin, end), draws, whole)

    for number in range(len(chains.rounds)):
        parts = team.together(partial(sample, number))
        for rank, part in enumerate(parts):
            if rank != team.rank:
                chains.take(slice(*shares[rank]), part)
        if not all(part[0][0] for part in parts):
            break
    sampling.progress(1)


class DeviceChains:
    """One agent's chains on the GPU, to go on with: later passes start anew, a row keeps the better of two states.

    Parameters
    ----------
    share, seconds : float
        Which part of the work that is asked for the last pass was, and what it took.
    """

    def __init__(self, chains: Chains, states: NDArray[Any], share: float = 1.0, seconds: float = 0.0) -> None:
        chains.after = chains.after[0], states
        self.chains, self.share, self.seconds = chains, share, seconds

    @property
    def exhausted(self) -> bool:
        """Whether nothing more is to be gained."""
        return self.chains.exhausted

    @property
    def states(self) -> NDArray[Any]:
        """The best hidden values of each row, (rows, hidden)."""
        return self.chains.states

    def table(self) -> SampledTable:
        """Return the table as it is."""
        return self.chains.table()

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Sample all rows anew as long as there is time, and keep what is better; ``rows`` only say whether."""
        stop = self.chains.sampling.backend.stop.by(time.perf_counter() + seconds)
        while rows.size and self.chains.model.hidden and _another_pass([self], stop):
            pass

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Take other hidden values of some rows where they are better."""
        others = self.states.copy()
        others[rows] = states
        return self.keep(others)

    def keep(self, states: NDArray[Any]) -> bool:
        """Take other states of rows where they are worth more, or break less where neither of the two is feasible.

        Return whether any are.
        """
        chains, old = self.chains, self.chains.states
        shape, arithmetic = chains.local.interface_shape, chains.sampling.arithmetic
        before, now = (
            evaluate_rows(chains.flat, chains.model.domains, s, shape, arithmetic).reshape(-1) for s in (old, states)
        )
        better = now > before
        never = np.flatnonzero((now == arithmetic.lowest) & (before == arithmetic.lowest))
        first, second = (chain_utilities(chains.model, shape, never, s) for s in (old, states))
        better[never] = second > first
        old[better] = states[better]
        return bool(better.any())


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
    stop, share = sampling.backend.stop, 1.0
    if stop is not NO_STOP:  # nothing can stop a pass: the first is a taste of what others will take
        share = min(1.0, _TASTE / max(1, sampling.runs * sampling.samples))
        for chains in planned:
            chains.shorten(share)
    start = time.perf_counter()
    found = _sample_on_gpu(sampler, planned)
    if found is None:
        return [*planned]
    seconds, started = time.perf_counter() - start, list[Chains | DeviceChains]()
    for chains, states in zip(planned, found, strict=True):
        if states is None:
            started.append(chains)
        else:
            chains.count_pass(seconds / len(planned))
            best = states if sampling.incumbent is None else chains.states
            on_device = DeviceChains(chains, best, share, seconds)
            if sampling.incumbent is not None:
                on_device.keep(states)
            started.append(on_device)
    there = [chains for chains in started if isinstance(chains, DeviceChains)]
    if sampling.seconds is not None:
        stop = stop.by(start + sampling.seconds)
    while there and there[0].share < 1 and _another_pass(there, stop):
        pass
    return started


def _another_pass(running: Sequence[DeviceChains], stop: Stop) -> bool:
    """Sample agents on, as much as surely fits the time and a launch; return whether there was time for it.

    A pass of twice the work takes at most twice the time of the last.
    """
    taken = max(1e-4, sum({chains.seconds for chains in running}))
    more = min(_GROWTH, _USED * min(stop.left, _LONGEST) / taken)
    if more < _LEAST:
        return False
    share, start = min(1.0, more * running[0].share), time.perf_counter()
    for device in running:
        device.chains.plan_share(share)
    found = _sample_on_gpu(running[0].chains.sampler, [device.chains for device in running])
    seconds = time.perf_counter() - start
    for device, states in zip(running, found or [], strict=False):
        if states is not None:
            device.keep(states)
            device.chains.count_pass(seconds / len(running))
        device.share, device.seconds = share, seconds
    return found is not None and all(states is not None for states in found)


def _sample_on_gpu(sampler: Sampler, planned: Sequence[Chains]) -> list[NDArray[Any] | None] | None:
    """Return the states of some agents' rows after their pass; None if the device has no memory for it."""
    from dmcmc.samplers.cuda.launch import sample_rows

    keys = [(int(chains.key[0]), int(chains.key[1])) for chains in planned]
    models, rounds = [chains.model for chains in planned], [chains.rounds for chains in planned]
    begun = [chains.after for chains in planned] if rounds[0] and rounds[0][0].warm else None
    timed = planned[0].sampling.backend.stop is not NO_STOP  # it would be compiled in the time that there is
    try:
        return sample_rows(sampler, models, keys, rounds, planned[0].runs, begun=begun, at_hand=timed)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    shared_device().release()
    return None
