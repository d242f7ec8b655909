"""The directive: the decision of the director (``dmcmc.anytime.director``) that all ranks get after a cycle.

A *cycle* is one combination of all agents' tables; a *time slice* is the time for improvers until the next cycle. A
*component* is a set of agents that are connected by factors; its root agent is the root of its pseudo-tree.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.scheduler.proposal import Allocation, is_union
from dmcmc.inference.runtime.types import Number


class Directive(NamedTuple):
    """The decision of rank 0 after a cycle.

    Attributes
    ----------
    stop : bool
        Whether the run ends.
    cutoffs : dict
        For each root agent, the encoded utility that a solution of its component must exceed to improve the incumbent;
        None if every solution would.
    allocations : tuple of Allocation
        The work of all ranks in the next time slice.
    prune : bool
        Whether rows that cannot be part of a better solution are removed, whatever else is done.
    best : (n,) int64 or None
        Values of the best assignment so far, if it violates no hard constraint.
    bounded : bool
        Whether every component has an upper bound.
    reserved_seconds : float
        Seconds before the deadline that are kept free for the next combination.
    """

    stop: bool
    cutoffs: Mapping[int, Number | None] = {}
    allocations: tuple[Allocation, ...] = ()
    prune: bool = False
    best: NDArray[np.int64] | None = None
    bounded: bool = False
    reserved_seconds: float = 0.0

    @property
    def improvers(self) -> list[str]:
        """Names of the improvers that have an allocation, without repetition."""
        return list(dict.fromkeys(allocation.improver for allocation in self.allocations))

    @property
    def changes_tables(self) -> bool:
        """Whether the work may change agents' tables.

        If it is False, the next combination starts from the tables of the last one.
        """
        return self.prune or any(
            allocation.agent is not None and not is_union(allocation.agent) for allocation in self.allocations
        )

    @property
    def improvers_of_union(self) -> list[str]:
        """Names of the improvers that work on the union of all agents, without repetition."""
        return list(dict.fromkeys(allocation.improver for allocation in self.allocations if is_union(allocation.agent)))

    @property
    def works_on_union(self) -> bool:
        """Whether the union of all agents is bounded or searched."""
        return bool(self.improvers_of_union)

    def allocations_of(self, improver: str) -> list[Allocation]:
        """Return the allocations of one improver."""
        return [allocation for allocation in self.allocations if allocation.improver == improver]
