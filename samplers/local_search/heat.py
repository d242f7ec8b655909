"""One heat of a race: contestants that run side by side; one that is cut short goes on later."""

from collections.abc import Sequence
from dataclasses import dataclass

from dmcmc.samplers.local_search.chains import Contestant, Pairs


@dataclass
class Heat:
    """Contestants of a heat.

    Attributes
    ----------
    chains : sequence of Contestant
    pairs : Pairs or None
        Moves of pairs, where there are any.
    seconds : float
        That it has taken so far.
    """

    chains: Sequence[Contestant]
    pairs: Pairs | None
    seconds: float = 0.0

    @property
    def all(self) -> list[Contestant]:
        """All contestants."""
        return [*self.chains, *([self.pairs] if self.pairs else [])]

    @property
    def open(self) -> list[Contestant]:
        """Those that are not through."""
        return [one for one in self.all if not one.through]

    @property
    def best(self) -> Contestant:
        """The one that has found most."""
        return max(self.all, key=lambda one: one.worth)

    def pace(self, threads: int) -> float:
        """Return what a sweep has taken on one of so many threads, seconds."""
        made = sum(chain.made for chain in self.chains)
        return self.seconds * min(threads, len(self.chains)) / made if made else 0.0

    def fit(self, left: float, pace: float) -> None:
        """Leave out sweeps where those that are left take longer than there is time.

        Parameters
        ----------
        left
            Seconds.
        pace
            What a sweep of all that are left takes, seconds; 0 where that is not known.
        """
        needed = sum(chain.sweeps - chain.made for chain in self.chains if not chain.through) * pace
        if needed > left:
            for chain in self.chains:
                chain.hasten(left / needed)
