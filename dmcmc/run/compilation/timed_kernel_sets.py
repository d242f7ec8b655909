"""The kernels that a run with a time budget needs before its agents begin, and what it does without them."""

from collections.abc import Callable

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.world import World
from dmcmc.run.compilation import kernel_sets, large_problem_kernel_sets
from dmcmc.run.compilation.kernel_sets import KernelSet
from dmcmc.run.compilation.kernel_supply import KernelSupply
from dmcmc.samplers.auto.rates import NOMINAL, Rates, load_rates
from dmcmc.solving.planning.divided_problem import DividedProblem


def sets_for_plan(problem: Problem | None, config: Settings) -> list[KernelSet]:
    """Return the kernels that a run needs until it has divided the problem, the most important first (rank 0)."""
    assert problem is not None
    return kernel_sets.before_plan(problem, config)


def sets_for_chains(problem: Problem | None, config: Settings) -> list[KernelSet]:
    """Return the kernels of chains on the problem as given (rank 0)."""
    assert problem is not None
    variant = kernel_sets.SearchVariant.of_given(problem)
    return [] if variant is None or config.local_search == "none" else [kernel_sets.chains(variant)]


def sets_for_large_plan(parts: DividedProblem, world: World) -> list[KernelSet]:
    """Return the kernels that planning needs in addition, if the problem is large; called by all ranks."""
    needed = world.on_first_rank(lambda: large_problem_kernel_sets.searches_subtree_orders(parts))
    return [large_problem_kernel_sets.subtree_orders()] if needed else []


def has_first_search(kernels: KernelSupply, problem: Problem) -> bool:
    """Return whether this rank has the kernels of the first search of a problem as given."""
    return kernels.is_ready(kernel_sets.first_search_of(problem))


def speeds_of(kernels: KernelSupply, is_short: bool) -> Callable[[], Rates]:
    """Return a function that returns the speeds of this machine; called by all ranks.

    Parameters
    ----------
    kernels
        The kernels of the run. Nominal speeds replace measured ones if those that measure are not compiled.
    is_short
        Whether the run is too short for measurements.
    """
    return _nominal if is_short or not kernels.all_ready(large_problem_kernel_sets.rates()) else load_rates


def _nominal() -> Rates:
    """Return nominal speeds, in place of measured ones."""
    return NOMINAL
