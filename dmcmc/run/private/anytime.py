"""A private run with a time budget: the cycles of ``RankRun``, in which no rank sees the whole assignment.

Each rank keeps its own agents' part of the best assignment. The ranks agree on its total utility by exact sums.
Choices, proposals and allocations contain only agents' numbers, seconds and gaps. There is no local search over the
whole assignment; the improvers sample tables further, tighten bounds and eliminate exactly.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.mpi.team import MpiTeam
from dmcmc.mpi.world import World
from dmcmc.results.improver_names import LOCAL_SEARCH
from dmcmc.results.outcome import AssignmentQuality
from dmcmc.run.incumbent import Incumbent
from dmcmc.run.local_search import IncumbentSearch
from dmcmc.run.monitoring.progress import ProgressReporter
from dmcmc.run.overlapped_work import OverlappedWork
from dmcmc.run.planning.setup import Setup
from dmcmc.run.private.rank_assignment import RankAssignment
from dmcmc.run.rank_run import RankRun
from dmcmc.run.scheduler.directive import Directive
from dmcmc.run.util_value_cycle import Cycle

# Values by variable: those of this rank's agents, and of the variables that they share factors with
KnownValues = dict[int, int]


@dataclass
class PrivateIncumbent(Incumbent):
    """The utility of the best assignment, of which rank 0 knows only its own agents' part.

    Attributes
    ----------
    factors : int
        Number of factors of the whole problem.
    """

    factors: int = 0

    @property
    def n_addends(self) -> int:
        """Number of factors whose utilities are summed."""
        return self.factors

    def take(self, quality: AssignmentQuality) -> bool:
        """Record the utility of an assignment if it is better than the best so far; return whether it is.

        ``values`` becomes an empty array, because the assignment itself is not known here.
        """
        with self._lock:
            better = quality.is_better_than(self.quality)
            if better:
                self.values, self.quality = np.zeros(0, dtype=np.int64), quality
                self._add_trace_point(None)
        return better


class PrivateRun(RankRun):
    """A run in which no rank knows more than its own agents' parts of the problem.

    Parameters
    ----------
    setup, world, progress, team
        As for ``RankRun``.
    incumbent
        The incumbent, on rank 0.
    evaluate
        ``evaluate(known)`` returns violations and utility of all ranks' parts together on rank 0; called by all ranks.
    storage
        Storage of the values of this rank's agents.

    Attributes
    ----------
    best : dict of int to int
        This rank's part of the best assignment; empty if there is none yet.
    """

    def __init__(
        self,
        setup: Setup,
        world: World,
        incumbent: PrivateIncumbent,
        progress: ProgressReporter,
        evaluate: Callable[[KnownValues], AssignmentQuality | None],
        storage: RankAssignment,
        team: MpiTeam | None = None,
    ) -> None:
        super().__init__(setup, world, cast(IncumbentSearch, _NoSearch(incumbent)), progress, lambda setup: None, team)
        self.best, self.evaluate, self.storage = KnownValues(), evaluate, storage

    def take(self, known: KnownValues) -> None:
        """Keep an assignment if it is better than the best so far; called by all ranks, each with its part."""
        quality, incumbent = self.evaluate(known), cast(PrivateIncumbent, self.incumbent)
        if self.world.on_first_rank(lambda: quality is not None and incumbent.take(quality)):
            self.best = dict(known)
            self.storage.keep(self.best)

    def first_tables(self) -> None:
        """Make each agent's first table; agents whose elimination is given up are sampled."""
        super().first_tables()
        self._measured_gains = [gain for gain in self._measured_gains if gain.improver != LOCAL_SEARCH]

    def improve(self, directive: Directive) -> None:
        """Run the improvers in their allocated time, with this rank's part of the best assignment."""
        values: NDArray[np.int64] | None = None
        if directive.best is not None and self.best:
            values = np.zeros(self.setup.problem.n_variables, dtype=np.int64)
            values[list(self.best)] = list(self.best.values())
        super().improve(directive._replace(best=values))

    def _record_assignment(self, cycle: Cycle) -> None:
        """Record this rank's part of the cycle's assignment, with the boundary values of its neighbours."""
        known = dict(cycle.values)
        for context in cycle.contexts.values():
            known |= self.sides.lower.expand(context)
        self.take(known)

    @property
    def _stops_at_gap(self) -> bool:
        """Always false: the bounds of other agents are private."""
        return False  # bounds of the other agents are private

    def _check_gap(self) -> None:
        """Do nothing: the bounds of other agents are private."""
        pass


class _NoEngine:
    """Stand-in for ``BackgroundEngine``: there is no external search in a private run."""

    may_improve, process = False, None

    def has_ended_run(self) -> bool:
        """Return False: there is no engine."""
        return False

    def take_gains(self) -> list[Any]:
        """Return no gains."""
        return []

    def disengage(self, setup: Setup) -> Setup:
        """Return the setup unchanged."""
        return setup


class _NoSearch:
    """Stand-in for ``IncumbentSearch``: there is no local search over the whole assignment in a private run."""

    best = gpu_search = None
    decodes_only = True

    def __init__(self, incumbent: Incumbent) -> None:
        self.incumbent, self.engine, self.overlapped = incumbent, _NoEngine(), OverlappedWork()

    @contextmanager
    def in_background(
        self, wanted: bool = True, min_relative_gain: float = 0.0, low_priority: bool = True, brief_seconds: float = 0.0
    ) -> Iterator[None]:
        """Run the body without a search."""
        yield

    def brief_search_seconds(self, setup: Setup) -> float:
        """Return 0."""
        return 0.0

    def before_tables(self, setup: Setup) -> None:
        """Do nothing."""
        pass

    def begin_on_gpu(self, setup: Setup) -> None:
        """Do nothing."""
        pass

    def use_remaining_time(self) -> None:
        """Do nothing."""
        pass

    def suggest(self, starts: object) -> None:
        """Do nothing."""
        pass
