"""Limits on the time of the local search before there are tables, or during tables that will prove the optimum."""

import time
from collections.abc import Callable

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.mpi.world import World
from dmcmc.samplers.tuning import common
from dmcmc.solving.planning.setup import Setup
from dmcmc.tuning import anytime as tuning


def max_seconds_before_tables(setup: Setup, world: World, stop: Deadline, proven: bool) -> float:
    """Return the maximum seconds of search before there are tables; the same on all ranks.

    Parameters
    ----------
    setup
        The planned run.
    world
        The ranks, all of which call this.
    stop
        Deadline of the run.
    proven
        Whether the tables will prove the optimum.
    """

    def seconds() -> float:
        left = max(0.0, stop.until - time.perf_counter())
        if not proven:
            return common.UNNOTICED_SHARE * left
        work = sum(choice.seconds for choice in setup.choices) / max(1, setup.limits.threads * world.size)
        return common.UNNOTICED_SHARE * min(left, work)

    max_seconds: float = world.on_first_rank(seconds)
    return max_seconds


def brief_search_seconds(setup: Setup, world: World, stop: Deadline, columns: Callable[[], int]) -> float:
    """Return the seconds of a brief search in the background of tables that will prove the optimum.

    It shows a better assignment than the first incumbent while the tables are made. The result is 0 if laying out the
    columns for the chains would delay the tables.

    Parameters
    ----------
    setup, world, stop
        As for :func:`max_seconds_before_tables`.
    columns
        Returns the number of entries of the columns that the chains read; called on rank 0.
    """
    if not setup.timed or not setup.will_prove:
        return 0.0
    max_seconds = max_seconds_before_tables(setup, world, stop, proven=True)

    def is_affordable() -> bool:  # other ranks may know too little
        return (
            max_seconds >= common.CHECK_SECONDS / 2 and tuning.LAYOUT_SECONDS_PER_ENTRY * columns() <= 3 * max_seconds
        )

    return max_seconds if world.on_first_rank(is_affordable) else 0.0
