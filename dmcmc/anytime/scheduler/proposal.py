"""Define what improvers and the scheduler exchange: declared properties, proposals, allocations and measured gains.

An *improver* is a component that can raise the objective or lower the upper bound. It declares its properties once.
After each combination of the agents' tables it proposes work to the scheduler, which answers with allocations of
seconds; the measured gains are returned after the work. No improver's name is used here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import NamedTuple


def union_number(rank: int) -> int:
    """Return the number of a rank's part of the union of all agents, in place of an agent's number: -1 - rank."""
    return -1 - rank


def is_union(agent: int | None) -> bool:
    """Return whether an agent's number stands for a rank's part of the union of all agents."""
    return agent is not None and agent < 0


def ranks_of_work(owner: Sequence[int], ranks: int) -> list[int]:
    """Return the rank of each agent, and, from the end, of each rank's part of the union: its ``union_number``."""
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


class Effect(Flag):
    """The numbers that the work of an improver changes.

    Attributes
    ----------
    ASSIGNMENTS
        It finds whole assignments; their gain is reported at once.
    LOWER_TABLES
        It raises agents' lower tables, from which the next combination makes an assignment.
    BOUNDS
        It lowers upper bounds.
    """

    ASSIGNMENTS = auto()
    LOWER_TABLES = auto()
    BOUNDS = auto()


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
        The agent whose tables are improved, and thereby the rank; a ``union_number`` for the union of all agents, whose
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


class MeasuredGain(NamedTuple):
    """The measured cost and gain of a piece of work.

    Attributes
    ----------
    improver : str
        Name of the improver.
    seconds : float
        Seconds that the work has taken.
    estimated_seconds : float
        Seconds that it was estimated to take; 0 if it can use any number of seconds.
    closed_gap : float
        Utility by which the agent's part of the optimality gap has shrunk.
    objective_gain : float
        Utility by which the best assignment has improved, if that is known at once.
    """

    improver: str
    seconds: float
    estimated_seconds: float = 0.0
    closed_gap: float = 0.0
    objective_gain: float = 0.0
