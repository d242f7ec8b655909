"""Run a sampler's chains on the CPU: every row, every run, best state kept (DMCMC paper, Algorithm 2 lines 9-10).

A *row* is an assignment of the agent's boundary variables (its interface); its chains, the *runs*, sample the hidden
variables. A *round* is a number of trials that all rows complete before any row continues. Utilities of states are in
*chain units*: integers, the utility times a power of two, with −2^k per violation.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.cuda.device_table import min_resident_entries
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.device import is_gpu_in_use, is_out_of_memory
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.blocks.dual_starts import dual_states
from dmcmc.samplers.contract.chain_statistics import ChainStatistics, statistics_of
from dmcmc.samplers.contract.protocol import SampledTable, Sampler, Sampling
from dmcmc.samplers.cpu.trace_kernels import compile_trace
from dmcmc.samplers.cuda.evaluation import evaluate_on_device
from dmcmc.samplers.model.chain_model import score_columns
from dmcmc.samplers.model.evaluation import chain_utilities, evaluate_rows
from dmcmc.samplers.model.rng import chain_key
from dmcmc.samplers.model.rounds import one_round
from dmcmc.samplers.tuning import chains as tuning
from dmcmc.samplers.tuning import common

Rows = slice | NDArray[np.int64]

_NO_UTILITY = np.iinfo(np.int64).min  # the utility of a row that has no state yet
_RECORDED_RUNS = 2  # chains of each of these rows


class Chains:
    """The chains of one agent: the best state of every row, before and after the current round.

    Parameters
    ----------
    local : LocalProblem
        The agent.
    sampling : Sampling
        The settings.
    sampler : Sampler
        The sampler.
    kernel : callable
        Its compiled loop, from :func:`dmcmc.samplers.cpu.chain_kernels.compile_chains`.

    Attributes
    ----------
    model : ChainModel
        The agent's columns.
    before, after : ((rows,) int64, (rows, hidden) uint8 or int32)
        Best utility, in chain units, and best state of each row, before and after the current round.
    rounds : list of Round
        The rounds of the current pass.
    runs : int
        Chains per row in the current pass.
    first_trials : list of int
        Number of the first trial of each round, and of the trial after the last.
    key : (2,) uint64
        Key of the random bits of the current pass.
    drawn : (rows,) int64
        Samples of each row, without those of repair rounds.
    passes : int
        Number of passes begun. A pass runs all rounds of the sampler: the first one as requested, or shortened; each
        later one from new random starts.
    planned_draws : int
        Single-variable draws of the current pass, as planned.
    seconds : list of float
        Times of construction, of tasks and of passes on a GPU.
    draws : list of int
        Single-variable draws of each task and pass.
    other_ranks_draws : int
        Single-variable draws made by other ranks.
    """

    def __init__(self, local: LocalProblem, sampling: Sampling, sampler: Sampler, kernel: Callable[..., int]) -> None:
        begun = time.perf_counter()
        self.local, self.sampling, self.sampler, self.kernel = local, sampling, sampler, kernel
        graph = local.graph
        self.flat, self.model = graph.flat, score_columns(graph, local.ranges, local.known)
        self.shape = np.array(local.interface_shape, dtype=np.int64)
        dtype = np.uint8 if self.model.domains.max(initial=0) <= 256 else np.int32
        shape = (local.rows, len(local.hidden))
        # Per row, about: two utilities, ``drawn`` and the table entry, 8 bytes each; three states (one of candidates).
        MEMORY_ACCOUNT.claim(local.rows * (32 + 3 * dtype().itemsize * len(local.hidden)), "rows of the samplers")
        self.before, self.after = (
            (np.full(local.rows, _NO_UTILITY, dtype=np.int64), np.zeros(shape, dtype=dtype)) for _ in range(2)
        )
        self._initialise_rows()
        self.drawn = np.zeros(local.rows, dtype=np.int64)
        self.seconds, self.draws, self.other_ranks_draws = [0.0], [0], 0
        self.passes = 0
        self.plan(sampling.samples, sampling.runs, local.rows)
        self.seconds = [time.perf_counter() - begun]

    def _initialise_rows(self) -> None:
        """Set each row to the better of the incumbent's hidden values and its dual start."""
        incumbent, states = self.sampling.incumbent, list[NDArray[Any]]()
        if incumbent is not None and self.model.hidden:
            states.append(np.tile(incumbent[list(self.local.hidden)], (self.local.rows, 1)))
        if self.at_dual and (dual := dual_states(self.local, self.sampling.backend)) is not None:
            states.append(dual)
        if not states:
            return
        rows = np.arange(self.local.rows)
        for candidate in states:
            candidate = candidate.astype(self.after[1].dtype)
            utility = chain_utilities(self.model, self.local.interface_shape, rows, candidate)
            better = utility > self.after[0]
            self.after[0][better], self.after[1][better] = utility[better], candidate[better]
        for source, target in zip(self.after, self.before, strict=True):
            target[:] = source

    @property
    def at_dual(self) -> bool:
        """Whether chains start at dual starts."""
        return self.sampling.starts == "dual" and self.model.hidden > 0

    @property
    def exhausted(self) -> bool:
        """Whether further time cannot improve any row: without hidden variables a row has one state."""
        return not self.local.hidden

    @property
    def states(self) -> NDArray[Any]:
        """The best hidden values of each row, (rows, hidden)."""
        return self.after[1]

    @property
    def updates(self) -> int:
        """Single-variable draws made so far, by all ranks."""
        return sum(self.draws) + self.other_ranks_draws

    def plan(self, samples: int, runs: int, rows: int) -> None:
        """Begin a pass over all rounds of the sampler, with new random bits.

        Parameters
        ----------
        samples : int
            Trials per chain.
        runs : int
            Chains per row.
        rows : int
            Number of rows that the pass samples, for the planned number of draws.
        """
        self.rounds = (self.sampler.rounds or one_round)(self.model, samples, self.sampling.temperature)
        if self.at_dual and self.passes == 0:  # later passes start at random
            self.rounds = [self.rounds[0]._replace(warm=True), *self.rounds[1:]]
        self.runs = runs
        self.first_trials = list(accumulate([round_.temperatures.size for round_ in self.rounds], initial=1))
        # Later passes use seeds above 64 bits, which no configuration can ask for.
        seed = self.sampling.seed + (self.passes << 64)
        self.key = np.array(chain_key(seed, self.local.agent), dtype=np.uint64)
        self.passes += 1
        self.planned_draws = rows * runs * (self.first_trials[-1] - 1) * len(self.local.hidden)

    def tasks(
        self, number: int, threads: int, halt: NDArray[np.uint8], rows: NDArray[np.int64] | None = None
    ) -> list[Callable[[], None]]:
        """Return the tasks of a round, which divide its rows among the threads; other rows keep their states.

        Parameters
        ----------
        number : int
            Number of the round; beyond the last round there are no tasks.
        threads : int
            Number of threads.
        halt : (1,) uint8
            Nonzero ends the tasks early.
        rows : (k,) int64, optional
            Rows to sample, ascending; all rows by default.
        """
        if number >= len(self.rounds):
            return []
        if number > 0 or self.passes > 1:
            self.before, self.after = self.after, self.before
        stoppable = self.sampling.backend.stop is not NO_DEADLINE
        if rows is not None or stoppable:  # rows that are not reached keep their states
            for source, target in zip(self.before, self.after, strict=True):
                target[:] = source
        if rows is None:
            ranges = [(0, self.local.rows)]
        else:
            cuts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), rows.size]
            ranges = [(int(rows[a]), int(rows[b - 1]) + 1) for a, b in pairwise(cuts) if a < b]
        total = sum(b - a for a, b in ranges)
        # Four tasks per thread even out their different times; a task of few draws would take less time than its start.
        draws_per_row = max(1, self.runs * self.rounds[number].temperatures.size * len(self.local.hidden))
        rows_per_task = max(-(-total // (4 * threads if threads > 1 else 1)), -(-tuning.TASK_DRAWS // draws_per_row))
        pieces = [(i, min(i + rows_per_task, end)) for begin, end in ranges for i in range(begin, end, rows_per_task)]
        return [partial(self._run, number, begin, end, halt) for begin, end in pieces]

    def _run(self, number: int, begin: int, end: int, halt: NDArray[np.uint8]) -> None:
        """Run a range of rows through one round; record its time and draws."""
        start = time.perf_counter()
        round_ = self.rounds[number]
        trials_made = self.kernel(
            self.model,
            self.shape,
            begin,
            end,
            self.runs,
            round_.temperatures,
            round_.ladder_factors(self.runs),
            self.first_trials[number],
            round_.warm,
            round_.repair,
            round_.descent,
            self.key,
            self.before,
            self.after,
            halt,
        )
        self.seconds.append(time.perf_counter() - start)
        self.draws.append(trials_made * len(self.local.hidden))
        if not round_.repair and trials_made == (end - begin) * self.runs * round_.temperatures.size:
            self.drawn[begin:end] += self.runs * round_.temperatures.size

    def export_rows(self, rows: Rows, draws: int, completed: bool = True) -> list[Array]:
        """Return counts, samples, utilities and states of some rows, for other ranks.

        Parameters
        ----------
        rows : slice or (k,) int64
            The rows.
        draws : int
            Value of ``updates`` before this work.
        completed : bool
            Whether the work was completed in time.
        """
        counts = np.array([completed, self.updates - draws], dtype=np.int64)
        return [counts, self.drawn[rows], self.after[0][rows], self.after[1][rows]]

    def import_rows(self, rows: Rows, part: Sequence[Array]) -> None:
        """Store the samples, utilities and states of some rows that another rank has sampled."""
        counts, self.drawn[rows], self.after[0][rows], self.after[1][rows] = part
        self.other_ranks_draws += int(counts[1])

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Replace the hidden values of some rows where the given ones are better; return whether any are."""
        candidates = self.states.copy()
        candidates[rows] = states
        before, now = (
            chain_utilities(self.model, self.local.interface_shape, rows, source)
            for source in (self.states, candidates)
        )
        better = now > before
        self.after[0][rows[better]], self.after[1][rows[better]] = now[better], candidates[rows[better]]
        return bool(better.any())

    def seconds_per_draw(self) -> float:
        """Return the estimated seconds per single-variable draw, from a few trials of one row over all temperatures."""
        if not self.model.hidden:
            return 0.0
        cooling = np.concatenate([round_.temperatures for round_ in self.rounds])
        timed = cooling[np.linspace(0, cooling.size - 1, tuning.MIN_SAMPLES).astype(np.int64)]
        states = [
            (np.full(1, _NO_UTILITY), np.zeros((1, len(self.local.hidden)), self.after[1].dtype)) for _ in range(2)
        ]
        shape, ladder = np.ones_like(self.shape), np.ones(1, dtype=np.float32)
        halt, begun = np.zeros(1, dtype=np.uint8), 0.0
        for _ in range(2):  # the first run may compile
            begun = time.perf_counter()
            self.kernel(self.model, shape, 0, 1, 1, timed, ladder, 1, False, False, 0, self.key, *states, halt)
        return (time.perf_counter() - begun) / (tuning.MIN_SAMPLES * len(self.local.hidden))

    def shorten(self, share: float) -> None:
        """Plan the first pass again with a fraction of its work: fewer runs, then fewer samples."""
        self.passes = 0
        self.plan_share(share)

    def plan_share(self, share: float) -> None:
        """Begin a pass with a fraction of the requested work."""
        wanted = share * self.sampling.runs * self.sampling.samples
        runs = int(min(self.sampling.runs, max(1.0, wanted / tuning.SAMPLES_PER_RUN)))
        self.plan(min(self.sampling.samples, max(tuning.MIN_SAMPLES, int(wanted / runs))), runs, self.local.rows)

    def count_pass(self, seconds: float) -> None:
        """Count a complete pass over all rows that a GPU made in ``seconds``."""
        self.drawn += self.runs * sum(round_.temperatures.size for round_ in self.rounds if not round_.repair)
        self.seconds.append(seconds)
        self.draws.append(self.planned_draws)

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Continue sampling for about ``seconds``: passes of growing length over some rows, from new random starts.

        Parameters
        ----------
        rows : (k,) int64
            Numbers of the rows to improve, ascending.
        seconds : float
            Time limit.
        threads : int
            Number of threads.
        """
        if not rows.size or not self.model.hidden:
            return
        deadline, halt = time.perf_counter() + seconds, np.zeros(1, dtype=np.uint8)
        stop = self.sampling.backend.stop.by(deadline)
        # A short rest of the time is not worth another pass.
        while (remaining := deadline - time.perf_counter()) > common.UNTRIED_SHARE / 2 * seconds:
            seconds_per_draw = max(1e-9, sum(self.seconds) / max(1, sum(self.draws)))
            seconds_per_sweep = seconds_per_draw * rows.size * len(self.local.hidden)
            sweeps = common.PLANNED_SHARE * remaining * threads / seconds_per_sweep  # of all runs of a row together
            runs = int(min(self.sampling.runs, max(1.0, sweeps / tuning.SAMPLES_PER_RUN)))
            samples = int(sweeps / runs)
            if samples < tuning.MIN_SAMPLES:
                return
            self.plan(min(samples, tuning.MAX_SAMPLES), runs, rows.size)
            for number in range(len(self.rounds)):
                if stop.over or not run_watched(self.tasks(number, threads, halt, rows), threads, stop, halt):
                    return

    def _evaluated(self, states: NDArray[Any]) -> EncodedTable:
        """Return the values of all rows as a table; on a GPU, large tables are computed there and stay there."""
        local, arithmetic, domains = self.local, self.sampling.arithmetic, self.model.domains
        large = len(states) >= min_resident_entries()
        if large and self.sampling.backend.device != "cpu" and is_gpu_in_use():
            try:
                return evaluate_on_device(self.flat, domains, states, local.interface, arithmetic)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
        return EncodedTable(
            local.interface, evaluate_rows(self.flat, domains, states, local.interface_shape, arithmetic)
        )

    def table(self) -> SampledTable:
        """Return the current table, its values computed from the states."""
        local, states = self.local, self.after[1]
        start = time.perf_counter()
        return SampledTable(
            lower=(self._evaluated(states),),
            upper=None,
            witness=partial(_witness, local, states.copy()),
            method=self.sampler.name,
            seconds=sum(self.seconds) + time.perf_counter() - start,
            updates=self.updates,
            drawn=int(self.drawn.min()),
            chains=self.statistics(),
        )

    def statistics(self) -> ChainStatistics | None:
        """Run some chains of the current pass again, and return how well they mix.

        None unless ``Sampling.diagnose`` is set, and for chains whose temperature is not constant, which are no Markov
        chains of one distribution.
        """
        first = self.rounds[0] if len(self.rounds) == 1 else None
        if not self.sampling.diagnose or not self.model.hidden or first is None or first.warm:
            return None
        temperatures = first.temperatures[: tuning.RECORDED_TRIALS]
        if self.sampler.exchange or not temperatures.size or np.any(temperatures != temperatures[0]):
            return None
        trace, utilities, states = compile_trace(self.sampler), list[Any](), list[Any]()
        rows = np.unique(np.linspace(0, self.local.rows - 1, common.FEW_ROWS).astype(np.int64))
        for row, run in product(rows.tolist(), range(min(self.runs, _RECORDED_RUNS))):
            utilities.append(np.zeros(temperatures.size, dtype=np.int64))
            states.append(np.zeros((temperatures.size, self.model.hidden), dtype=np.int32))
            chain = row, run, temperatures, self.first_trials[0], self.key
            trace(self.model, self.shape, *chain, utilities[-1], states[-1])
        return statistics_of(utilities, states, self.runs)


def _witness(local: LocalProblem, states: NDArray[Any], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values stored for a row."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))
