"""The interface of samplers.

The plug-in protocols of local solvers, which turn agents' local problems into tables over their interfaces.

A row of an agent's table is an assignment of its boundary variables (its interface); its entry is the utility of the
best assignment of the agent's other variables, the hidden ones.

There are two kinds of plug-in. A :class:`LocalSolver` does all of the work. A :class:`Sampler` is smaller: two scalar
functions that start and advance one Markov chain; :mod:`dmcmc.samplers.chain_solver` makes a local solver of it.

The ranks that work on the rows of one agent together, as a local solver sees them.

How well the chains of a sampler mix: distinct states, autocorrelation time and effective sample size.

At a low temperature a chain soon stays at one state, and further trials are repetitions: they add nothing to the sample
size that Property 1 of the DMCMC paper counts. Some chains of an agent are therefore run again and recorded. The
integrated autocorrelation time is that of the utility, with the automatic window of A. Sokal, *Monte Carlo methods in
statistical mechanics* (1997).

Make an error message for a sampler that Numba cannot compile.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.sparse.sparse_table import SizeStatistics
from dmcmc.samplers.model.schedule import Rounds, Temperature

if TYPE_CHECKING:
    from dmcmc.inference.dpop.division import LocalProblem


RankArrays = Sequence[Array]


class RankTeam(Protocol):
    """The ranks that make one agent's table: first the rank that owns the agent, then ranks that own no agent."""

    @property
    def rank(self) -> int:
        """The number of this rank in the team; rank 0 keeps the table."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    @property
    def private(self) -> bool:
        """Whether the agent's utilities must not be sent between the ranks, even if all of them know the utilities."""
        ...

    def allgather(self, work: Callable[[], RankArrays]) -> list[RankArrays]:
        """Return the arrays that ``work`` makes on each rank, in the order of ranks; a collective call.

        Parameters
        ----------
        work : callable
            Returns this rank's arrays. It must not wait for other ranks; an exception on one rank is raised on all.
        """
        ...


class SingleRankTeam:
    """A team of one rank."""

    rank, size, private = 0, 1, False

    def allgather(self, work: Callable[[], RankArrays]) -> list[RankArrays]:
        """Return the arrays that ``work`` makes."""
        return [work()]


SINGLE_RANK = SingleRankTeam()


def broadcast_from_first(team: RankTeam, value: bool) -> bool:
    """Return the value that the first rank of a team passes; a collective call."""
    return bool(team.allgather(lambda: [np.array([value])])[0][0][0])


def rows_of_rank(rows: int, team: RankTeam, rank: int | None = None) -> tuple[int, int]:
    """Return the range of rows that a rank works on; ranges differ in size by at most one row.

    Parameters
    ----------
    rows : int
        Number of rows to divide.
    team : RankTeam
        The ranks.
    rank : int, optional
        Number of the rank in the team; this rank by default.

    Returns
    -------
    (int, int)
        The first row, and the row after the last.

    Examples
    --------
    >>> rows_of_rank(10, SINGLE_RANK)
    (0, 10)
    """
    number = team.rank if rank is None else rank
    return number * rows // team.size, (number + 1) * rows // team.size


_WINDOW_FACTOR = 5.0  # autocorrelations are summed up to the first lag of at least 5 times the autocorrelation time


class ChainStatistics(NamedTuple):
    """Statistics of some chains of one agent.

    Attributes
    ----------
    chains : int
        Number of chains that were recorded.
    samples : int
        Trials of each of them.
    distinct_states : float
        Mean number of distinct states that a chain visits.
    autocorrelation_time : float
        Mean integrated autocorrelation time of the utility over the second half of a chain, in trials.
    effective_samples : float
        Mean effective sample size of a row, all its runs together; see :func:`statistics_of`.
    frozen : float
        Share of the chains that visit a single state in their second half.
    """

    chains: int
    samples: int
    distinct_states: float
    autocorrelation_time: float
    effective_samples: float
    frozen: float


def autocorrelation_time(series: NDArray[np.float64]) -> float:
    """Return the integrated autocorrelation time τ = 1 + 2 Σ r(t) of a series, in steps.

    r(t) is the autocorrelation at lag t. The sum ends at the first lag M ≥ 5 τ(M), or at the end of the series. A
    constant series has its own length: it is worth one sample. The result is at least 1.

    Parameters
    ----------
    series : (n,) float64
        A stationary series.

    Examples
    --------
    >>> autocorrelation_time(np.zeros(50)), autocorrelation_time(np.tile([0.0, 1.0], 50))
    (50.0, 1.0)
    """
    n, centred = series.size, series - series.mean()
    variance = float(centred @ centred)
    if n < 2 or variance == 0:
        return float(n)
    transform = np.fft.rfft(centred, 2 * n)
    correlation = np.fft.irfft(transform * np.conj(transform), 2 * n)[:n] / variance
    times = 2 * np.cumsum(correlation) - 1
    ended = np.flatnonzero(np.arange(n) >= _WINDOW_FACTOR * times)
    return float(min(max(times[ended[0] if ended.size else n - 1], 1.0), n))


