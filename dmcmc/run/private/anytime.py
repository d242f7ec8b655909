"""A private run with a time budget: the cycles of :class:`dmcmc.run.rank_run.Run`, where nobody sees the whole assignment.

Each rank keeps its own agents' part of the best assignment; what all parts together are worth is agreed by exact sums.
Choices, offers and grants speak of agents' numbers, seconds and gaps only. There is no search over the whole
assignment: tables are sampled on, bounded more tightly and eliminated.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.mpi.team import Team
from dmcmc.mpi.world import World
from dmcmc.results.outcome import Worth
from dmcmc.run.incumbent import Incumbent
from dmcmc.run.local_search import Search
from dmcmc.run.monitoring.progress import Progress
from dmcmc.run.overlapped_work import Meanwhile
from dmcmc.run.planning.setup import Setup
from dmcmc.run.private.rank_assignment import OwnParts
from dmcmc.run.rank_run import Run
from dmcmc.run.scheduler.directive import Directive
from dmcmc.run.scheduler.proposal import BESIDE, SEARCH, Offer
from dmcmc.run.util_value_cycle import Cycle

Known = dict[int, int]  # values by variable: of this rank's agents, and of those that they share factors with


@dataclass
class PrivateIncumbent(Incumbent):
    """What the best assignment is worth, of which rank 0 knows its own agents' part.

    Attributes
    ----------
    factors : int
        Of the whole problem.
    """

    factors: int = 0

    @property
    def addends(self) -> int:
        """How many factors are added up."""
        return self.factors

    def take(self, worth: Worth) -> bool:
        """Take in what an assignment is worth; return whether it is better than the best so far."""
        with self._lock:
            better = worth.better(self.worth)
            if better:
                self.values, self.worth = np.zeros(0, dtype=np.int64), worth
                self._point(None)
        return better


class PrivateRun(Run):
    """A run of which no rank knows more than its own agents' parts.

    Parameters
    ----------
    valued
        ``valued(what this rank knows)`` returns on rank 0 what all ranks' parts are worth together; called by all.
    own
        Where the values of this rank's agents are kept.

    Attributes
    ----------
    best : dict
        This rank's part of the best assignment; empty where there is none yet.
    """

    def __init__(
        self,
        setup: Setup,
        world: World,
        incumbent: PrivateIncumbent,
        progress: Progress,
        valued: Callable[[Known], Worth | None],
        own: OwnParts,
        team: Team | None = None,
    ) -> None:
        super().__init__(setup, world, cast(Search, _NoSearch(incumbent)), progress, lambda setup: None, team)
        self.best, self.valued, self.own = Known(), valued, own

    def take(self, known: Known) -> None:
        """Keep an assignment, if it is better than the best so far; called by all ranks, each with its part."""
        worth, incumbent = self.valued(known), cast(PrivateIncumbent, self.incumbent)
        if self.world.decided(lambda: worth is not None and incumbent.take(worth)):
            self.best = dict(known)
            self.own.keep(self.best)

    def first_tables(self) -> None:
        """Make each agent's first table; some agents may change their methods on the way."""
        super().first_tables()
        self._brought = [one for one in self._brought if one.kind != SEARCH]

    def improve(self, directive: Directive) -> None:
        """Carry out what is granted; the best assignment is this rank's part of it."""
        values: NDArray[np.int64] | None = None
        if directive.best is not None and self.best:
            values = np.zeros(self.setup.problem.n_variables, dtype=np.int64)
            values[list(self.best)] = list(self.best.values())
        super().improve(directive._replace(best=values))

    def _take_in(self, cycle: Cycle) -> None:
        known = dict(cycle.values)
        for context in cycle.contexts.values():
            known |= self.sides.lower.expand(context)
        self.take(known)

    def _offers(self, cycle: Cycle) -> tuple[Offer, ...]:
        return tuple(offer for offer in super()._offers(cycle) if offer.kind not in (SEARCH, BESIDE))

    @property
    def _looks_for_gap(self) -> bool:
        return False  # what all others can be worth is nobody's to know

    def _look_at_gap(self) -> None:
        pass


class _NoEngine:
    """In place of a search engine beside the run."""

    hopeful, beside = False, None

    def won(self) -> bool:
        return False

    def brought(self) -> list[Any]:
        return []

    def disengage(self, setup: Setup) -> Setup:
        return setup


class _NoSearch:
    """In place of a search over the whole assignment."""

    best = on_gpu = None
    plain = True

    def __init__(self, incumbent: Incumbent) -> None:
        self.incumbent, self.engine, self.meanwhile = incumbent, _NoEngine(), Meanwhile()

    @contextmanager
    def beside(
        self, wanted: bool = True, enough: float = 0.0, behind: bool = True, moment: float = 0.0
    ) -> Iterator[None]:
        yield

    def moment(self, setup: Setup) -> float:
        return 0.0

    def before_tables(self, setup: Setup) -> None:
        pass

    def begin_on_gpu(self, setup: Setup) -> None:
        pass

    def until_the_end(self) -> None:
        pass

    def suggest(self, starts: object) -> None:
        pass
