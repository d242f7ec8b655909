"""Find the kernels that sample the agents of a plan on a GPU."""

from functools import partial

from dmcmc.run.compilation import gpu_kernel_sets
from dmcmc.run.compilation.kernel_sets import KernelSet
from dmcmc.samplers import registry
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.methods.blocks import BlockSolver
from dmcmc.samplers.methods.gibbs import uses_gibbs_kernel
from dmcmc.samplers.model.chain_model import is_compact
from dmcmc.solving.planning.setup import Setup


def sampling(setup: Setup, agents: list[int]) -> list[KernelSet]:
    """Return the kernels with which samplers sample agents, if their draws are worth the transfer to a GPU."""
    by_method = _sampled_agents(setup, agents)
    return [kernels for method, sampled in by_method.items() for kernels in _sampling_kernels(setup, sampled, method)]


def _sampled_agents(setup: Setup, agents: list[int]) -> dict[str, list[int]]:
    """Return the agents that chains or blocks sample, by method."""
    sampled: dict[str, list[int]] = {}
    for agent, choice in setup.possible_choices(agents):
        if not choice.listed and isinstance(registry.get(choice.method), ChainSolver | BlockSolver):
            sampled.setdefault(choice.method, []).append(agent)
    return dict(sorted(sampled.items()))


def _numbers(setup: Setup) -> str:
    """Return what the kernels of chains depend on besides the method: the number types of tables, values and sums."""
    problem = setup.problem
    is_wide = bool(problem.domains.max(initial=0) > 256)  # values do not fit a byte
    return f"{problem.flat.data.dtype} {setup.arithmetic.dtype} {is_wide} {is_compact(problem)}"


def _sampling_kernels(setup: Setup, agents: list[int], method: str) -> list[KernelSet]:
    """Return the kernels with which a sampler samples agents, if their draws are worth the transfer to a GPU."""
    solver, sampling = registry.get(method), setup.sampling_settings()
    assert isinstance(solver, ChainSolver | BlockSolver), "only these have kernels on a GPU"
    locals_ = [setup.division.locals[agent] for agent in agents]
    if not sampling.backend.samples_on_gpu(sum(int(setup.surveys[agent].updates) for agent in agents)):
        return []
    if isinstance(solver, ChainSolver) and uses_gibbs_kernel(solver.sampler):
        return gpu_kernel_sets.gibbs_sampling_of(solver.sampler, locals_, {1, sampling.runs})
    name = f"GPU sampling by {method} {setup.config.local.runs} {_numbers(setup)}"
    return [KernelSet(name, partial(solver.load, locals_, sampling))]
