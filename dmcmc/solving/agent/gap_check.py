"""Stop the first tables of a run with a time budget as soon as the bounds so far meet the requested gap."""

from collections.abc import Mapping
from functools import partial

from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality
from dmcmc.solving.agent.uncombined_bound import clamped_sum, largest_sums
from dmcmc.solving.planning.setup import Setup


class GapCheck:
    """Compares bounds of some agents, and the largest entries of all others, with the best assignment.

    Parameters
    ----------
    setup
        The plan.
    world
        The ranks, which all make the check together.
    quality
        Violations and utility of the best assignment.
    """

    def __init__(self, setup: Setup, world: World, quality: AssignmentQuality) -> None:
        self._setup, self._quality = setup, quality
        self._largest_by_agent, self._largest_crossing = world.on_first_rank(
            partial(largest_sums, setup.division, setup.arithmetic)
        )

    def is_met(self, bounds: Mapping[int, Number]) -> bool:
        """Return whether the gap is as small as requested.

        Parameters
        ----------
        bounds
            Encoded upper bounds of some agents' utilities, by agent.
        """
        quality = self._quality
        if quality.negated_violation < 0:
            return False
        bound = clamped_sum(
            [*({**self._largest_by_agent, **bounds}).values(), self._largest_crossing], self._setup.arithmetic
        )
        difference = float(bound) - float(quality.utility)
        return difference <= self._setup.config.budget.gap * max(1.0, abs(float(quality.objective)))
