"""Defer short time quanta: work that starts anew in each quantum gets the seconds of several slices at once.

The scheduler divides each time slice (the time between two combinations) into *quanta*: seconds per agent and
improver. Dual ascent and sampling lose time at every start, so their quanta that are too short are saved up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dmcmc.run.scheduler.proposal import BOUND, BRANCH, SAMPLING, SEMIDEFINITE, Allocation

# Start anew in each quantum: the shortest pass of the chains and the start of a dual ascent take long on some machines.
_RESTARTING = (SAMPLING, BOUND)
_OPEN_ENDED = (*_RESTARTING, BRANCH, SEMIDEFINITE)  # their work can use any number of seconds
_MIN_SLICE_PART = 0.25  # part of a slice that is enough for a quantum
_SUFFICIENT_SECONDS = 0.5  # seconds that are enough for a quantum, even if that is a smaller part of the slice


@dataclass
class DeferredQuanta:
    """Seconds that improvers are owed from earlier slices.

    Attributes
    ----------
    owed_seconds : dict of float
        By (rank, improver). They grow while the improver waits, and are 0 after a slice in which it works.
    """

    owed_seconds: dict[tuple[int, str], float] = field(default_factory=dict)

    def defer_short(
        self, allocations: Sequence[Allocation], owner: Sequence[int], seconds: float
    ) -> tuple[Allocation, ...]:
        """Return the allocations of a slice without those that are too short; other improvers use that time.

        Parameters
        ----------
        allocations
            Allocations of all ranks for one slice.
        owner
            The rank of each agent.
        seconds
            Length of the slice.
        """
        ranks = sorted({owner[allocation.agent] for allocation in allocations if allocation.agent is not None})
        result = [
            allocation
            for allocation in allocations
            if allocation.agent is None or allocation.improver not in _OPEN_ENDED
        ]
        for rank in ranks:
            rank_allocations = [
                allocation
                for allocation in allocations
                if allocation.agent is not None
                and owner[allocation.agent] == rank
                and allocation.improver in _OPEN_ENDED
            ]
            result += self._allocate_rank(rank, rank_allocations, min(_MIN_SLICE_PART * seconds, _SUFFICIENT_SECONDS))
        return tuple(result)

    def _allocate_rank(self, rank: int, allocations: Sequence[Allocation], min_seconds: float) -> list[Allocation]:
        """Return the open-ended allocations of a rank after deferral.

        An improver is due the seconds allocated now plus those owed to it. One that restarts, and is due less than
        ``min_seconds``, waits, unless all would wait: then the one that is due most works. The others are scaled in
        proportion to their due seconds, so that these add up to those that were allocated.
        """
        allocated: dict[str, float] = {}
        for allocation in allocations:
            allocated[allocation.improver] = allocated.get(allocation.improver, 0.0) + allocation.seconds
        due_seconds = {
            improver: seconds + self.owed_seconds.get((rank, improver), 0.0) for improver, seconds in allocated.items()
        }
        deferred = {
            improver for improver in due_seconds if improver in _RESTARTING and due_seconds[improver] < min_seconds
        }
        if len(deferred) == len(due_seconds):
            deferred.discard(max(due_seconds, key=lambda improver: due_seconds[improver], default=""))
        for improver in due_seconds:
            self.owed_seconds[rank, improver] = due_seconds[improver] if improver in deferred else 0.0
        due_sum = sum(seconds for improver, seconds in due_seconds.items() if improver not in deferred)
        factor = sum(allocated.values()) / due_sum if due_sum > 0 else 0.0
        return [
            allocation._replace(
                seconds=allocation.seconds * factor * due_seconds[allocation.improver] / allocated[allocation.improver]
            )
            for allocation in allocations
            if allocation.improver not in deferred and allocated[allocation.improver] > 0
        ]
