"""Open the GPU, and load the agents' kernels on it, before the clock of a run with a time budget starts.

GPU kernels are cached on disk after compilation. Which ones a run needs depends on its agents, such as the widths of
their tables. So the run's own agents load them, with almost no work.
"""

import logging
import time
from dataclasses import replace

import numpy as np

from dmcmc.inference.bounds.semidefinite.relaxation import is_suitable
from dmcmc.inference.bounds.tighten import load_kernels
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.execution.load_gpu_code import load_joins, load_matched
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.mpi.world import World
from dmcmc.run.compilation.kernel_sets import tiny_search_for
from dmcmc.run.improvers import gpu_chains
from dmcmc.run.monitoring.progress import ProgressReporter
from dmcmc.run.planning.combination_plan import largest_join, may_split_buckets, will_prove
from dmcmc.run.planning.setup import Setup
from dmcmc.samplers import registry
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.methods.blocks import BlockSolver

_LOG = logging.getLogger(__name__)
_TITLE = "opening the GPU (kernels are compiled the first time only)"


def prepare_gpu(setup: Setup, world: World, progress: ProgressReporter, searching: bool = True) -> float:
    """Load the kernels that this rank's agents use on a GPU, if any; return the seconds.

    One rank per node comes first; the others find on disk what it has compiled.

    Parameters
    ----------
    setup
        The plan.
    world
        The ranks.
    progress
        Receives the progress.
    searching
        Whether chains of the local search may run on the GPU in the background.
    """
    start = time.perf_counter()
    mine = setup.agents_of_rank(world.rank)
    uses_gpu = setup.backend.device == "cuda" or (setup.backend.device == "auto" and setup.limits.gpu)
    searches = searching and world.rank == 0 and not will_prove(setup) and gpu_chains.wanted(setup.config)
    uses_gpu = uses_gpu or searches
    if not any(world.allgather(uses_gpu)):
        return time.perf_counter() - start
    progress.stage(_TITLE)
    for node_leader_turn in (True, False):
        if uses_gpu and (world.local_rank == 0) == node_leader_turn:
            try:
                if searches:
                    _load_search(setup)
                _load_agent_kernels(setup, mine)
            except Exception as error:  # the run itself reports the error
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                _LOG.warning(f"dmcmc: not all kernels for the GPU are loaded before the clock starts: {reason}")
        if world.size > 1:
            world.wait()
    return time.perf_counter() - start


def without_closed_gpu(setup: Setup) -> Setup:
    """Return a plan that does not use a GPU that is not open yet: opening it now would take the run's time."""
    if setup.backend.device != "auto" or is_gpu_in_use():
        return setup
    return replace(setup, backend=replace(setup.backend, device="cpu"))


def _load_search(setup: Setup) -> None:
    """Load the kernels of the local search for the problem's table type."""
    from dmcmc.samplers.local_search.cuda.chains import load_kernels as load_chains

    load_chains(tiny_search_for(setup).ascent.graph)


def _load_relaxations(with_relaxation: list[LocalProblem], backend: Backend) -> None:
    """Load the kernels of semidefinite relaxations, if an agent may have one."""
    if not with_relaxation:
        return
    from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import load_relaxation_kernels
    from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import relaxation_gpu_problem

    reason = relaxation_gpu_problem()
    if reason is None:
        load_relaxation_kernels(with_relaxation, backend)
    else:
        _LOG.info(f"dmcmc: semidefinite bounds are computed on the CPU: {reason}")


def _load_agent_kernels(setup: Setup, mine: list[int]) -> None:
    """Load the kernels that agents use on the GPU."""
    choices, locals_ = setup.possible_choices(mine), setup.division.locals
    gpu_available = setup.backend.device == "cuda" or (
        setup.backend.device == "auto" and (setup.limits.gpu or is_gpu_in_use())
    )
    may_eliminate_later = gpu_available and any(setup.exact_seconds(agent) is not None for agent in mine)
    join_seconds = max([choice.seconds for _, choice in choices if choice.method == "exact"], default=0.0)
    join_seconds = max(join_seconds, COSTS.seconds_per_cell * largest_join(setup))  # largest join of the combination
    if may_eliminate_later or setup.backend.worth_gpu(join_seconds):
        load_joins(setup.arithmetic.dtype)
    if gpu_available and any(map(setup.may_filter, mine)):
        from dmcmc.inference.sparse.cuda.extend_rows import load_kernels as load_rows

        load_rows(with_headroom(setup.arithmetic))
    matching_dtypes = (
        {setup.arithmetic.dtype} if may_split_buckets(setup) and setup.config.combine.moment_matching else set()
    )
    if any("mini-bucket" in choice.bound for _, choice in choices):
        matching_dtypes.add(np.dtype(np.int64))
    for dtype in sorted(matching_dtypes, key=str):
        load_matched(dtype)
    bounds = [(choice.bound, locals_[agent]) for agent, choice in choices]
    if gpu_available and setup.timed:
        _load_relaxations(
            [local for bound, local in bounds if bound != "none" and is_suitable(local, True)], setup.backend
        )
    load_kernels(bounds, setup.backend, (setup.config.budget.time or 0.0) * setup.backend.threads)
    for method in sorted({choice.method for _, choice in choices}):
        solver = registry.get(method)
        sampled = [agent for agent, choice in choices if choice.method == method and not choice.listed]
        if isinstance(solver, ChainSolver | BlockSolver) and sampled:
            updates = sum(int(setup.surveys[agent].updates) for agent in sampled)
            solver.load([locals_[agent] for agent in sampled], setup.sampling_settings(), updates)
