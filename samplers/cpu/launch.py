"""Chains of all rows on the CPU.

Run a sampler's chains on the CPU: every row, every run, best state kept (DMCMC paper, Algorithm 2 lines 9-10).

A *row* is an assignment of the agent's boundary variables (its interface); its chains, the *runs*, sample the hidden
variables. A *round* is a number of trials that all rows complete before any row continues. Utilities of states are in
*chain units*: integers, the utility times a power of two, with −2^k per violation.

The best state of every row of an agent that chains have found, before and after the current round.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.device_table import min_resident_entries
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.device import is_gpu_in_use, is_out_of_memory
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.blocks.starts import dual_states
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.protocol import ChainStatistics, SampledTable, Sampler, Sampling, statistics_of
from dmcmc.samplers.cpu.chain_kernels import compile_trace
from dmcmc.samplers.cuda.evaluation import evaluate_on_device
from dmcmc.samplers.model.chain_model import ChainModel, chain_key, score_columns
from dmcmc.samplers.model.evaluation import chain_utilities, evaluate_rows, stored_witness
from dmcmc.samplers.model.schedule import Round, one_round

Rows = slice | NDArray[np.int64]

NO_UTILITY = np.iinfo(np.int64).min  # the utility of a row that has no state yet


class RowStates:
    """The best state of every row, before and after the current round.

    Parameters
    ----------
    local : LocalProblem
        The agent.
    model : ChainModel
        The agent's columns.

    Attributes
    ----------
    before, after : ((rows,) int64, (rows, hidden) uint8 or int32)
        Best utility, in chain units, and best state of each row, before and after the current round.
    drawn : (rows,) int64
        Samples of each row, without those of repair rounds.
    """

    def __init__(self, local: LocalProblem, model: ChainModel) -> None:
        self._model, self._interface_shape = model, local.interface_shape
        dtype = np.uint8 if model.domains.max(initial=0) <= 256 else np.int32
        shape = (local.rows, len(local.hidden))
        # Per row, about: two utilities, ``drawn`` and the table entry, 8 bytes each; three states (one of candidates).
        MEMORY_ACCOUNT.claim(local.rows * (32 + 3 * dtype().itemsize * len(local.hidden)), "rows of the samplers")
        self.before, self.after = (
            (np.full(local.rows, NO_UTILITY, dtype=np.int64), np.zeros(shape, dtype=dtype)) for _ in range(2)
        )
        self.drawn = np.zeros(local.rows, dtype=np.int64)

    def start_from(self, candidates: Sequence[NDArray[Any]]) -> None:
        """Set each row to the best of some candidates for its state, each (rows, hidden)."""
        rows = np.arange(self.drawn.size)
        for candidate in candidates:
            states = candidate.astype(self.after[1].dtype)
            utility = chain_utilities(self._model, self._interface_shape, rows, states)
            better = utility > self.after[0]
            self.after[0][better], self.after[1][better] = utility[better], states[better]
        if candidates:
            self.keep_all()

    def begin_round(self, is_first: bool, keep: bool) -> None:
        """Make the states after a round those before the next one.

        Parameters
        ----------
        is_first : bool
            Whether there has been no round yet.
        keep : bool
            Whether rows that the round does not reach keep their states; otherwise it has to sample all rows.
        """
        if not is_first:
            self.before, self.after = self.after, self.before
        if keep:
            for source, target in zip(self.before, self.after, strict=True):
                target[:] = source

    def keep_all(self) -> None:
        """Make the states after the round those before it, too."""
        for source, target in zip(self.after, self.before, strict=True):
            target[:] = source

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Replace the states of some rows where the given ones are better; return whether any are."""
        candidates = self.after[1].copy()
        candidates[rows] = states
        before, now = (
            chain_utilities(self._model, self._interface_shape, rows, source) for source in (self.after[1], candidates)
        )
        better = now > before
        self.after[0][rows[better]], self.after[1][rows[better]] = now[better], candidates[rows[better]]
        return bool(better.any())

    def of_rows(self, rows: Rows) -> list[Array]:
        """Return samples, utilities and states of some rows."""
        return [self.drawn[rows], self.after[0][rows], self.after[1][rows]]

    def set_rows(self, rows: Rows, part: Sequence[Array]) -> None:
        """Set samples, utilities and states of some rows."""
        self.drawn[rows], self.after[0][rows], self.after[1][rows] = part


