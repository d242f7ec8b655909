"""Compile in the background what a run without a time budget will call, while it works.

The run does not know of it: it calls kernels, which are compiled when they are called, or found if another process has
been faster. :class:`CompileAhead` watches the run from outside, by its problem and its plan.
"""

from functools import partial

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.world import World
from dmcmc.run.compilation import agent_kernel_sets, kernel_sets
from dmcmc.run.compilation.agent_kernel_sets import SolveTiny
from dmcmc.run.compilation.kernel_supply import KernelSupply
from dmcmc.solving.planning.combination_plan import will_prove
from dmcmc.solving.planning.setup import Setup


class CompileAhead:
    """Requests the kernels of a run with a fixed amount of work; the methods are called by all ranks.

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

    def __init__(self, kernels: KernelSupply, world: World, solve_tiny: SolveTiny, can_end_early: bool) -> None:
        self._kernels, self._world, self._solve_tiny, self._can_end_early = kernels, world, solve_tiny, can_end_early
        self._is_planned = False

    def begin(self, problem: Problem | None, config: Settings) -> None:
        """Request the kernels that divide and plan a problem, which rank 0 has."""

        def needed() -> list[kernel_sets.KernelSet]:
            assert problem is not None
            return kernel_sets.before_plan(problem, config)

        self._kernels.request(*self._world.on_first_rank(needed))

    def planned(self, setup: Setup) -> None:
        """Request the kernels of a plan: those of the agents' tables, of their bounds, and of the local search."""
        if self._is_planned:  # the plan has changed during the work
            return
        self._is_planned = True
        find = partial(agent_kernel_sets.agent_work, setup, "deadline" if self._can_end_early else "none")
        needed = self._world.on_first_rank(partial(find, self._solve_tiny))
        self._kernels.request(*needed.tables)
        if not will_prove(setup) and setup.config.local_search != "none":
            self._kernels.request(*self._world.on_first_rank(partial(kernel_sets.local_search, setup)))
        self._kernels.request(*agent_kernel_sets.for_improvers(setup, needed).values())
