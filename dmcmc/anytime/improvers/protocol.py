"""The improver protocol: an improver declares its properties, proposes work, and does the work that gets time.

A *cycle* is one combination of all agents' tables (a UTIL and a VALUE phase). A *time slice* is the time between
two cycles, in which improvers work. After each cycle every rank collects the proposals of all improvers
(``registry.proposals_of``). The scheduler on rank 0 accepts some of them as *allocations* of seconds, and each rank
carries these out in its :class:`TimeSlice`. A row is one assignment of an agent's boundary variables; *encoded*
means in the number type of the tables (``Arithmetic``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.scheduler.proposal import Allocation, MeasuredGain, Properties, Proposal
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Number

if TYPE_CHECKING:
    from dmcmc.solving.agent.agent import Agent


@dataclass(frozen=True)
class RankState:
    """The state of a rank after a cycle, from which improvers make their proposals.

    Attributes
    ----------
    agents : dict of Agent
        This rank's agents.
    gaps : dict of float or None
        Each agent's part of the optimality gap, utility; None if it is not known.
    weights : dict of float
        An estimate of the gap of each agent, relative to the other agents; 1 for agents that it lacks.
    best : (n,) int64 or None
        Values of the best assignment so far; None if no rank knows all of it (private inputs).
    recombination_seconds : float or None
        Estimated cost of another combination with larger tables; None if larger tables would change nothing on this
        rank.
    external_search_active : bool
        Whether an external search in the background of this rank may still gain something.
    gpu_chains_active : bool
        Whether GPU chains in the background of this rank may still gain something.
    is_ready : callable
        Returns whether an improver, given by its name, has its kernels on this rank.
    """

    agents: "Mapping[int, Agent]"
    gaps: Mapping[int, float | None]
    best: NDArray[np.int64] | None = None
    recombination_seconds: float | None = None
    external_search_active: bool = False
    gpu_chains_active: bool = False
    is_ready: Callable[[str], bool] = lambda improver: True
    weights: Mapping[int, float] = field(default_factory=dict)

    def weight(self, number: int) -> float:
        """Return an estimate of an agent's gap, relative to the other agents."""
        return self.weights.get(number, 1.0)

    def gain(self, number: int) -> float:
        """Return an agent's part of the optimality gap, utility; inf if it is not known, 0 if it is closed."""
        gap = self.gaps[number]
        return float("inf") if gap is None else max(0.0, gap)


@dataclass
class TimeQuantum:
    """An agent's share of a time slice.

    Attributes
    ----------
    agent : Agent
        The agent whose tables are improved.
    outside : (rows,) encoded, or None
        Upper bound on what all other agents can add to each row of the agent's table; None if it is not known.
    cutoff : encoded utility or None
        Utility that a whole solution has to exceed to improve the incumbent; None if every solution would.
    row_cutoffs : (rows,) int64 or float64, or None
        The cutoff less ``outside``: utility that each row has to exceed for that. None if it is not
        known.
    seconds : float
        Seconds used so far.
    """

    agent: "Agent"
    outside: NDArray[Any] | None
    cutoff: Number | None
    row_cutoffs: NDArray[Any] | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class WholeProblemWork:
    """Callbacks of a run for improvers of the whole problem; by default nothing is done.

    Attributes
    ----------
    search : callable
        Searches on all ranks for some seconds; returns by how much the objective has improved, utility.
    enlarge_tables : callable
        Allows larger tables in the next combination, which is estimated to take some seconds.
    continue_engine : callable
        Lets the external search in the background go on (True), or ends it (False).
    wait_for_engine : callable
        Waits on all ranks for the external search, for some seconds at most.
    allow_gpu_seconds : callable
        Lets the GPU chains in the background use some seconds of the GPU.
    """

    search: Callable[[float], float] = float
    enlarge_tables: Callable[[float], object] = float
    continue_engine: Callable[[bool], object] = bool
    wait_for_engine: Callable[[float], object] = float
    allow_gpu_seconds: Callable[[float], object] = float


