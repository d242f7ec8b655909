"""What time can be spent on: an offer with its price and what it can bring, what is granted, and what came of it."""

from dataclasses import dataclass
from typing import NamedTuple

ELIMINATE, FILTER, SAMPLE, BOUND, BRANCH = "eliminate", "filter", "sample", "bound", "branch"  # of agents
SEMIDEFINITE = "semidefinite"  # of agents, too
SEARCH, COMBINE = "search", "combine"  # of all
BESIDE = "search engine"  # beside all others: it has a core of its own
TOULBAR2, BRANCH_AND_BOUND = "toulbar2", "branch-and-bound"  # which: what has been brought is theirs
GPU_SEARCH = "gpu search"  # beside all others: on the GPU, of which it has what other work leaves


@dataclass(frozen=True)
class Offer:
    """Something that time can be spent on.

    Attributes
    ----------
    kind : str
        What is done, see :mod:`dmcmc.run.improvers`.
    gain : float
        Utility: the part of the gap that it would close at best; inf where that is not known.
    agent : int or None
        Whose it is, and so on which rank; None where all ranks work on it together.
    seconds : float or None
        Price on its rank; None where any seconds are of use.
    weight : float
        What stands in for a gain that is not known, beside those of other agents.
    steady : bool
        Whether it goes on where it was, so that several short turns are as good as a long one.
    tells : bool
        Whether other work waits for what it shows.
    """

    kind: str
    gain: float
    agent: int | None = None
    seconds: float | None = None
    weight: float = 1.0
    steady: bool = False
    tells: bool = False


class Grant(NamedTuple):
    """An offer that is taken, with the seconds that it is given."""

    kind: str
    agent: int | None
    seconds: float


class Brought(NamedTuple):
    """What came of an offer.

    Attributes
    ----------
    kind : str
    seconds : float
        That it took.
    estimated : float
        That it should have taken; 0 where any seconds were of use.
    closed : float
        How much less the agent's part of the gap is, utility.
    objective : float
        How much better the best assignment is, where that is known at once.
    """

    kind: str
    seconds: float
    estimated: float = 0.0
    closed: float = 0.0
    objective: float = 0.0
