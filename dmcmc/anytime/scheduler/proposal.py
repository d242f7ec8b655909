"""What improvers and the scheduler exchange: properties, proposals, allocations, gains, rank reports and directives.

An *improver* is a component that can raise the objective or lower the upper bound. It declares its properties once.
After each combination of the agents' tables (a *cycle*) it proposes work to the scheduler, which answers with
allocations of seconds; the measured gains are returned after the work. No improver's name is used here. A *time slice*
is the time for improvers until the next cycle. A *component* is a set of agents that are connected by factors; its root
agent is the root of its pseudo-tree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.sparse_table import SizeStatistics
from dmcmc.solving.agent.bounds import Effect, MeasuredGain

__all__ = [
    "Allocation",
    "Effect",
    "MeasuredGain",
    "Needs",
    "Properties",
    "Proposal",
    "is_whole_problem",
    "ranks_of_work",
    "union_number",
]


def union_number(rank: int) -> int:
    """Return the number of a rank's part of the whole problem, in place of an agent's number: -1 - rank."""
    return -1 - rank


def is_whole_problem(agent: int | None) -> bool:
    """Return whether an agent's number stands for a rank's part of the whole problem."""
    return agent is not None and agent < 0


def ranks_of_work(owner: Sequence[int], ranks: int) -> list[int]:
    """Return the rank of each agent, and, from the end, of each rank's part of the whole problem."""
    return [*owner, *reversed(range(ranks))]


class Needs(Enum):
    """The resource that an improver needs for its work.

    Attributes
    ----------
    CORE
        The cores of the agent's rank.
    ALL_RANKS
        The cores of all ranks, which work together.
    GPU
        Time of a GPU, in the background of all other work.
    PROCESS
        A dedicated process or thread, in the background of all other work.
    """

    CORE = auto()
    ALL_RANKS = auto()
    GPU = auto()
    PROCESS = auto()

    @property
    def in_background(self) -> bool:
        """Whether the work goes on while other improvers have the cores."""
        return self in (Needs.GPU, Needs.PROCESS)


@dataclass(frozen=True)
class Properties:
    """The properties that an improver declares, once for all of its proposals.

    A *part* is a part of the optimality gap that the improver closes if it has a whole time slice to itself.

    Attributes
    ----------
    needs : Needs
        The resource that the work needs.
    effect : Effect
        The numbers that the work changes.
    minimum_quantum : float
        Seconds below which the work gains little, because it starts anew each time; 0 if it continues where it stopped.
        Shorter quanta are saved up.
    first_part : float
        Expected part before the improver has been tried.
    idle_part : float
        Expected part while the improver has gained nothing lately, at most.
    gains_at_end : bool
        Whether the work gains nothing before it is finished. Its expected part then does not change.
    """

    needs: Needs = Needs.CORE
    effect: Effect = Effect.LOWER_TABLES | Effect.BOUNDS
    minimum_quantum: float = 0.0
    first_part: float = 0.5
    idle_part: float = 0.04
    gains_at_end: bool = False


@dataclass(frozen=True)
class Proposal:
    """A piece of work that an improver could do in the next time slice (the time until the next combination).

    Attributes
    ----------
    improver : str
        Name of the improver that would do it, see :mod:`dmcmc.anytime.improvers`.
    gain : float
        Utility. The part of the optimality gap that the work could close at best; inf if it is not known.
    agent : int or None
        The agent whose tables are improved, and thereby the rank; a ``union_number`` for the whole problem, whose
        gap is that of the whole problem; None for work on the whole problem. Equal work for the whole problem that
        several ranks propose is done once.
    seconds : float or None
        Estimated cost on the agent's rank; None if the work can use any number of seconds.
    weight : float
        Stands in for an unknown gain, relative to the weights of other agents.
    resumable : bool
        Whether the work continues where it stopped, so that several short quanta (seconds for one agent in one slice)
        are as good as a long one.
    awaited : bool
        Whether the slice has to be short, because other work waits: for the outcome of this work, or for its kernels.
    excludes : tuple of str
        Improvers whose work for the same agent does not add to this work: only that with the larger expected gain is
        done.
    """

    improver: str
    gain: float
    agent: int | None = None
    seconds: float | None = None
    weight: float = 1.0
    resumable: bool = False
    awaited: bool = False
    excludes: tuple[str, ...] = ()


