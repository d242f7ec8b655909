"""Compile in the background what a run without a time budget will call, while it works.

The run does not know of it: it calls kernels, which are compiled when they are called, or found if another process has
been faster. Kernels are requested by the problem, and when the run shows its plan.
"""

from collections.abc import Callable
from functools import partial
from itertools import chain

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.world import World
from dmcmc.run.compilation import agent_kernel_sets, kernel_sets, large_problem_kernel_sets
from dmcmc.run.compilation.agent_kernel_sets import SolveTiny
from dmcmc.run.compilation.kernel_supply import KernelSupply
from dmcmc.solving.planning.setup import Setup


def request_before_plan(kernels: KernelSupply, world: World, problem: Problem | None, config: Settings) -> None:
    """Request the kernels that divide and plan a problem, which rank 0 has; called by all ranks."""

    def needed() -> list[kernel_sets.KernelSet]:
        assert problem is not None
        return kernel_sets.before_plan(problem, config)

    kernels.request(*world.on_first_rank(needed))


def request_when_planned(
    kernels: KernelSupply, world: World, solve_tiny: SolveTiny, can_end_early: bool
) -> Callable[[Setup], None]:
    """Return a function that requests the kernels of a plan at its first call; all ranks call it.

    Parameters
    ----------
    kernels
        The kernels that are compiled.
    world
        The ranks.
    solve_tiny
        Solves a tiny problem in the way of the run; see :func:`.agent_kernel_sets.agent_work`.
    can_end_early
        Whether the run may be asked to end: work with a deadline has other kernels.
    """
    called = False

    def planned(setup: Setup) -> None:
        nonlocal called
        if called:  # the plan may change while tables are made
            return
        called = True
        find = partial(agent_kernel_sets.agent_work, setup, "deadline" if can_end_early else "none", solve_tiny)
        needed = world.on_first_rank(find)
        kernels.request(*needed.tables)
        if not setup.will_prove and setup.config.local_search != "none":
            kernels.request(*world.on_first_rank(partial(large_problem_kernel_sets.local_search, setup)))
        kernels.request(*chain.from_iterable(agent_kernel_sets.for_improvers(setup, needed).values()))

    return planned
