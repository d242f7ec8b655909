"""Open the GPU, and load the agents' kernels on it, in a run with a time budget.

GPU kernels are cached on disk after compilation. Which ones a run needs depends on its agents, such as the widths of
their tables. So the run's own agents load them, with almost no work.
"""

import hashlib
import logging
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from dmcmc.inference.bounds.semidefinite.relaxation import is_suitable
from dmcmc.inference.bounds.tighten import load_kernels
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.execution.load_gpu_code import load_joins, load_matched
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.mpi.world import World
from dmcmc.run.compilation.kernel_sets import KernelSet, tiny_search_for
from dmcmc.run.compilation.kernel_supply import ConcurrentWork, KernelSupply
from dmcmc.run.improvers import gpu_chains
from dmcmc.samplers import registry
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.methods.blocks import BlockSolver
from dmcmc.solving.monitoring.progress import ProgressReporter
from dmcmc.solving.planning.combination_plan import largest_join, may_split_buckets, will_prove
from dmcmc.solving.planning.setup import Setup

_LOG = logging.getLogger(__name__)
_TITLE = "opening the GPU"
_DIGEST_BYTES = 12  # bytes of the digest in the name of a kernel set: two of 10^9 share it with probability 10^-11


class GpuKernels(NamedTuple):
    """What a run's agents and its local search load on a GPU.

    Attributes
    ----------
    setup : Setup
        The plan, without its deadline.
    agents : list of int
        The agents.
    searches : bool
        Whether chains of the local search run on the GPU.
    """

    setup: Setup
    agents: list[int]
    searches: bool

    @property
    def loaders(self) -> dict[str, Callable[[], object]]:
        """Functions that load independent groups of kernels, by name; they can be pickled."""
        setup, agents = self.setup, self.agents
        found: dict[str, Callable[[], object]] = {}
        if self.searches:
            found["search"] = partial(_load_search, setup)
        for method in sorted({choice.method for _, choice in setup.possible_choices(agents)}):
            found[f"sampling by {method}"] = partial(_load_sampling, setup, agents, method)
        found["bounds"] = partial(_load_bounds, setup, agents)
        found["relaxations"] = partial(_load_relaxations, setup, agents)
        found["elimination"] = partial(_load_elimination, setup, agents)
        return found

    @property
    def sets(self) -> list[KernelSet]:
        """The same as kernel sets; their names depend on all that the kernels depend on."""
        setup = self.setup
        shapes = setup.choices, setup.surveys, setup.problem.domains, setup.arithmetic, setup.config.local, self.agents
        digest = hashlib.blake2b(pickle.dumps(shapes), digest_size=_DIGEST_BYTES).hexdigest()
        return [KernelSet(f"GPU {name} {digest}", load) for name, load in self.loaders.items()]


def prepare_gpu(
    setup: Setup,
    world: World,
    progress: ProgressReporter,
    kernels: KernelSupply,
    stop: Deadline,
    concurrent: ConcurrentWork | None = None,
) -> tuple[Setup, float]:
    """Load the kernels that this rank's agents use on a GPU, if any; called by all ranks.

    Missing kernels are compiled by several processes. With ``device: auto`` the run does without the GPU until the next
    run; with ``device: cuda`` it waits for them.

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
    stop
        Deadline of the run.
    concurrent
        Work for the time of waiting: the local search, whose chains may then run on the GPU, too.

    Returns
    -------
    setup : Setup
        The plan, without a GPU that is not open.
    seconds : float
        Seconds that do not count as run time.

    Raises
    ------
    OutOfTime
        On all ranks, if the deadline passes before the kernels are ready.
    """
    required = setup.backend.device == "cuda"
    uses_gpu = required or (setup.backend.device == "auto" and setup.limits.gpu)
    searches = concurrent is not None and world.rank == 0 and not will_prove(setup) and gpu_chains.wanted(setup.config)
    uses_gpu = uses_gpu or searches
    if not any(world.allgather(uses_gpu)):
        return setup, 0.0
    plain = setup.with_stop(NO_DEADLINE)
    agents = setup.agents_of_rank(world.rank) if setup.scattered else list(range(setup.problem.n_agents))
    sets = GpuKernels(plain, agents, searches).sets if uses_gpu and not world.local_rank else []
    seconds = kernels.wait(sets, stop, concurrent) if required else kernels.request(*sets)
    if kernels.all_ready(*sets):
        progress.stage(_TITLE)
        with nullcontext() if concurrent is None else concurrent.begin():
            if uses_gpu:
                _load(GpuKernels(plain, setup.agents_of_rank(world.rank), searches))
        if world.size > 1:
            world.wait()
    return without_closed_gpu(setup), seconds


