"""The plug-in protocols of local solvers, which turn agents' local problems into tables over their interfaces.

A row of an agent's table is an assignment of its boundary variables (its interface); its entry is the utility of the
best assignment of the agent's other variables, the hidden ones.

There are two kinds of plug-in. A :class:`LocalSolver` does all of the work. A :class:`Sampler` is smaller: two scalar
functions that start and advance one Markov chain; :mod:`dmcmc.samplers.chain_solver` makes a local solver of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.sparse.size_statistics import SizeStatistics
from dmcmc.samplers.contract.chain_statistics import ChainStatistics
from dmcmc.samplers.contract.team import SINGLE_RANK, RankTeam
from dmcmc.samplers.model.rounds import Rounds
from dmcmc.samplers.model.schedule import Temperature

if TYPE_CHECKING:
    from dmcmc.inference.dpop.division import LocalProblem


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
        :mod:`dmcmc.samplers.contract.chain_statistics`.
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
        ``rounds(model, samples, temperature)`` divides a run into a list of :class:`dmcmc.samplers.model.rounds.Round`;
        None makes all trials from one random start.
    exchange : bool
        Whether the runs of a row are chains at different temperatures that exchange states.
    scored : bool
        Whether ``step`` keeps ``scores`` up to date.

    Notes
    -----
    ``model`` is a :class:`dmcmc.samplers.model.chain_model.ChainModel`. ``z``, ``scores`` and utilities are described
    in :mod:`dmcmc.samplers.model.state_kernels`, which also has the moves. ``rng`` is (key 0, key 1, row, run), four
    uint64 for :func:`dmcmc.samplers.model.rng_kernels.philox`. ``scratch`` is (at least max(lanes, hidden),) int32,
    free to use.
    """

    name: str
    summary: str
    init: Callable[..., Any]
    step: Callable[..., Any]
    rounds: Rounds | None = None
    exchange: bool = False
    scored: bool = True
