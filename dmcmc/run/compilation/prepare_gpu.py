"""Open the GPU, and load what the agents use on it, before the clock of a run with a time budget starts.

Kernels for the GPU are kept on disk once they are compiled; which ones a run needs shows in the agents themselves: the
width of their tables, the samplers' columns. So they are loaded by the run's own agents, with next to no work.
"""

import logging
import time
from dataclasses import replace

import numpy as np

from dmcmc.inference.bounds.semidefinite.relaxation import suits
from dmcmc.inference.bounds.tighten import load_kernels
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.execution.load_gpu_code import load_joins, load_matched
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.runtime.device import opened
from dmcmc.mpi.world import World
from dmcmc.run.compilation.compile_ahead import tiny_search_for
from dmcmc.run.improvers import gpu_chains
from dmcmc.run.monitoring.progress import Progress
from dmcmc.run.planning.combination_plan import largest_join, splits, will_prove
from dmcmc.run.planning.setup import Setup
from dmcmc.samplers import registry
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.methods.blocks import BlockSolver

_LOG = logging.getLogger(__name__)
_TITLE = "opening the GPU (kernels are compiled the first time only)"


def warm_up_gpu(setup: Setup, world: World, progress: Progress, searching: bool = True) -> float:
    """Load what this rank's agents use on a GPU, if they use one; return the seconds that this took.

    One rank of each node comes first: what it compiles, the others find on disk.

    Parameters
    ----------
    searching
        Whether chains of the whole assignment may go on beside the agents' work.
    """
    start = time.perf_counter()
    mine = setup.of_rank(world.rank)
    use = setup.backend.device == "cuda" or (setup.backend.device == "auto" and setup.limits.gpu)
    searches = searching and world.rank == 0 and not will_prove(setup) and gpu_chains.wanted(setup.config)
    use = use or searches
    if not any(world.allgather(use)):
        return time.perf_counter() - start
    progress.stage(_TITLE)
    for first in (True, False):
        if use and (world.local_rank == 0) == first:
            try:
                if searches:
                    _load_search(setup)
                _load(setup, mine)
            except Exception as error:  # the run itself will tell what is wrong with it
                why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                _LOG.warning(f"dmcmc: not all kernels for the GPU are loaded before the clock starts: {why}")
        if world.size > 1:
            world.wait()
    return time.perf_counter() - start


def settled(setup: Setup) -> Setup:
    """Return a setup for which a GPU that is not open by now stays closed: opening it would take the run's time."""
    if setup.backend.device != "auto" or opened():
        return setup
    return replace(setup, backend=replace(setup.backend, device="cpu"))


def _load_search(setup: Setup) -> None:
    """Load what searches the whole assignment, for its kind of numbers."""
    from dmcmc.samplers.local_search.cuda.chains import load_kernels as load_chains

    load_chains(tiny_search_for(setup).ascent.graph)


def _load_lifts(lifted: list[LocalProblem], backend: Backend) -> None:
    """Load what lifts use, if there may be any."""
    if not lifted:
        return
    from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import load_lifts
    from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import lift_problem

    why = lift_problem()
    if why is None:
        load_lifts(lifted, backend)
    else:
        _LOG.info(f"dmcmc: semidefinite lifts stay on the CPU: {why}")


def _load(setup: Setup, mine: list[int]) -> None:
    """Load what agents use: each room knows whether it would go to the GPU with that."""
    choices, locals_ = setup.possible(mine), setup.division.locals
    there = setup.backend.device == "cuda" or (setup.backend.device == "auto" and (setup.limits.gpu or opened()))
    later = there and any(setup.exact_price(agent) is not None for agent in mine)
    joined = max([choice.seconds for _, choice in choices if choice.method == "exact"], default=0.0)
    joined = max(joined, COSTS.cell * largest_join(setup))  # of combining
    if later or setup.backend.worth(joined):
        load_joins(setup.arithmetic.dtype)
    if there and any(map(setup.filters, mine)):
        from dmcmc.inference.sparse.cuda.extend_rows import load_kernels as load_rows

        load_rows(with_headroom(setup.arithmetic))
    matched = {setup.arithmetic.dtype} if splits(setup) and setup.config.combine.moment_matching else set()
    if any("mini-bucket" in choice.bound for _, choice in choices):
        matched.add(np.dtype(np.int64))
    for dtype in sorted(matched, key=str):
        load_matched(dtype)
    bounds = [(choice.bound, locals_[agent]) for agent, choice in choices]
    if there and setup.timed:
        _load_lifts([local for bound, local in bounds if bound != "none" and suits(local, True)], setup.backend)
    load_kernels(bounds, setup.backend, (setup.config.budget.time or 0.0) * setup.backend.threads)
    for method in sorted({choice.method for _, choice in choices}):
        solver = registry.get(method)
        sampled = [agent for agent, choice in choices if choice.method == method and not choice.listed]
        if isinstance(solver, ChainSolver | BlockSolver) and sampled:
            updates = sum(int(setup.surveys[agent].updates) for agent in sampled)
            solver.load([locals_[agent] for agent in sampled], setup.sampling(), updates)
