"""Turns that are put off: work that begins anew in each turn has several slices' seconds at once where each has few."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dmcmc.run.scheduler.proposal import BOUND, BRANCH, SAMPLE, SEMIDEFINITE, Grant

_ANEW = (SAMPLE, BOUND)  # chains' shortest pass, and what rows' ascents begin with, take long on some machines
_ANY_SECONDS = (*_ANEW, BRANCH, SEMIDEFINITE)
_LEAST, _ENOUGH = 0.25, 0.5  # of a slice, and seconds, are worth a turn: the less of both


@dataclass
class Turns:
    """What kinds of work are owed.

    Attributes
    ----------
    owed : dict of float
        Seconds, by rank and kind.
    """

    owed: dict[tuple[int, str], float] = field(default_factory=dict)

    def gather(self, grants: Sequence[Grant], owner: Sequence[int], seconds: float) -> tuple[Grant, ...]:
        """Return the grants of a slice without those that are put off; what those would take is the others' meanwhile.

        Parameters
        ----------
        owner
            The rank of each agent.
        seconds
            Of the slice.
        """
        ranks = sorted({owner[grant.agent] for grant in grants if grant.agent is not None})
        found = [grant for grant in grants if grant.agent is None or grant.kind not in _ANY_SECONDS]
        for rank in ranks:
            own = [g for g in grants if g.agent is not None and owner[g.agent] == rank and g.kind in _ANY_SECONDS]
            found += self._of_rank(rank, own, min(_LEAST * seconds, _ENOUGH))
        return tuple(found)

    def _of_rank(self, rank: int, grants: Sequence[Grant], least: float) -> list[Grant]:
        """Return what a rank does of work that takes any seconds; in all it takes as long as was granted."""
        granted: dict[str, float] = {}
        for grant in grants:
            granted[grant.kind] = granted.get(grant.kind, 0.0) + grant.seconds
        due = {kind: own + self.owed.get((rank, kind), 0.0) for kind, own in granted.items()}
        off = {kind for kind in due if kind in _ANEW and due[kind] < least}
        if len(off) == len(due):
            off.discard(max(due, key=lambda kind: due[kind], default=""))
        for kind in due:
            self.owed[rank, kind] = due[kind] if kind in off else 0.0
        total = sum(own for kind, own in due.items() if kind not in off)
        times = sum(granted.values()) / total if total > 0 else 0.0
        return [
            grant._replace(seconds=grant.seconds * times * due[grant.kind] / granted[grant.kind])
            for grant in grants
            if grant.kind not in off and granted[grant.kind] > 0
        ]