class Allocation(NamedTuple):
    """A proposal that the scheduler has accepted.

    Attributes
    ----------
    improver : str
        Name of the improver.
    agent : int or None
        The agent whose tables are improved; None for work on the whole problem.
    seconds : float
        Seconds that the improver may take.
    """

    improver: str
    agent: int | None
    seconds: float


class Directive(NamedTuple):
    """The decision of rank 0 after a cycle.

    Attributes
    ----------
    stop : bool
        Whether the run ends.
    cutoffs : dict
        For each root agent, the encoded utility that a solution of its component must exceed to improve the incumbent;
        None if every solution would.
    allocations : tuple of Allocation
        The work of all ranks in the next time slice.
    prune : bool
        Whether rows that cannot be part of a better solution are removed, whatever else is done.
    best : (n,) int64 or None
        Values of the best assignment so far, if it violates no hard constraint.
    bounded : bool
        Whether every component has an upper bound.
    reserved_seconds : float
        Seconds before the deadline that are kept free for the next combination.
    """

    stop: bool
    cutoffs: Mapping[int, Number | None] = {}
    allocations: tuple[Allocation, ...] = ()
    prune: bool = False
    best: NDArray[np.int64] | None = None
    bounded: bool = False
    reserved_seconds: float = 0.0

    @property
    def improvers(self) -> list[str]:
        """Names of the improvers that have an allocation, without repetition."""
        return list(dict.fromkeys(allocation.improver for allocation in self.allocations))

    @property
    def changes_tables(self) -> bool:
        """Whether the work may change agents' tables.

        If it is False, the next combination starts from the tables of the last one.
        """
        return self.prune or any(
            allocation.agent is not None and not is_whole_problem(allocation.agent) for allocation in self.allocations
        )

    @property
    def improvers_of_union(self) -> list[str]:
        """Names of the improvers that work on the whole problem, without repetition."""
        return list(
            dict.fromkeys(allocation.improver for allocation in self.allocations if is_whole_problem(allocation.agent))
        )

    @property
    def works_on_union(self) -> bool:
        """Whether the whole problem is bounded or searched."""
        return bool(self.improvers_of_union)

    def allocations_of(self, improver: str) -> list[Allocation]:
        """Return the allocations of one improver."""
        return [allocation for allocation in self.allocations if allocation.improver == improver]


class RankReport(NamedTuple):
    """The report of one rank after a cycle (a combination of all agents' tables).

    Attributes
    ----------
    roots : dict
        Encoded upper bounds of this rank's root agents, by agent; None if a table in the agent's tree has no bound. A
        root agent is the root of the pseudo-tree of its component; *encoded* means in the number type of the tables.
    proposals : tuple of Proposal
        Work that improvers could do for the rank's agents.
    gains : tuple of MeasuredGain
        Costs and gains of the work since the last report.
    relaxed : bool
        Whether the combination split upper-bound tables into mini-buckets.
    pruned : bool
        Whether rows have been pruned since the last report, or pruning has not been tried yet.
    stop_requested : bool
        Whether the user has asked the run to end.
    filtered_sizes : tuple of SizeStatistics
        Sizes of the filtered messages of this rank's agents (function filtering).
    """

    roots: Mapping[int, Number | None] = {}
    proposals: tuple[Proposal, ...] = ()
    gains: tuple[MeasuredGain, ...] = ()
    relaxed: bool = False
    pruned: bool = False
    stop_requested: bool = False
    filtered_sizes: tuple[SizeStatistics, ...] = ()