@dataclass
class TimeSlice:
    """A time slice on one rank.

    Attributes
    ----------
    quanta : dict of TimeQuantum
        By agent, for this rank's agents.
    gap_of : callable
        Returns an agent's part of the optimality gap with its current table; None if it is not known.
    backend : Backend
        Its deadline is that of all work of the slice, so that there is time left for the next combination.
    whole : WholeProblemWork
        Callbacks for improvers of the whole problem.
    problem : Problem or None
        The whole problem, with utilities to maximise; None on a rank that does not know all factors.
    best : (n,) int64 or None
        Values of the best assignment so far, if it violates no hard constraint.
    found : list of (n,) int64
        Assignments that improvers of the whole problem have found on this rank in this slice.
    """

    quanta: Mapping[int, TimeQuantum]
    gap_of: "Callable[[Agent], float | None]"
    backend: Backend
    whole: WholeProblemWork = WholeProblemWork()
    problem: Problem | None = None
    best: NDArray[np.int64] | None = None
    found: list[NDArray[np.int64]] = field(default_factory=list)

    def quanta_of(self, allocations: Iterable[Allocation]) -> list[tuple[TimeQuantum, float]]:
        """Return the quanta of this rank's agents that have an allocation, with their seconds."""
        return [
            (self.quanta[allocation.agent], allocation.seconds)
            for allocation in allocations
            if allocation.agent is not None and allocation.agent in self.quanta
        ]

    def record(
        self, improver: str, quantum: TimeQuantum, before: float | None, seconds: float, estimated: float = 0.0
    ) -> MeasuredGain:
        """Charge an agent's quantum with some seconds; return them with how much of its gap has been closed.

        The closed gap is the decrease of the agent's part of the optimality gap; 0 if either value is not known.

        Parameters
        ----------
        improver, quantum
            Who did the work, and for which agent.
        before
            The agent's part of the optimality gap before the work; None if it is not known, or not to be attributed.
        seconds, estimated
            Seconds that the work has taken, and those it was estimated to take (0 without estimate).
        """
        quantum.seconds += seconds
        after = self.gap_of(quantum.agent)
        closed = 0.0 if before is None or after is None else max(0.0, before - after)
        return MeasuredGain(improver, seconds, estimated, closed)


class Start(NamedTuple):
    """Values for some variables, from which the local search also starts.

    Attributes
    ----------
    variables : list of int
        The variables.
    values : (k,) int64
        Their values.
    """

    variables: Sequence[int]
    values: NDArray[np.int64]


class Improver(ABC):
    """An improver. Every run makes one object on each rank, so attributes of the object belong to the run.

    Attributes
    ----------
    name : str
        Name in traces, results and summaries.
    summary : str
        A line that says what it does.
    properties : Properties
        The properties that the scheduler has to know.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    properties: ClassVar[Properties] = Properties()

    @abstractmethod
    def propose(self, state: RankState) -> list[Proposal]:
        """Return the work that could be done: for this rank's agents, or for the whole problem."""

    @abstractmethod
    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Do the work that has an allocation, for about its seconds; return its costs and gains.

        Work for agents must not wait for other ranks. All ranks call this method at the same time for work on the whole
        problem; assignments that it finds are appended to ``time_slice.found``.
        """

    def begin(self, whole: WholeProblemWork, allocations: Sequence[Allocation]) -> None:  # noqa: B027 (optional)
        """Begin a slice, before any improver works, with or without an allocation: work in the background goes on."""

    def starts(self, agents: "Iterable[Agent]", is_ready: Callable[[str], bool], seed: int) -> Iterator[Start]:
        """Yield starts for the local search after some work, given this rank's agents; there are none by default.

        ``is_ready`` returns whether an improver, given by its name, has its kernels.
        """
        return iter(())
