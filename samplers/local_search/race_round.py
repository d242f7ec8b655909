"""One heat of a race: contestants that run side by side; one that is cut short goes on later."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.local_search.chains import Contestant, Pairs


class Ended(NamedTuple):
    """How a contestant has ended, as other ranks are told it.

    Attributes
    ----------
    worth, end
        Of the best assignment that it has found, and of where it is now.
    found : (n,) int32 or None
        The best assignment; None where another one of the same rank has found more.
    where : (n,) int32
        Where it is now.
    """

    worth: Any
    end: Any
    found: NDArray[np.int32] | None
    where: NDArray[np.int32]

    @classmethod
    def of(cls, one: Contestant, best: bool) -> "Ended":
        """Return how one has ended; ``best`` is whether it is the best of its rank."""
        return cls(one.worth, one.end, one.values().astype(np.int32) if best else None, one.last().astype(np.int32))

    def values(self) -> NDArray[np.int64]:
        """Return the best assignment of the one that is best of all."""
        assert self.found is not None, "another one is better"
        return self.found.astype(np.int64)

    def last(self) -> NDArray[np.int64]:
        """Return where it is now."""
        return self.where.astype(np.int64)


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
