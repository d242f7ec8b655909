"""What a rank reports after a cycle: what could be done for its agents, and what has come of what was done."""

from collections.abc import Mapping
from typing import NamedTuple

from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.size_statistics import Kept
from dmcmc.run.scheduler.proposal import Brought, Offer


class Report(NamedTuple):
    """What a rank reports after a cycle.

    Attributes
    ----------
    roots : dict
        Upper UTIL values of the roots here; None where something has no bound.
    offers : tuple of Offer
        What could be done for its agents.
    brought : tuple of Brought
        What came of what was done since the last report.
    relaxed : bool
        Whether tables from above were split in the combination.
    pruned : bool
        Whether rows have been left out since, or that has not yet been tried.
    asked : bool
        Whether somebody wants the run to end.
    kept : tuple of Kept
        What the messages of its agents hold that are eliminated without what cannot win.
    """

    roots: Mapping[int, Number | None] = {}
    offers: tuple[Offer, ...] = ()
    brought: tuple[Brought, ...] = ()
    relaxed: bool = False
    pruned: bool = False
    asked: bool = False
    kept: tuple[Kept, ...] = ()