_RECORDED_RUNS = 2  # chains of each row that are run again for statistics


@dataclass(frozen=True)
class ChainPass:
    """A pass over all rounds of a sampler.

    Attributes
    ----------
    rounds : list of Round
        The rounds.
    runs : int
        Chains per row.
    key : (2,) uint64
        Key of the random bits.
    """

    rounds: list[Round]
    runs: int
    key: NDArray[np.uint64]

    @cached_property
    def first_trials(self) -> list[int]:
        """The number of the first trial of each round, and of the trial after the last."""
        return list(accumulate([round_.temperatures.size for round_ in self.rounds], initial=1))

    @property
    def trials(self) -> int:
        """The trials of a chain in all rounds."""
        return self.first_trials[-1] - 1

    @property
    def samples(self) -> int:
        """The samples of a row that all its chains draw in all rounds but those that repair."""
        return self.runs * sum(round_.temperatures.size for round_ in self.rounds if not round_.repair)


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
    best : RowStates
        Best utility and state of each row, before and after the current round, and the number of its samples.
    current : ChainPass
        The current pass.
    passes : int
        Number of passes begun: the first one as requested, or shortened; each later one from new random starts.
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
        self.flat, self.model = local.graph.flat, score_columns(local.graph, local.ranges, local.known)
        self.shape = np.array(local.interface_shape, dtype=np.int64)
        self.best = RowStates(local, self.model)
        self.best.start_from(_start_states(local, sampling, self.model))
        self.seconds, self.draws, self.other_ranks_draws, self.passes = [0.0], [0], 0, 0
        self.plan(sampling.samples, sampling.runs, local.rows)
        self.seconds = [time.perf_counter() - begun]

    @property
    def exhausted(self) -> bool:
        """Whether further time cannot improve any row: without hidden variables a row has one state."""
        return not self.local.hidden

    @property
    def states(self) -> NDArray[Any]:
        """The best hidden values of each row, (rows, hidden)."""
        return self.best.after[1]

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
        rounds = (self.sampler.rounds or one_round)(self.model, samples, self.sampling.temperature)
        if self.passes == 0 and _has_dual_starts(self.sampling, self.model):  # later passes start at random
            rounds = [rounds[0]._replace(warm=True), *rounds[1:]]
        # Later passes use seeds above 64 bits, which no configuration can ask for.
        seed = self.sampling.seed + (self.passes << 64)
        self.current = ChainPass(rounds, runs, np.array(chain_key(seed, self.local.agent), dtype=np.uint64))
        self.passes += 1
        self.planned_draws = rows * runs * self.current.trials * len(self.local.hidden)

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
        current = self.current
        if number >= len(current.rounds):
            return []
        may_miss_rows = rows is not None or self.sampling.backend.stop is not NO_DEADLINE
        self.best.begin_round(is_first=number == 0 and self.passes <= 1, keep=may_miss_rows)
        # Four tasks per thread even out their different times; a task of few draws would take less time than its start.
        draws_per_row = max(1, current.runs * current.rounds[number].temperatures.size * len(self.local.hidden))
        n_rows = self.local.rows if rows is None else rows.size
        rows_per_task = max(-(-n_rows // (4 * threads if threads > 1 else 1)), -(-tuning.TASK_DRAWS // draws_per_row))
        pieces = _ranges(n_rows if rows is None else rows, rows_per_task)
        return [partial(self._run, number, begin, end, halt) for begin, end in pieces]

    def _run(self, number: int, begin: int, end: int, halt: NDArray[np.uint8]) -> None:
        """Run a range of rows through one round; record its time and draws."""
        start, current, round_ = time.perf_counter(), self.current, self.current.rounds[number]
        trials_made = self.kernel(
            self.model, self.shape, begin, end, current.runs, round_.temperatures, round_.ladder_factors(current.runs),
            current.first_trials[number], round_.warm, round_.repair, round_.descent, current.key, self.best.before,
            self.best.after, halt,
        )  # fmt: skip
        self.seconds.append(time.perf_counter() - start)
        self.draws.append(trials_made * len(self.local.hidden))
        if not round_.repair and trials_made == (end - begin) * current.runs * round_.temperatures.size:
            self.best.drawn[begin:end] += current.runs * round_.temperatures.size

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
        return [np.array([completed, self.updates - draws], dtype=np.int64), *self.best.of_rows(rows)]

    def import_rows(self, rows: Rows, part: Sequence[Array]) -> None:
        """Store the samples, utilities and states of some rows that another rank has sampled."""
        self.best.set_rows(rows, part[1:])
        self.other_ranks_draws += int(part[0][1])

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Replace the hidden values of some rows where the given ones are better; return whether any are."""
        return self.best.take_better(rows, states)

    def plan_share(self, share: float, is_first: bool = False) -> None:
        """Begin a pass with a fraction of the requested work: fewer runs, then fewer samples.

        ``is_first`` says that the first pass is planned again.
        """
        self.passes = 0 if is_first else self.passes
        wanted = share * self.sampling.runs * self.sampling.samples
        runs = _runs_for(wanted, self.sampling.runs)
        self.plan(min(self.sampling.samples, max(tuning.MIN_SAMPLES, int(wanted / runs))), runs, self.local.rows)

    def count_pass(self, seconds: float) -> None:
        """Count a complete pass over all rows that a GPU made in ``seconds``."""
        self.best.drawn += self.current.samples
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
        while (remaining := deadline - time.perf_counter()) > tuning.UNTRIED_SHARE / 2 * seconds:
            samples, runs = _trials_and_runs(self, rows.size, remaining * threads)
            if samples < tuning.MIN_SAMPLES:
                return
            self.plan(min(samples, tuning.MAX_SAMPLES), runs, rows.size)
            for number in range(len(self.current.rounds)):
                if stop.over or not run_until_deadline(self.tasks(number, threads, halt, rows), threads, stop, halt):
                    return

    def table(self) -> SampledTable:
        """Return the current table, its values computed from the states."""
        local, states, start = self.local, self.states, time.perf_counter()
        return SampledTable(
            lower=(_evaluated(local, self.sampling, self.model, states),),
            upper=None,
            witness=stored_witness(local, states.copy()),
            method=self.sampler.name,
            seconds=sum(self.seconds) + time.perf_counter() - start,
            updates=self.updates,
            drawn=int(self.best.drawn.min()),
            chains=mixing_statistics(self),
        )


def seconds_per_draw(chains: Chains) -> float:
    """Return the estimated seconds per single-variable draw, from a few trials of one row over all temperatures."""
    model, hidden = chains.model, len(chains.local.hidden)
    if not model.hidden:
        return 0.0
    cooling = np.concatenate([round_.temperatures for round_ in chains.current.rounds])
    timed = cooling[np.linspace(0, cooling.size - 1, tuning.MIN_SAMPLES).astype(np.int64)]
    states = [(np.full(1, NO_UTILITY), np.zeros((1, hidden), chains.states.dtype)) for _ in range(2)]
    shape, ladder = np.ones_like(chains.shape), np.ones(1, dtype=np.float32)
    halt, begun = np.zeros(1, dtype=np.uint8), 0.0
    for _ in range(2):  # the first run may compile
        begun = time.perf_counter()
        chains.kernel(model, shape, 0, 1, 1, timed, ladder, 1, False, False, 0, chains.current.key, *states, halt)
    return (time.perf_counter() - begun) / (tuning.MIN_SAMPLES * hidden)


def _trials_and_runs(chains: Chains, rows: int, seconds: float) -> tuple[int, int]:
    """Return the trials per chain, and the chains per row, of a pass over some rows that takes one core some seconds.

    The time of a draw is that of all earlier draws on average.
    """
    seconds_per_draw = max(1e-9, sum(chains.seconds) / max(1, sum(chains.draws)))
    # of all runs of a row together
    sweeps = tuning.PLANNED_SHARE * seconds / (seconds_per_draw * rows * len(chains.local.hidden))
    runs = _runs_for(sweeps, chains.sampling.runs)
    return int(sweeps / runs), runs


def _has_dual_starts(sampling: Sampling, model: ChainModel) -> bool:
    """Return whether the chains of the first pass start at dual starts."""
    return sampling.starts == "dual" and model.hidden > 0


def _start_states(local: LocalProblem, sampling: Sampling, model: ChainModel) -> list[NDArray[Any]]:
    """Return the states at which rows start: the incumbent's hidden values, and the dual starts."""
    incumbent, states = sampling.incumbent, list[NDArray[Any]]()
    if incumbent is not None and model.hidden:
        states.append(np.tile(incumbent[list(local.hidden)], (local.rows, 1)))
    if _has_dual_starts(sampling, model) and (dual := dual_states(local, sampling.backend)) is not None:
        states.append(dual)
    return states


def _runs_for(samples: float, most: int) -> int:
    """Return the chains among which all samples of a row are divided, at most ``most``."""
    return int(min(most, max(1.0, samples / tuning.SAMPLES_PER_RUN)))


def _ranges(rows: int | NDArray[np.int64], longest: int) -> list[tuple[int, int]]:
    """Divide the first ``rows`` rows, or some rows in ascending order, into ranges (begin, end) of limited length."""
    if isinstance(rows, int):
        ranges = [(0, rows)]
    else:
        cuts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), rows.size]
        ranges = [(int(rows[a]), int(rows[b - 1]) + 1) for a, b in pairwise(cuts) if a < b]
    return [(i, min(i + longest, end)) for begin, end in ranges for i in range(begin, end, longest)]


