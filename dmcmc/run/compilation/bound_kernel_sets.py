"""The kernel sets that improve bounds and tables of agents in a run with a time budget."""

from functools import partial

from dmcmc.inference.bounds.semidefinite.relaxation import is_suitable
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.run.compilation.kernel_sets import KernelSet
from dmcmc.solving.planning.divided_problem import DividedProblem


def function_filtering(arithmetic: Arithmetic) -> KernelSet:
    """Return the kernels of function filtering."""
    from dmcmc.inference.sparse.function_filtering import compile_filtering

    return KernelSet(f"filtering {with_headroom(arithmetic).dtype}", partial(compile_filtering, arithmetic))


def bounds(parts: DividedProblem, of_union: bool = False) -> list[KernelSet]:
    """Return the kernels that improve the bounds of agents, and of their union, in a run with a time budget."""
    if not parts.timed or parts.config.local.bound == "none":
        return []
    has_relaxation = of_union or any(map(is_suitable, parts.division.locals))
    return [KernelSet(f"bounds {has_relaxation}", partial(_compile_bounds, has_relaxation))]


def _compile_bounds(has_relaxation: bool) -> None:
    """Improve the bounds of tiny problems in all ways that need a time budget."""
    from dmcmc.inference.bounds.branch_and_bound_rows import compile_boundary_search
    from dmcmc.inference.bounds.dual.rounding import compile_rounding
    from dmcmc.inference.bounds.semidefinite.relaxation import compile_relaxation

    compile_rounding()  # the search also starts from roundings of the bounds
    compile_boundary_search()
    if has_relaxation:
        compile_relaxation()
