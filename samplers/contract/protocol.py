"""What a local solver is: it turns agents' local problems into tables over their interfaces.

Two kinds of plug-in exist. A :class:`LocalSolver` does all of it itself. A :class:`Sampler` is smaller: two scalar
functions that start and move one Markov chain; :mod:`dmcmc.samplers.chain_solver` makes a local solver of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.sparse.size_statistics import Kept
from dmcmc.samplers.contract.team import ALONE, Team
from dmcmc.samplers.model.rounds import Rounds
from dmcmc.samplers.model.schedule import Temperature


@dataclass(frozen=True)
class Sampling:
    """What a local solver is told.

    Attributes
    ----------
    arithmetic : Arithmetic
        What its tables must be encoded in.
    seed : int
        Any integer.
    runs, samples : int
        R and S: chains a row, and trials a chain.
    temperature : Temperature
    backend : Backend
        Its threads, and a GPU if it has one.
    progress : callable
        Called with the number of agents finished since the last call.
    seconds : float or None
        What all agents of a first pass may take together: chains get fewer samples and cool in the time they have.
        None leaves them as they are.
    incumbent : (n,) int64 or None
        Values of all variables of the problem: rows begin with its hidden values, and are never worse.
    team : Team
        The ranks among which the rows of an agent are divided: there is one agent, if there are several. Solvers that
        know nothing of it do all the work on the first of them.
    starts : {"auto", "random", "dual"}
        Where chains begin: anywhere, or at what a dual ascent's shares are rounded to, given each row; ``auto``: there
        where the chains are those of block moves.
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
    team: Team = ALONE
    starts: str = "auto"


@dataclass(frozen=True)
class SampledTable:
    """One agent's answer.

    Attributes
    ----------
    lower : tuple of Table
        Encoded tables over parts of the interface; their sum is V_i(b) ≤ U_i(b), attained by ``witness``.
    upper : tuple of Table or None
        Likewise W_i(b) ≥ U_i(b), or None where the solver has no bound. The same object as ``lower`` if exact.
    witness : callable
        Maps values of the interface variables to values of the hidden ones.
    method : str
        Which solver it was.
    seconds : float
        Time spent on this agent.
    cells, updates : int
        Work: joined table cells, and single-variable draws or proposals.
    drawn : int
        Samples that every row has had at least, all runs together, as Property 1 of the DMCMC paper counts them; 0 for
        solvers that draw none. Repairs do not count: only some rows take part.
    kept : Kept or None
        What incomplete tables have held, where there were any.
    """

    lower: tuple[Table, ...]
    upper: tuple[Table, ...] | None
    witness: Callable[[Mapping[int, int]], dict[int, int]]
    method: str
    seconds: float
    cells: int = 0
    updates: int = 0
    drawn: int = 0
    kept: Kept | None = None

    @property
    def exact(self) -> bool:
        """Whether V = U = W."""
        return self.upper is self.lower


class Resumable(Protocol):
    """An agent's sampling that can go on."""

    @property
    def exhausted(self) -> bool:
        """Whether no time at all would make a row better."""
        ...

    @property
    def states(self) -> NDArray[Any]:
        """The best hidden values of each row, (rows, hidden)."""
        ...

    def table(self) -> SampledTable:
        """Return the table as it is now."""
        ...

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Work on some rows (ascending) for about some seconds; rows only ever get better."""
        ...

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Take other hidden values of some rows, (k, hidden), where they are better; return whether any are."""
        ...


class LocalSolver(Protocol):
    """A plug-in: a name, a line of help, and a function over a batch of agents."""

    @property
    def name(self) -> str:
        """What ``local.method`` calls it."""
        ...

    @property
    def summary(self) -> str:
        """One line of help."""
        ...

    def check(self, local: LocalProblem, memory: int, arithmetic: Arithmetic) -> None:
        """Raise :class:`.ResourceError` if an agent cannot be solved within ``memory`` bytes."""
        ...

    def solve(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[SampledTable]:
        """Return one table for each local problem, in order."""
        ...


class Sampler(NamedTuple):
    """A Markov chain as two plain functions, compiled by the framework; write them as for :func:`numba.njit`.

    They allocate nothing and hand no slices of arrays on, so that the same functions can be compiled for a GPU.

    Attributes
    ----------
    name, summary : str
    init : callable
        ``init(model, z, scores, rng) -> utility`` draws the first state into ``z``.
    step : callable
        ``step(model, z, scores, utility, scratch, rng, trial, temperature) -> utility`` makes one trial in place;
        trials count from 1. If there are rounds, it leaves ``scores`` as they belong to ``z``.
    rounds : callable or None
        ``rounds(model, samples, temperature)`` divides a run into a list of :class:`dmcmc.samplers.model.rounds.Round`;
        None makes all trials from one random start.
    exchange : bool
        Whether the runs of a row exchange states, each at a temperature of its own.
    scored : bool
        Whether ``step`` keeps ``scores`` up to date.

    ``model`` is a :class:`dmcmc.samplers.model.chain_model.ChainModel`; ``z``, ``scores`` and utilities are described
    in :mod:`dmcmc.samplers.model.state_kernels`, which has the moves; ``rng`` is (key 0, key 1, row, run), for
    :func:`dmcmc.samplers.model.rng_kernels.philox`; ``scratch`` is (max(lanes, hidden),) int32 to use freely.
    """

    name: str
    summary: str
    init: Callable[..., Any]
    step: Callable[..., Any]
    rounds: Rounds | None = None
    exchange: bool = False
    scored: bool = True