def statistics_of(
    utilities: Sequence[NDArray[np.int64]], states: Sequence[NDArray[np.int32]], runs: int
) -> ChainStatistics:
    """Return the statistics of recorded chains.

    The effective sample size of a chain is its number of trials over the autocorrelation time, and at most the number
    of distinct states that it visits. That of a row is the mean over the chains times the number of its runs.

    Parameters
    ----------
    utilities : sequence of (trials,) int64
        Utility after each trial, for each chain.
    states : sequence of (trials, hidden) int32
        Hidden values after each trial, for each chain.
    runs : int
        Chains per row.
    """
    samples, times, distinct, frozen = utilities[0].size, list[float](), list[int](), list[bool]()
    for utility, chain in zip(utilities, states, strict=True):
        late = slice(samples // 2, None)
        frozen.append(len(np.unique(chain[late], axis=0)) == 1)
        times.append(float(samples) if frozen[-1] else autocorrelation_time(utility[late].astype(np.float64)))
        distinct.append(len(np.unique(chain, axis=0)))
    effective = np.minimum(samples / np.array(times), distinct)
    return ChainStatistics(
        chains=len(times),
        samples=samples,
        distinct_states=float(np.mean(distinct)),
        autocorrelation_time=float(np.mean(times)),
        effective_samples=float(runs * effective.mean()),
        frozen=float(np.mean(frozen)),
    )


@dataclass(frozen=True)
class Sampling:
    """The settings that a local solver receives.

    Attributes
    ----------
    arithmetic : Arithmetic
        Encoding of the tables that the solver returns.
    seed : int
        Any integer; equal seeds must give equal tables, on any number of ranks and threads.
    runs, samples : int
        R and S of the DMCMC paper: chains per row, and trials per chain.
    temperature : Temperature
        Temperature schedule of the trials.
    backend : Backend
        The CPU threads, and a GPU if there is one; also the deadline.
    progress : callable
        Called with the number of agents finished since the last call.
    seconds : float or None
        Time limit for the first pass over all agents together: chains get fewer samples, and cool within that time.
        None leaves runs and samples unchanged.
    incumbent : (n,) int64 or None
        Values of all variables of the problem: rows start with its hidden values, and never become worse.
    team : RankTeam
        The ranks that divide the rows of an agent; there is only one agent if there are several ranks. A solver that
        ignores the team does all work on the first rank.
    starts : {"auto", "random", "dual"}
        Where chains start: at random states, or at the rounded potentials of a dual ascent, given each row. ``auto``
        takes dual starts for block moves only.
    memory : int or None
        Bytes that an agent's tables may take; None for no limit.
    diagnose : bool
        Whether some chains of each agent are run again for statistics, see
        :mod:`dmcmc.samplers.contract.protocol`.
    """

    arithmetic: Arithmetic
    seed: int = 0
    runs: int = 10
    samples: int = 100
    temperature: Temperature = field(default_factory=Temperature)
    backend: Backend = CPU
    progress: Callable[[int], None] = lambda _: None
    seconds: float | None = None
    incumbent: NDArray[np.int64] | None = None
    team: RankTeam = SINGLE_RANK
    starts: str = "auto"
    memory: int | None = None
    diagnose: bool = False


@dataclass(frozen=True)
class SampledTable:
    """The result of a local solver for one agent i.

    Attributes
    ----------
    lower : tuple of Table
        Encoded tables over parts of the interface; for every interface assignment b their sum V_i(b) ≤ U_i(b) is
        attained by ``witness(b)``.
    upper : tuple of Table or None
        Likewise tables with sum W_i(b) ≥ U_i(b), or None if the solver has no bound. The same object as ``lower`` if
        exact.
    witness : callable
        Maps the values of the interface variables, {variable: value}, to the values of the hidden variables.
    method : str
        Name of the solver.
    seconds : float
        Time spent on this agent.
    cells, updates : int
        Work: joined table cells, and single-variable draws or proposals.
    drawn : int
        Smallest number of samples per row, over all runs, as Property 1 of the DMCMC paper counts them; 0 for solvers
        that draw none. Trials of repair rounds do not count, since only some rows take part.
    sparse_sizes : SizeStatistics or None
        Sizes of the sparse tables, if there were any.
    chains : ChainStatistics or None
        How well the chains mix, if ``Sampling.diagnose`` was set and they have one constant temperature.
    """

    lower: tuple[EncodedTable, ...]
    upper: tuple[EncodedTable, ...] | None
    witness: Callable[[Mapping[int, int]], dict[int, int]]
    method: str
    seconds: float
    cells: int = 0
    updates: int = 0
    drawn: int = 0
    sparse_sizes: SizeStatistics | None = None
    chains: ChainStatistics | None = None

    @property
    def exact(self) -> bool:
        """Whether the table is proven to be exact: V = U = W."""
        return self.upper is self.lower


class Resumable(Protocol):
    """An agent's sampling that can be continued."""

    @property
    def exhausted(self) -> bool:
        """Whether further time cannot improve any row."""
        ...

    @property
    def states(self) -> NDArray[Any]:
        """The best hidden values of each row, (rows, hidden) integers."""
        ...

    def table(self) -> SampledTable:
        """Return the current table."""
        ...

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Improve some rows for a limited time; rows never become worse.

        Parameters
        ----------
        rows : (k,) int64
            Numbers of the rows, ascending.
        seconds : float
            Approximate time limit.
        threads : int
            Number of threads to use.
        """
        ...

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Replace the hidden values of some rows where the given ones are better.

        Parameters
        ----------
        rows : (k,) int64
            Numbers of the rows.
        states : (k, hidden) integers
            Their new hidden values.

        Returns
        -------
        bool
            Whether any row was replaced.
        """
        ...


class LocalSolver(Protocol):
    """A plug-in that solves a batch of agents: a name, a line of help, and two functions."""

    @property
    def name(self) -> str:
        """The value of ``local.method`` that selects this solver."""
        ...

    @property
    def summary(self) -> str:
        """One line of help."""
        ...

    def check(self, local: "LocalProblem", memory: int, arithmetic: Arithmetic) -> None:
        """Check that an agent can be solved within a memory limit.

        Parameters
        ----------
        local : LocalProblem
            The agent.
        memory : int
            Memory limit in bytes.
        arithmetic : Arithmetic
            Encoding of its tables.

        Raises
        ------
        ResourceError
            If the agent does not fit.
        """
        ...

    def solve(self, problems: "Sequence[LocalProblem]", sampling: Sampling) -> list[SampledTable]:
        """Solve some agents.

        Parameters
        ----------
        problems : sequence of LocalProblem
            The agents of this rank.
        sampling : Sampling
            The settings.

        Returns
        -------
        list of SampledTable
            One table per agent, in the same order.
        """
        ...


class Sampler(NamedTuple):
    """A Markov chain as two plain functions, compiled by the framework; write them as for :func:`numba.njit`.

    The functions allocate nothing and pass no slices of arrays on, so that they can also be compiled for a GPU.

    Attributes
    ----------
    name, summary : str
        The value of ``local.method`` that selects this sampler, and one line of help.
    init : callable
        ``init(model, z, scores, rng) -> utility`` writes the first state to ``z``.
    step : callable
        ``step(model, z, scores, utility, scratch, rng, trial, temperature) -> utility`` makes one trial in place;
        trials count from 1. With rounds or exchange, ``scores`` must match ``z`` when it returns, unless ``scored`` is
        False.
    rounds : callable or None
        ``rounds(model, samples, temperature)`` divides a run into a list of rounds
        (:class:`dmcmc.samplers.model.schedule.Round`); None makes all trials from one random start.
    exchange : bool
        Whether the runs of a row are chains at different temperatures that exchange states.
    scored : bool
        Whether ``step`` keeps ``scores`` up to date.

    Notes
    -----
    ``model`` is a :class:`dmcmc.samplers.model.chain_model.ChainModel`. ``z``, ``scores`` and utilities are described
    in :mod:`dmcmc.samplers.model.state_kernels`, which also has the moves. ``rng`` is (key 0, key 1, row, run), four
    uint64 for :func:`dmcmc.samplers.model.state_kernels.philox`. ``scratch`` is (at least max(lanes, hidden),) int32,
    free to use.
    """

    name: str
    summary: str
    init: Callable[..., Any]
    step: Callable[..., Any]
    rounds: Rounds | None = None
    exchange: bool = False
    scored: bool = True


def explain(sampler: Sampler, error: Exception) -> ConfigError:
    """Return an error of one line: the sampler, the place in its file, and the reason that Numba gives."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Failed in")]
    sources = {Path(inspect.getsourcefile(f) or "").name for f in (sampler.init, sampler.step)}
    locations = [
        (path, line) for path, line in re.findall(r'File "([^"]+)", line (\d+)', text) if Path(path).name in sources
    ]
    where = f" ({locations[0][0]}:{locations[0][1]})" if locations else ""
    return ConfigError(f"local.method: sampler {sampler.name!r} does not compile{where}: {' '.join(lines[:2])}")