def _load(needed: GpuKernels) -> None:
    """Load kernels in this process."""
    try:
        for load in needed.loaders.values():
            load()
    except Exception as error:  # the run itself reports the error
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        _LOG.warning(f"dmcmc: not all kernels for the GPU are loaded: {reason}")


def without_closed_gpu(setup: Setup) -> Setup:
    """Return a plan that does not use a GPU that is not open yet: opening it now would take the run's time."""
    if setup.backend.device != "auto" or is_gpu_in_use():
        return setup
    return replace(setup, backend=replace(setup.backend, device="cpu"))


def _load_search(setup: Setup) -> None:
    """Load the kernels of the local search for the problem's table type."""
    from dmcmc.samplers.local_search.cuda.chains import load_kernels as load_chains

    load_chains(tiny_search_for(setup).ascent.graph)


def _gpu_available(setup: Setup) -> bool:
    """Return whether agents may use a GPU."""
    return setup.backend.device == "cuda" or (setup.backend.device == "auto" and (setup.limits.gpu or is_gpu_in_use()))


def _load_elimination(setup: Setup, agents: list[int]) -> None:
    """Load the kernels of exact elimination, of mini-buckets and of function filtering."""
    choices = setup.possible_choices(agents)
    may_eliminate_later = _gpu_available(setup) and any(setup.exact_seconds(agent) is not None for agent in agents)
    join_seconds = max([choice.seconds for _, choice in choices if choice.method == "exact"], default=0.0)
    join_seconds = max(join_seconds, COSTS.seconds_per_cell * largest_join(setup))  # largest join of the combination
    if may_eliminate_later or setup.backend.worth_gpu(join_seconds):
        load_joins(setup.arithmetic.dtype)
    if _gpu_available(setup) and any(map(setup.may_filter, agents)):
        from dmcmc.inference.sparse.cuda.extend_rows import load_kernels as load_rows

        load_rows(with_headroom(setup.arithmetic))
    matching_dtypes = (
        {setup.arithmetic.dtype} if may_split_buckets(setup) and setup.config.combine.moment_matching else set()
    )
    if any("mini-bucket" in choice.bound for _, choice in choices):
        matching_dtypes.add(np.dtype(np.int64))
    for dtype in sorted(matching_dtypes, key=str):
        load_matched(dtype)


def _bounds(setup: Setup, agents: list[int]) -> list[tuple[str, LocalProblem]]:
    """Return the bound providers of agents with their local problems."""
    return [(choice.bound, setup.division.locals[agent]) for agent, choice in setup.possible_choices(agents)]


def _load_relaxations(setup: Setup, agents: list[int]) -> None:
    """Load the kernels of semidefinite relaxations, if an agent may have one."""
    bounds = _bounds(setup, agents)
    with_relaxation = [local for bound, local in bounds if bound != "none" and is_suitable(local, True)]
    if not (_gpu_available(setup) and setup.timed and with_relaxation):
        return
    from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import load_relaxation_kernels
    from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import relaxation_gpu_problem

    reason = relaxation_gpu_problem()
    if reason is None:
        load_relaxation_kernels(with_relaxation, setup.backend)
    else:
        _LOG.info(f"dmcmc: semidefinite bounds are computed on the CPU: {reason}")


def _load_bounds(setup: Setup, agents: list[int]) -> None:
    """Load the kernels of the agents' bounds."""
    seconds = (setup.config.budget.time or 0.0) * setup.backend.threads
    load_kernels(_bounds(setup, agents), setup.backend, seconds)


def _load_sampling(setup: Setup, agents: list[int], method: str) -> None:
    """Load the kernels of a sampler."""
    solver = registry.get(method)
    choices = setup.possible_choices(agents)
    sampled = [agent for agent, choice in choices if choice.method == method and not choice.listed]
    if isinstance(solver, ChainSolver | BlockSolver) and sampled:
        updates = sum(int(setup.surveys[agent].updates) for agent in sampled)
        solver.load([setup.division.locals[agent] for agent in sampled], setup.sampling_settings(), updates)
