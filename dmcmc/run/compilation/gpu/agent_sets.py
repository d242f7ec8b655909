"""Find the kernels that the agents and the local search of a plan load on a GPU."""

import logging
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dmcmc.anytime.union.union_plan import union_of, union_provider
from dmcmc.inference.bounds.semidefinite.relaxation import is_suitable
from dmcmc.inference.bounds.tighten import gpu_table_widths
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.results.result import SEMIDEFINITE
from dmcmc.run.compilation import gpu_kernel_sets
from dmcmc.run.compilation.search_components import SearchVariant
from dmcmc.samplers import registry
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.methods.blocks import BlockSolver
from dmcmc.samplers.methods.gibbs import uses_gibbs_kernel
from dmcmc.samplers.model.chain_model import is_compact
from dmcmc.solving.planning.combination_plan import largest_join, may_split_buckets
from dmcmc.solving.planning.setup import Setup

_LOG = logging.getLogger(__name__)


class GpuKernels(NamedTuple):
    """The kernels that a run's agents and its local search load on a GPU.

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
    def first(self) -> list[KernelSet]:
        """The kernels that must be there before the first tables are made.

        Their names contain what the kernels depend on, so that other problems find them.
        """
        setup, agents = self.setup, self.agents
        found: list[KernelSet] = []
        if self.searches:
            found.append(gpu_kernel_sets.search(SearchVariant.of(setup)))
        found += sampling(setup, agents)
        found += [gpu_kernel_sets.dual_ascent(width) for width in _table_widths(setup, agents)]
        return found + elimination_needs(setup, agents).kernels

    @property
    def later(self) -> dict[str, list[KernelSet]]:
        """The kernels that improvers need, by the improver's name; they depend on the domains of the agents."""
        if not (_gpu_available(self.setup) and self.setup.timed):
            return {}
        sets = relaxations(self.setup, self.agents)
        return {SEMIDEFINITE: sets} if sets else {}


def _gpu_available(setup: Setup) -> bool:
    """Return whether agents may use a GPU."""
    return setup.backend.device == "cuda" or (setup.backend.device == "auto" and (setup.limits.gpu or is_gpu_in_use()))


class EliminationNeeds(NamedTuple):
    """The kernels of exact elimination, of mini-buckets and of function filtering that a run needs on a GPU.

    Attributes
    ----------
    joins : tuple of dtype
        Number types of the tables that are joined.
    filtered : tuple of Arithmetic
        Arithmetic of the rows of function filtering.
    matched : tuple of dtype
        Number types of the mini-buckets whose max-marginals are matched.
    """

    joins: tuple[np.dtype[Any], ...]
    filtered: tuple[Arithmetic, ...]
    matched: tuple[np.dtype[Any], ...]

    @property
    def kernels(self) -> list[KernelSet]:
        """The kernel sets."""
        found = [gpu_kernel_sets.joins(dtype) for dtype in self.joins]
        found += [gpu_kernel_sets.function_filtering(arithmetic) for arithmetic in self.filtered]
        return found + [gpu_kernel_sets.matched_mini_buckets(dtype) for dtype in self.matched]


def elimination_needs(setup: Setup, agents: list[int]) -> EliminationNeeds:
    """Return which kernels of elimination the agents and the combination need."""
    choices = setup.possible_choices(agents)
    may_eliminate_later = _gpu_available(setup) and any(setup.exact_seconds(agent) is not None for agent in agents)
    join_seconds = max([choice.seconds for _, choice in choices if choice.method == "exact"], default=0.0)
    join_seconds = max(join_seconds, COSTS.seconds_per_cell * largest_join(setup))  # largest join of the combination
    joins = may_eliminate_later or setup.backend.worth_gpu(join_seconds)
    filters = _gpu_available(setup) and any(map(setup.may_filter, agents))
    matched = {setup.arithmetic.dtype} if may_split_buckets(setup) and setup.config.combine.moment_matching else set()
    if any("mini-bucket" in choice.bound for _, choice in choices):
        matched.add(np.dtype(np.int64))
    return EliminationNeeds(
        (setup.arithmetic.dtype,) if joins else (),
        (with_headroom(setup.arithmetic),) if filters else (),
        tuple(sorted(matched, key=str)),
    )


def _bounds(setup: Setup, agents: list[int]) -> list[tuple[str, LocalProblem]]:
    """Return the bound providers of agents with their local problems."""
    return [(choice.bound, setup.division.locals[agent]) for agent, choice in setup.possible_choices(agents)]


def _table_widths(setup: Setup, agents: list[int]) -> list[int]:
    """Return the widths of the tables of the bounds on a GPU: those of agents, and of the union of all agents."""
    seconds = (setup.config.budget.time or 0.0) * setup.backend.threads
    bounds, provider = _bounds(setup, agents), union_provider(setup)
    if provider is not None:
        bounds.append((provider, union_of(setup)))
    return gpu_table_widths(bounds, setup.backend, seconds)


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
