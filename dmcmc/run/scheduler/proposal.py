"""Define the messages between improvers and the scheduler: a proposal, an allocation of time, and a measured gain.

An improver is a component that can raise the objective or lower the upper bound. After each combination of the
agents' tables improvers send proposals to the scheduler, which answers with allocations; measured gains are
returned after the work. The constants are the improvers' names, as traces, results and summaries show them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

# Improvers of single agents' tables; each runs on the agent's rank.
EXACT_ELIMINATION = "exact elimination"
FUNCTION_FILTERING = "function filtering"
SAMPLING = "sampling"
BOUND = "bound"
BRANCH = "branch and bound"  # over the boundary assignments (rows) of an agent
SEMIDEFINITE = "semidefinite"
# Improvers of the whole problem, by all ranks together.
LOCAL_SEARCH = "local search"
RECOMBINATION = "recombination"
EXTERNAL_SEARCH = "external search"  # a search engine in the background; its gains carry the engine's own name:
TOULBAR2, CP_SAT, BRANCH_AND_BOUND = "toulbar2", "cp-sat", "branch-and-bound"
GPU_CHAINS = "gpu chains"  # in the background, with the GPU time that other work leaves

UNION_BOUND = "bound of the union"  # name under which the kernels of the union's bound are declared


def union_number(rank: int) -> int:
    """Return the number of a rank's part of the union of all agents, in place of an agent's number: -1 - rank."""
    return -1 - rank


def is_union(agent: int | None) -> bool:
    """Return whether an agent's number stands for a rank's part of the union of all agents."""
    return agent is not None and agent < 0


def ranks_of_work(owner: Sequence[int], ranks: int) -> list[int]:
    """Return the rank of each agent, and, from the end, of each rank's part of the union: its ``union_number``."""
    return [*owner, *reversed(range(ranks))]


@dataclass(frozen=True)
class Proposal:
    """A piece of work that an improver could do in the next time slice (the time until the next combination).

    Attributes
    ----------
    improver : str
        Name of the improver that would do it, see :mod:`dmcmc.run.improvers`.
    gain : float
        Utility. The part of the optimality gap that the work could close at best; inf if it is not known.
    agent : int or None
        The agent whose tables are improved, and thereby the rank; a ``union_number`` for the union of all agents, whose
        gap is that of the whole problem; None for work that all ranks do together.
    seconds : float or None
        Estimated cost on the agent's rank; None if the work can use any number of seconds.
    weight : float
        Stands in for an unknown gain, relative to the weights of other agents.
    resumable : bool
        Whether the work continues where it stopped, so that several short quanta (seconds for one agent in one slice)
        are as good as a long one.
    awaited : bool
        Whether other work waits for the outcome of this work.
    """

    improver: str
    gain: float
    agent: int | None = None
    seconds: float | None = None
    weight: float = 1.0
    resumable: bool = False
    awaited: bool = False


class Allocation(NamedTuple):
    """A proposal that the scheduler has accepted.

    Attributes
    ----------
    improver : str
        Name of the improver.
    agent : int or None
        The agent whose tables are improved; None for work of all ranks together.
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
