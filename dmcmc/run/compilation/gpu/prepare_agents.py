"""Request the kernels of agents and improvers, and open the GPU, in a run without searches in the background."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import NamedTuple

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.mpi.world import World
from dmcmc.run.compilation.agent_kernel_sets import SolveTiny, agent_work, for_improvers
from dmcmc.run.compilation.gpu.prepare_gpu import prepare_gpu
from dmcmc.run.compilation.kernel_supply import KernelSupply
from dmcmc.solving.monitoring.progress import ProgressReporter
from dmcmc.solving.planning.setup import Setup


class PreparedAgents(NamedTuple):
    """A run whose kernels are requested.

    Attributes
    ----------
    setup : Setup
        The plan, without a GPU that is not open.
    seconds : float
        Seconds that do not count as run time.
    is_ready : callable
        Returns whether an improver, given by its name, has its kernels on this rank.
    """

    setup: Setup
    seconds: float
    is_ready: Callable[[str], bool]


def prepare_agents(
    setup: Setup,
    world: World,
    progress: ProgressReporter,
    kernels: KernelSupply,
    stop: Deadline,
    solve_tiny: SolveTiny,
) -> PreparedAgents:
    """Request the kernels of a plan, and load those on a GPU; called by all ranks.

    Parameters
    ----------
    setup, world, progress, kernels, stop
        As for :func:`.prepare_gpu.prepare_gpu`.
    solve_tiny
        Solves a tiny problem in the way of the run, which compiles its kernels.

    Raises
    ------
    OutOfTime
        On all ranks, if the deadline passes before the kernels of a GPU that the settings ask for are ready.
    """
    needed = world.bcast(agent_work(setup, "deadline", solve_tiny))
    later = world.bcast(for_improvers(setup, needed))
    seconds = kernels.request(*needed.tables, *chain.from_iterable(later.values()))
    prepared = prepare_gpu(setup, world, progress, kernels, stop)
    is_ready = partial(kernels.is_ready_for, needed=(later, prepared.later))
    return PreparedAgents(prepared.setup, seconds + prepared.seconds, is_ready)
