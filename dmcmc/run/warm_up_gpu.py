"""Open the GPU, and load what the agents use on it, before the clock of a run with a time budget starts.

Kernels for the GPU are kept on disk once they are compiled; which ones a run needs shows in the agents themselves: the
width of their tables, the samplers' columns. So they are loaded by the run's own agents, with next to no work.
"""

import time
from contextlib import suppress
from dataclasses import replace

from dmcmc.inference.bounds.dual.graph import padded
from dmcmc.mpi.world import World
from dmcmc.run.progress import Progress
from dmcmc.run.setup import Setup
from dmcmc.samplers import registry
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.cpu.chain_kernels import compile_chains
from dmcmc.samplers.cpu.launch import Chains

_TITLE = "opening the GPU (kernels are compiled the first time only)"
_SAMPLES = 2


def warm_up_gpu(setup: Setup, world: World, progress: Progress) -> float:
    """Load what this rank's agents use on a GPU, if they use one; return the seconds that this took.

    One rank of each node comes first: what it compiles, the others find on disk.
    """
    start = time.perf_counter()
    mine = [agent for agent, rank in enumerate(setup.owner) if rank == world.rank]
    use = setup.backend.device == "cuda" or (setup.backend.device == "auto" and setup.limits.gpu)
    if not any(world.allgather(use)):
        return time.perf_counter() - start
    progress.stage(_TITLE)
    for first in (True, False):
        if use and (world.local_rank == 0) == first:
            with suppress(Exception):  # the run itself will tell what is wrong
                _load(setup, mine)
        if world.size > 1:
            world.wait()
    return time.perf_counter() - start


def _load(setup: Setup, mine: list[int]) -> None:
    from dmcmc.inference.bounds.dual.cuda import device as dual_cuda
    from dmcmc.inference.elimination.cuda.waves import load_kernels
    from dmcmc.inference.elimination.semirings import MAX_PLUS

    choices = {agent: setup.choices[agent] for agent in mine}
    if any(c.method == "exact" and c.device == "cuda" for c in choices.values()):
        load_kernels(setup.arithmetic.dtype, MAX_PLUS.operation)
    budget = setup.config.budget.time
    if budget is not None and setup.backend.bounds_on_gpu(budget * setup.backend.threads):
        bounded = [a for a, c in choices.items() if c.bound in ("dual", "triangles")]
        for width in sorted({padded(setup.division.locals[a]) for a in bounded}):
            dual_cuda.load_kernels(width)
    for method in sorted({c.method for c in choices.values()}):
        sampled = [a for a, c in choices.items() if c.method == method and not c.listed]
        solver = registry.get(method)
        if not isinstance(solver, ChainSolver) or not sampled:
            continue
        if setup.backend.samples_on_gpu(sum(int(setup.surveys[a].updates) for a in sampled)):
            _load_sampler(setup, solver, sampled)


def _load_sampler(setup: Setup, solver: ChainSolver, agents: list[int]) -> None:
    from dmcmc.samplers.cuda.launch import sample_rows

    settings, sampler = replace(setup.settings(), samples=_SAMPLES), solver.sampler
    locals_ = [setup.division.locals[a] for a in agents]
    chains = [Chains(local, settings, sampler, compile_chains(sampler)) for local in locals_]
    keys = [(int(c.key[0]), int(c.key[1])) for c in chains]
    sample_rows(sampler, [c.model for c in chains], keys, [c.rounds for c in chains], settings.runs)