def _evaluated(local: LocalProblem, sampling: Sampling, model: ChainModel, states: NDArray[Any]) -> EncodedTable:
    """Return the values of all rows as a table; on a GPU, large tables are computed there and stay there."""
    flat, arithmetic, domains = local.graph.flat, sampling.arithmetic, model.domains
    large = len(states) >= min_resident_entries()
    if large and sampling.backend.device != "cpu" and is_gpu_in_use():
        try:
            return evaluate_on_device(flat, domains, states, local.interface, arithmetic)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
    return EncodedTable(local.interface, evaluate_rows(flat, domains, states, local.interface_shape, arithmetic))


def mixing_statistics(chains: Chains) -> ChainStatistics | None:
    """Run some chains of the current pass again, and return how well they mix.

    The result is None unless ``Sampling.diagnose`` is set, and for chains whose temperature is not constant, which are
    no Markov chains of one distribution.
    """
    current = chains.current
    first = current.rounds[0] if len(current.rounds) == 1 else None
    if not chains.sampling.diagnose or not chains.model.hidden or first is None or first.warm:
        return None
    temperatures = first.temperatures[: tuning.RECORDED_TRIALS]
    if chains.sampler.exchange or not temperatures.size or np.any(temperatures != temperatures[0]):
        return None
    trace, utilities, states = compile_trace(chains.sampler), list[Any](), list[Any]()
    rows = np.unique(np.linspace(0, chains.local.rows - 1, tuning.FEW_ROWS).astype(np.int64))
    for row, run in product(rows.tolist(), range(min(current.runs, _RECORDED_RUNS))):
        utilities.append(np.zeros(temperatures.size, dtype=np.int64))
        states.append(np.zeros((temperatures.size, chains.model.hidden), dtype=np.int32))
        chain = row, run, temperatures, current.first_trials[0], current.key
        trace(chains.model, chains.shape, *chain, utilities[-1], states[-1])
    return statistics_of(utilities, states, current.runs)
