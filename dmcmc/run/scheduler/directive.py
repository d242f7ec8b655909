"""What rank 0 tells all ranks after a cycle."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Number
from dmcmc.run.scheduler.proposal import Grant


class Directive(NamedTuple):
    """What rank 0 says after a cycle.

    Attributes
    ----------
    stop : bool
        Whether the run ends.
    thresholds : dict
        For each root: what a solution must be worth in its component to be better than the best so far (encoded); None
        where any would be.
    grants : tuple of Grant
        What is done in the next slice of time, on all ranks.
    prune : bool
        Whether rows that cannot matter are left out, whatever else is done.
    best : ndarray or None
        The best assignment so far, if it breaks nothing.
    bounded : bool
        Whether every component has a bound.
    reserved : float
        Seconds before the deadline that are left for combining.
    """

    stop: bool
    thresholds: Mapping[int, Number | None] = {}
    grants: tuple[Grant, ...] = ()
    prune: bool = False
    best: NDArray[np.int64] | None = None
    bounded: bool = False
    reserved: float = 0.0

    @property
    def kinds(self) -> list[str]:
        """The kinds of work that something is granted of."""
        return list(dict.fromkeys(grant.kind for grant in self.grants))

    @property
    def changes_tables(self) -> bool:
        """Whether agents' tables may be others after it; to combine again begins from the same."""
        return self.prune or any(grant.agent is not None for grant in self.grants)

    def of(self, kind: str) -> list[Grant]:
        """Return what is granted of one kind."""
        return [grant for grant in self.grants if grant.kind == kind]
