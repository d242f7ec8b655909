"""Find the kernels that relax the agents of a plan on a GPU; they depend on the sizes of the domains."""

import logging

from dmcmc.inference.bounds.semidefinite.relaxation import is_suitable
from dmcmc.run.compilation import gpu_kernel_sets
from dmcmc.run.compilation.kernel_sets import KernelSet
from dmcmc.solving.planning.setup import Setup

_LOG = logging.getLogger(__name__)


def relaxations(setup: Setup, agents: list[int]) -> list[KernelSet]:
    """Return the kernels of the semidefinite relaxations of agents; empty if a GPU cannot compute them."""
    relaxed = _agents_with_relaxation(setup, agents)
    if not relaxed:
        return []
    from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import largest_domains, uses_large_arrays

    locals_ = [setup.division.locals[agent] for agent in relaxed]
    sets = [gpu_kernel_sets.relaxations(size, setup.backend) for size in largest_domains(locals_)]
    if any(map(uses_large_arrays, locals_)):
        sets.append(gpu_kernel_sets.large_relaxations(setup.backend))
    return sets


def _agents_with_relaxation(setup: Setup, agents: list[int]) -> list[int]:
    """Return the agents that may have a semidefinite relaxation on a GPU."""
    choices = setup.possible_choices(agents)
    suitable = [
        agent for agent, choice in choices
        if choice.bound != "none" and is_suitable(setup.division.locals[agent], True)
    ]  # fmt: skip
    if not suitable:
        return []
    from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import relaxation_gpu_problem

    reason = relaxation_gpu_problem()
    if reason is not None:
        _LOG.info(f"dmcmc: semidefinite bounds are computed on the CPU: {reason}")
        return []
    return list(dict.fromkeys(suitable))
