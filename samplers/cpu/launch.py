"""Run a sampler's chains on the CPU: every row, every run, best state kept (DMCMC paper, Algorithm 2 lines 9-10)."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.model.cuda.device_table import stays_from
from dmcmc.inference.runtime.deadline import NO_STOP
from dmcmc.inference.runtime.device import is_out_of_memory, opened
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.blocks.dual_starts import dual_states
from dmcmc.samplers.contract.protocol import SampledTable, Sampler, Sampling
from dmcmc.samplers.cuda.evaluation import evaluate_there
from dmcmc.samplers.model.chain_model import build_model, flatten_local
from dmcmc.samplers.model.evaluation import chain_utilities, evaluate_rows
from dmcmc.samplers.model.rng import chain_key
from dmcmc.samplers.model.rounds import one_round

Rows = slice | NDArray[np.int64]

_NONE = np.iinfo(np.int64).min  # the utility of a row without a state
_USED = 0.8  # of the time there is: what a pass is planned for, so that it ends cold
_TRIED = 8  # trials of one chain that say how long others take
_SHORTEST, _SHORT, _LONG = 8, 64, 1000  # samples of a run in a later pass: least, wanted at least, at most


class Chains:
    """One agent's chains: the state of its rows, before and after the present round.

    Attributes
    ----------
    drawn : (rows,) int64
        Samples that each row has had, without repairs.
    elsewhere : int
        Draws made by other ranks.
    """

    def __init__(self, local: LocalProblem, sampling: Sampling, sampler: Sampler, kernel: Callable[..., int]) -> None:
        start = time.perf_counter()
        self.local, self.sampling, self.sampler, self.kernel = local, sampling, sampler, kernel
        self.flat = flatten_local(local)
        self.model = build_model(local, self.flat)
        self.shape = np.array(local.interface_shape, dtype=np.int64)
        dtype = np.uint8 if self.model.domains.max(initial=0) <= 256 else np.int32
        shape = (local.rows, len(local.hidden))
        ACCOUNT.claim(local.rows * (32 + 3 * dtype().itemsize * len(local.hidden)), "rows that are sampled")
        self.before, self.after = (
            (np.full(local.rows, _NONE, dtype=np.int64), np.zeros(shape, dtype=dtype)) for _ in range(2)
        )
        self._begin()
        self.drawn = np.zeros(local.rows, dtype=np.int64)
        self.seconds, self.draws, self.elsewhere = [0.0], [0], 0
        self.passes = 0
        self.plan(sampling.samples, sampling.runs, local.rows)
        self.seconds = [time.perf_counter() - start]

    def _begin(self) -> None:
        """Give each row the better of the incumbent's hidden values and its dual start, for what is not reached."""
        incumbent, states = self.sampling.incumbent, list[NDArray[Any]]()
        if incumbent is not None and self.model.hidden:
            states.append(np.tile(incumbent[list(self.local.hidden)], (self.local.rows, 1)))
        if self.at_dual and (found := dual_states(self.local, self.sampling.backend)) is not None:
            states.append(found)
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
        """Whether chains begin at dual starts."""
        return self.sampling.starts == "dual" and self.model.hidden > 0

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
        """Draws made so far, by all ranks."""
        return sum(self.draws) + self.elsewhere

    def plan(self, samples: int, runs: int, rows: int) -> None:
        """Begin a pass: all of a sampler's rounds, with random bits of its own."""
        self.rounds = (self.sampler.rounds or one_round)(self.model, samples, self.sampling.temperature)
        if self.at_dual and self.passes == 0:  # later passes begin anywhere
            self.rounds = [self.rounds[0]._replace(warm=True), *self.rounds[1:]]
        self.runs = runs
        self.firsts = np.cumsum([1, *(r.temperatures.size for r in self.rounds)]).tolist()
        # A seed of its own for every later pass: no configuration can ask for one beyond 64 bits.
        seed = self.sampling.seed + (self.passes << 64)
        self.key = np.array(chain_key(seed, self.local.agent), dtype=np.uint64)
        self.passes += 1
        self.planned = rows * runs * (self.firsts[-1] - 1) * len(self.local.hidden)

    def tasks(
        self, number: int, threads: int, halt: NDArray[np.uint8], rows: NDArray[np.int64] | None = None
    ) -> list[Callable[[], None]]:
        """Divide the rows of a round among the threads; rows that are not chosen stay as they are.

        Parameters
        ----------
        halt : (1,)
            Ends the work early when it is set.
        """
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
        pieces = [(i, min(i + largest, end)) for begin, end in ranges for i in range(begin, end, largest)]
        return [partial(self._run, number, begin, end, halt) for begin, end in pieces]

    def _run(self, number: int, begin: int, end: int, halt: NDArray[np.uint8]) -> None:
        start = time.perf_counter()
        this = self.rounds[number]
        made = self.kernel(
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
            halt,
        )
        self.seconds.append(time.perf_counter() - start)
        self.draws.append(made * len(self.local.hidden))
        if not this.repair and made == (end - begin) * self.runs * this.temperatures.size:
            self.drawn[begin:end] += self.runs * this.temperatures.size

    def part(self, rows: Rows, draws: int, whole: bool = True) -> list[Array]:
        """Return what has been made of some rows, for other ranks.

        Parameters
        ----------
        draws
            Made before that.
        whole
            Whether there was time for all of it.
        """
        counts = np.array([whole, self.updates - draws], dtype=np.int64)
        return [counts, self.drawn[rows], self.after[0][rows], self.after[1][rows]]

    def take(self, rows: Rows, part: Sequence[Array]) -> None:
        """Take what another rank has made of some rows."""
        counts, self.drawn[rows], self.after[0][rows], self.after[1][rows] = part
        self.elsewhere += int(counts[1])

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Take other hidden values of some rows where they are better, as chains order them."""
        others = self.states.copy()
        others[rows] = states
        before, now = (
            chain_utilities(self.model, self.local.interface_shape, rows, each) for each in (self.states, others)
        )
        better = now > before
        self.after[0][rows[better]], self.after[1][rows[better]] = now[better], others[rows[better]]
        return bool(better.any())

    def pace(self) -> float:
        """Return the seconds that a draw takes, from a few trials of one row over all temperatures."""
        if not self.model.hidden:
            return 0.0
        cooling = np.concatenate([this.temperatures for this in self.rounds])
        few = cooling[np.linspace(0, cooling.size - 1, _TRIED).astype(np.int64)]
        states = [(np.full(1, _NONE), np.zeros((1, len(self.local.hidden)), self.after[1].dtype)) for _ in range(2)]
        shape, ladder = np.ones_like(self.shape), np.ones(1, dtype=np.float32)
        halt, begun = np.zeros(1, dtype=np.uint8), 0.0
        for _ in range(2):  # the first may compile
            begun = time.perf_counter()
            self.kernel(self.model, shape, 0, 1, 1, few, ladder, 1, False, False, 0, self.key, *states, halt)
        return (time.perf_counter() - begun) / (_TRIED * len(self.local.hidden))

    def shorten(self, share: float) -> None:
        """Plan the first pass anew with a share of its work: fewer runs, then fewer samples, cooled all the same."""
        self.passes = 0
        self.plan_share(share)

    def plan_share(self, share: float) -> None:
        """Begin a pass with a share of the work that is asked for."""
        wanted = share * self.sampling.runs * self.sampling.samples
        runs = int(min(self.sampling.runs, max(1.0, wanted / _SHORT)))
        self.plan(min(self.sampling.samples, max(_SHORTEST, int(wanted / runs))), runs, self.local.rows)

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
        deadline, halt = time.perf_counter() + seconds, np.zeros(1, dtype=np.uint8)
        stop = self.sampling.backend.stop.by(deadline)
        while (left := deadline - time.perf_counter()) > 0.05 * seconds:
            pace = max(1e-9, sum(self.seconds) / max(1, sum(self.draws)))
            sweeps = (
                _USED * left * threads / (pace * rows.size * len(self.local.hidden))
            )  # of all runs of a row together
            runs = int(min(self.sampling.runs, max(1.0, sweeps / _SHORT)))
            samples = int(sweeps / runs)
            if samples < _SHORTEST:
                return
            self.plan(min(samples, _LONG), runs, rows.size)
            for number in range(len(self.rounds)):
                if stop.over or not run_watched(self.tasks(number, threads, halt, rows), threads, stop, halt):
                    return

    def _evaluated(self, states: NDArray[Any]) -> Table:
        """Return what rows are worth; large tables of a run on a GPU are made there, and stay."""
        local, arithmetic, domains = self.local, self.sampling.arithmetic, self.model.domains
        large = len(states) >= stays_from()
        if large and self.sampling.backend.device != "cpu" and opened():
            try:
                return evaluate_there(self.flat, domains, states, local.interface, arithmetic)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
        return Table(local.interface, evaluate_rows(self.flat, domains, states, local.interface_shape, arithmetic))

    def table(self) -> SampledTable:
        """Return the table as it is, its values computed anew from the states."""
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
        )


def _witness(local: LocalProblem, states: NDArray[Any], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values kept for a row."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))
