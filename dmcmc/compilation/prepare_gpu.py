"""Open the GPU, and load the agents' kernels on it, in a run with a time budget.

GPU kernels are cached on disk after compilation. Which ones a run needs depends on its agents, such as the widths of
their tables. So the run's own agents load them, with almost no work. The kernels of semidefinite relaxations depend on
the sizes of the domains; they are compiled while other improvers work.
"""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from dmcmc.anytime.improvers.assignments import wanted
from dmcmc.compilation.agent_kernel_sets import SolveTiny, agent_work, for_improvers
from dmcmc.compilation.gpu_agent_sets import GpuKernels
from dmcmc.compilation.kernel_supply import ConcurrentWork, KernelSupply
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.device import gpu_fault, is_gpu_in_use
from dmcmc.mpi.world import World
from dmcmc.solving.monitoring.progress import ProgressReporter
from dmcmc.solving.planning.plan import Setup

_LOG = logging.getLogger(__name__)
_TITLE = "opening the GPU"


class PreparedRun(NamedTuple):
    """A run whose GPU kernels are loaded or will be.

    Attributes
    ----------
    setup : Setup
        The plan, without a GPU that is not open.
    seconds : float
        Seconds that do not count as run time.
    later : dict of str to list of KernelSet
        Kernels that improvers on the GPU still need, by the improver's name.
    next_plan : callable or None
        Returns the plan that uses the GPU once its kernels are compiled, until then None; called by all ranks. None if
        ``setup`` already uses all that it is to use.
    """

    setup: Setup
    seconds: float
    later: dict[str, list[KernelSet]]
    next_plan: Callable[[], Setup | None] | None = None


def prepare_gpu(
    setup: Setup,
    world: World,
    progress: ProgressReporter,
    kernels: KernelSupply,
    concurrent: ConcurrentWork | None = None,
) -> PreparedRun:
    """Load the kernels that this rank's agents use on a GPU, if any; called by all ranks.

    Other processes compile missing kernels while the run works on the CPU: with ``device: auto`` until its end,
    with ``device: cuda`` until they are compiled.

    Parameters
    ----------
    setup
        The plan.
    world
        The ranks.
    progress
        Receives the progress.
    kernels
        The kernels of the run.
    concurrent
        Work for the time in which the GPU is opened: the local search, whose chains may run on the GPU, too.
    """
    required = setup.backend.device == "cuda"
    uses_gpu = required or (setup.backend.device == "auto" and setup.limits.gpu)
    searches = concurrent is not None and world.rank == 0 and not setup.will_prove and wanted(setup.divided.config)
    uses_gpu = uses_gpu or searches
    if not any(world.allgather(uses_gpu)):
        return PreparedRun(setup, 0.0, {})
    plain = setup.with_stop(NO_DEADLINE)
    agents = (
        setup.agents_of_rank(world.rank) if setup.divided.scattered else list(range(setup.divided.problem.n_agents))
    )
    needed = GpuKernels(plain, agents, searches)
    first, later = (needed.first, needed.later) if uses_gpu and not world.local_rank else ([], {})
    seconds = kernels.request(*first, *chain.from_iterable(later.values()))

    def load() -> Setup | None:
        """Open the GPU if its kernels are compiled, and return the plan that uses it; otherwise None."""
        if not kernels.all_ready(*first):
            return None
        progress.stage(_TITLE)
        with nullcontext() if concurrent is None else concurrent.begin():
            if uses_gpu:
                # later kernels are loaded where they are used: large arrays would take seconds now
                _load(GpuKernels(plain, setup.agents_of_rank(world.rank), searches).first)
        if world.size > 1:
            world.wait()
        return without_closed_gpu(setup)

    prepared = load()
    used_later = needed.later if uses_gpu else {}
    if prepared is None and required:
        return PreparedRun(setup.on_cpu(), seconds, used_later, load if setup.divided.timed else None)
    prepared = without_closed_gpu(setup) if prepared is None else prepared
    return PreparedRun(prepared, seconds, used_later if prepared.backend.device != "cpu" else {})


def _load(sets: list[KernelSet]) -> None:
    """Load kernels in this process."""
    try:
        for kernels in sets:
            kernels.compile()
    except Exception as error:  # the run itself reports the error
        if gpu_fault(error) is None:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            _LOG.warning(f"dmcmc: not all kernels for the GPU are loaded: {reason}")


def without_closed_gpu(setup: Setup) -> Setup:
    """Return a plan that does not use a GPU that is not open yet: opening it now would take the run's time."""
    if setup.backend.device != "auto" or is_gpu_in_use():
        return setup
    return replace(setup, backend=replace(setup.backend, device="cpu"))


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
    next_plan : callable or None
        As for :class:`PreparedRun`.
    """

    setup: Setup
    seconds: float
    is_ready: Callable[[str], bool]
    next_plan: Callable[[], Setup | None] | None


def prepare_agents(
    setup: Setup,
    world: World,
    progress: ProgressReporter,
    kernels: KernelSupply,
    solve_tiny: SolveTiny,
) -> PreparedAgents:
    """Request the kernels of a plan, and load those on a GPU; called by all ranks.

    Parameters
    ----------
    setup, world, progress, kernels, stop
        As for :func:`.prepare_gpu.prepare_gpu`.
    solve_tiny
        Solves a tiny problem in the way of the run, which compiles its kernels.
    """
    needed = world.bcast(agent_work(setup, "deadline", solve_tiny))
    later = world.bcast(for_improvers(setup, needed))
    seconds = kernels.request(*needed.tables, *chain.from_iterable(later.values()))
    prepared = prepare_gpu(setup, world, progress, kernels)
    is_ready = partial(kernels.is_ready_for, needed=(later, prepared.later))
    return PreparedAgents(prepared.setup, seconds + prepared.seconds, is_ready, prepared.next_plan)
