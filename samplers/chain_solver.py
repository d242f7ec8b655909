"""An agent's table by chains, and which rows they sample.

A local solver made of a sampler; it decides between CPU and GPU.

For each row of an agent's table, that is, for each assignment of the agent's boundary variables, Markov chains sample
the hidden variables, and the best state is retained. Chains run on the CPU (:mod:`dmcmc.samplers.cpu.launch`) or on the
GPU (:mod:`dmcmc.samplers.cuda.launch`). The modules for the GPU are imported when they are first needed.

Select the rows of a large interface to sample: those that chains over all of the agent's variables visit.

DMCMC paper, §4: if an interface has too many assignments, only some rows of the table are sampled.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem, Rows
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import CpuFallback
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.protocol import (
    RankTeam,
    SampledTable,
    Sampler,
    Sampling,
    broadcast_from_first,
    explain,
    rows_of_rank,
)
from dmcmc.samplers.cpu.chain_kernels import compile_chains
from dmcmc.samplers.cpu.launch import Chains, seconds_per_draw
from dmcmc.samplers.cuda.launch import sample_rows
from dmcmc.samplers.methods.gibbs import SAMPLER
from dmcmc.samplers.model.chain_model import check_chain_memory
from dmcmc.samplers.model.evaluation import chain_utilities, evaluate_rows

_TINY_SAMPLES = 2  # samples of a pass that only loads kernels


@dataclass(frozen=True)
class ChainSolver:
    """A local solver made of a sampler: R runs of S trials per row, of which the best state is retained.

    Attributes
    ----------
    sampler : Sampler
        The sampler.
    """

    sampler: Sampler

    @property
    def name(self) -> str:
        """The name of the sampler."""
        return self.sampler.name

    @property
    def kernel_name(self) -> str:
        """The name of the compiled chains, which changes with the source of the sampler."""
        return compile_chains(self.sampler).__name__

    @property
    def summary(self) -> str:
        """The sampler's line of help."""
        return self.sampler.summary

    def check(self, local: LocalProblem, memory: int, arithmetic: Arithmetic) -> None:
        """Raise a ``ResourceError`` if an agent's rows or score columns do not fit in memory."""
        check_chain_memory(self.name, local, memory, arithmetic)

    def solve(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[SampledTable]:
        """Sample every agent and return their tables."""
        return [chains.table() for chains in self.start(problems, sampling)]

    def load(self, problems: Sequence[LocalProblem], sampling: Sampling) -> None:
        """Load the GPU kernels for the agents by short passes."""
        kernel = compile_chains(self.sampler)
        for runs in sorted({1, sampling.runs}):  # a first pass, and later ones: threads may share columns differently
            short = replace(sampling, samples=_TINY_SAMPLES, runs=runs)
            _sample_on_gpu(self.sampler, [Chains(local, short, self.sampler, kernel) for local in problems])

    def start(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list["Chains | DeviceSampling"]:
        """Sample every agent so that sampling can continue later: on the GPU if that is faster, else on all threads.

        If the deadline passes, rows keep their states; at first these are the incumbent's hidden values, or the values
        0. The ranks of a team divide an agent's rows among their threads; only the team's first rank uses its GPU.

        Parameters
        ----------
        problems : sequence of LocalProblem
            The agents.
        sampling : Sampling
            Settings of the chains.

        Returns
        -------
        list of Chains or DeviceSampling
            The sampled rows of each agent.

        Raises
        ------
        OutOfTime
            If the deadline passes after the first agent's rows are laid out, and there are more agents.
        """
        kernel, threads, stop = compile_chains(self.sampler), sampling.backend.threads, sampling.backend.stop
        planned = list[Chains]()
        for local in problems:
            if planned:
                stop.check()
            planned.append(Chains(local, sampling, self.sampler, kernel))
        try:
            if sampling.team.size > 1 and not _first_rank_alone(planned, sampling):
                _sample_in_team(planned[0], sampling, threads)
                return [*planned]
            if sampling.team.rank > 0:
                return [*planned]
            started = _on_gpu(self.sampler, planned, sampling)
            on_cpu, halt = [chains for chains in started if isinstance(chains, Chains)], np.zeros(1, dtype=np.uint8)
            if sampling.seconds is not None:
                _fit(on_cpu, sampling.seconds, threads)
            for number in range(max((len(chains.current.rounds) for chains in on_cpu), default=0)):
                if stop.over or not run_until_deadline(
                    [task for chains in on_cpu for task in chains.tasks(number, threads, halt)], threads, stop, halt
                ):
                    break
        except NumbaError as error:
            raise explain(self.sampler, error) from error
        for _ in started:
            sampling.progress(1)
        return started


def _first_rank_alone(planned: Sequence[Chains], sampling: Sampling) -> bool:
    """Return whether the first rank of a team samples alone, on its GPU."""
    alone = sampling.backend.samples_on_gpu(sum(chains.planned_draws for chains in planned))
    return broadcast_from_first(sampling.team, alone)


def _sample_in_team(chains: Chains, sampling: Sampling, threads: int) -> None:
    """Sample an agent on several ranks; each samples a share of the rows, and receives the others' after every round.

    Random numbers are keyed by rows, so the states are those of a single rank.
    """
    team, stop, halt = sampling.team, sampling.backend.stop, np.zeros(1, dtype=np.uint8)
    shares = [rows_of_rank(chains.local.rows, team, rank) for rank in range(team.size)]
    begin, end = shares[team.rank]
    if sampling.seconds is not None:
        _fit_in_team(chains, sampling.seconds, threads, team)

    def sample(number: int) -> list[Array]:
        """Sample this rank's rows in one round; return their states for the other ranks."""
        draws, tasks = chains.updates, chains.tasks(number, threads, halt, np.arange(begin, end))
        complete = not stop.over and run_until_deadline(tasks, threads, stop, halt)
        return chains.export_rows(slice(begin, end), draws, complete)

    for number in range(len(chains.current.rounds)):
        parts = team.allgather(partial(sample, number))
        for rank, part in enumerate(parts):
            if rank != team.rank:
                chains.import_rows(slice(*shares[rank]), part)
        if not all(part[0][0] for part in parts):
            break
    sampling.progress(1)


def _fit_in_team(chains: Chains, seconds: float, threads: int, team: RankTeam) -> None:
    """Shorten a first pass by the same factor on all ranks, so that no rank takes longer than its own ``seconds``.

    Both times are those of each rank's own clock. So the ranks exchange the factors, and take the smallest.
    """

    def fraction() -> list[Array]:
        """Return the fraction of this rank's share of the pass for which there is time."""
        expected = seconds_per_draw(chains) * chains.planned_draws / (threads * team.size)
        return [np.array([min(1.0, max(0.0, seconds) / expected) if expected > 0 else 1.0])]

    smallest = min(float(part[0][0]) for part in team.allgather(fraction))
    if smallest < 1:
        chains.plan_share(smallest, is_first=True)


class DeviceSampling:
    """One agent's rows sampled on the GPU; later passes start anew, and each row keeps the better of two states.

    Parameters
    ----------
    chains : Chains
        The agent's chains.
    states : (rows, hidden) int
        States after the first pass.
    share : float
        Work of the last pass as a fraction of the requested work.
    seconds : float
        Time of the last pass.
    """

    def __init__(self, chains: Chains, states: NDArray[Any], share: float = 1.0, seconds: float = 0.0) -> None:
        chains.best.after = chains.best.after[0], states
        self.chains, self.share, self.seconds = chains, share, seconds

    @property
    def exhausted(self) -> bool:
        """Whether further sampling cannot improve the rows."""
        return self.chains.exhausted

    @property
    def states(self) -> NDArray[Any]:
        """The best hidden values of each row, (rows, hidden)."""
        return self.chains.states

    def table(self) -> SampledTable:
        """Return the current table."""
        return self.chains.table()

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Sample all rows again while there is time, and keep better states; does nothing if ``rows`` is empty."""
        stop = self.chains.sampling.backend.stop.by(time.perf_counter() + seconds)
        while rows.size and self.chains.model.hidden and _another_pass([self], stop):
            pass

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Replace the hidden values of some rows where the given ones are better; return whether any are."""
        others = self.states.copy()
        others[rows] = states
        return self.keep_better(others)

    def keep_better(self, states: NDArray[Any]) -> bool:
        """Replace the states of rows where the given ones have more utility; return whether any have.

        If both states of a row violate constraints, the one with the smaller loss is kept.
        """
        chains, kept_states = self.chains, self.chains.states
        shape, arithmetic = chains.local.interface_shape, chains.sampling.arithmetic
        before, now = (
            evaluate_rows(chains.flat, chains.model.domains, s, shape, arithmetic).reshape(-1)
            for s in (kept_states, states)
        )
        better = now > before
        both_forbidden = np.flatnonzero((now == arithmetic.lowest) & (before == arithmetic.lowest))
        loss_before, loss_now = (chain_utilities(chains.model, shape, both_forbidden, s) for s in (kept_states, states))
        better[both_forbidden] = loss_now > loss_before
        kept_states[better] = states[better]
        return bool(better.any())


def _fit(planned: Sequence[Chains], seconds: float, threads: int) -> None:
    """Shorten first passes by a common factor if together they would take longer than ``seconds``."""
    expected = sum(seconds_per_draw(chains) * chains.planned_draws for chains in planned) / threads
    if expected > seconds:
        for chains in planned:
            chains.plan_share(seconds / expected, is_first=True)


def _on_gpu(sampler: Sampler, planned: list[Chains], sampling: Sampling) -> list[Chains | DeviceSampling]:
    """Sample on the GPU if that is faster; return the chains as planned where they are left to the CPU."""
    if not sampling.backend.samples_on_gpu(sum(chains.planned_draws for chains in planned)):
        return [*planned]
    stop, share = sampling.backend.stop, 1.0
    if stop is not NO_DEADLINE:  # a pass cannot be interrupted: the time of a short first one predicts the others
        share = min(1.0, 2 * tuning.MIN_SAMPLES / max(1, sampling.runs * sampling.samples))
        for chains in planned:
            chains.plan_share(share, is_first=True)
    start = time.perf_counter()
    states_found = _sample_on_gpu(sampler, planned)
    if states_found is None:
        return [*planned]
    seconds, started = time.perf_counter() - start, list[Chains | DeviceSampling]()
    for chains, states in zip(planned, states_found, strict=True):
        if states is None:
            started.append(chains)
        else:
            chains.count_pass(seconds / len(planned))
            best = states if sampling.incumbent is None else chains.states
            on_device = DeviceSampling(chains, best, share, seconds)
            if sampling.incumbent is not None:
                on_device.keep_better(states)
            started.append(on_device)
    on_gpu = [chains for chains in started if isinstance(chains, DeviceSampling)]
    if sampling.seconds is not None:
        stop = stop.by(start + sampling.seconds)
    while on_gpu and on_gpu[0].share < 1 and _another_pass(on_gpu, stop):
        pass
    return started


def _another_pass(running: Sequence[DeviceSampling], stop: Deadline) -> bool:
    """Make a further pass with as much work as fits the time and a launch; return False if there was no time for it.

    The work is that of the last pass times min(``MAX_PASS_GROWTH``, ``PLANNED_SHARE`` · time left / its time), where
    the time left is at most ``MAX_PASS_SECONDS``. False is also returned if the memory is too small.

    The work grows at most in proportion to the time: a pass of twice the work takes at most twice as long.
    """
    last_seconds = max(1e-4, sum({chains.seconds for chains in running}))
    growth = min(tuning.MAX_PASS_GROWTH, tuning.PLANNED_SHARE * min(stop.left, tuning.MAX_PASS_SECONDS) / last_seconds)
    if growth < tuning.UNTRIED_SHARE:
        return False
    share, start = min(1.0, growth * running[0].share), time.perf_counter()
    for device in running:
        device.chains.plan_share(share)
    states_found = _sample_on_gpu(running[0].chains.sampler, [device.chains for device in running])
    seconds = time.perf_counter() - start
    for device, states in zip(running, states_found or [], strict=False):
        if states is not None:
            device.keep_better(states)
            device.chains.count_pass(seconds / len(running))
        device.share, device.seconds = share, seconds
    return states_found is not None and all(states is not None for states in states_found)


def _sample_on_gpu(sampler: Sampler, planned: Sequence[Chains]) -> list[NDArray[Any] | None] | None:
    """Return the states of the agents' rows after a pass; None if the device has too little memory."""
    keys = [(int(chains.current.key[0]), int(chains.current.key[1])) for chains in planned]
    models, rounds = [chains.model for chains in planned], [chains.current.rounds for chains in planned]
    initial = [chains.best.after for chains in planned] if rounds[0] and rounds[0][0].warm else None
    # Kernels that are not loaded would have to be compiled within the time budget.
    timed = planned[0].sampling.backend.stop is not NO_DEADLINE
    with CpuFallback():
        return sample_rows(sampler, models, keys, rounds, planned[0].current.runs, initial=initial, prefer_loaded=timed)
    return None


def choose_rows(local: LocalProblem, count: int, sampling: Sampling) -> Rows:
    """Return up to ``count`` distinct rows, (rows, boundary variables) int64: the end states of ``count`` short chains.

    The incumbent's row comes first, if there is one. The chains sample the boundary variables together with the hidden
    ones. If chains end in the same rows, rows that differ from these in one variable are added.

    Parameters
    ----------
    local : LocalProblem
        The agent's subproblem.
    count : int
        Number of rows.
    sampling : Sampling
        Settings of the chains.
    """
    n = len(local.domains)
    joint_problem = LocalProblem(
        agent=local.agent,
        interface=(n,),  # belongs to no factor: its values number the chains
        hidden=(*local.interface, *local.hidden),
        factors=local.factors,
        domains=np.append(local.domains, count),
    )
    short = replace(
        sampling, runs=1, samples=tuning.ROW_CHOICE_TRIALS, incumbent=None, seconds=None, progress=lambda _: None
    )
    (chains,) = ChainSolver(SAMPLER).start([joint_problem], short)
    rows: dict[tuple[int, ...], None] = {}
    if sampling.incumbent is not None:
        rows[tuple(sampling.incumbent[list(local.interface)].tolist())] = None
    rows |= dict.fromkeys(map(tuple, chains.states[:, : len(local.interface)].astype(np.int64).tolist()))
    sizes = [int(local.domains[v]) for v in local.interface]
    for row in list(rows):
        for i, size in enumerate(sizes):
            for step in range(1, size):
                if len(rows) >= min(count, local.rows):
                    return np.array(list(rows)[:count], dtype=np.int64)
                rows.setdefault((*row[:i], (row[i] + step) % size, *row[i + 1 :]))
    return np.array(list(rows)[:count], dtype=np.int64)
