"""The kernel sets of work on large problems: local search, search engines, mini-buckets of all variables, orders."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.minibuckets.moment_matching import compile_matching
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.estimate_cost import joins_at_least
from dmcmc.inference.orders.tuning import MAX_BITSET_VARIABLES, MAX_EXACT_VARIABLES, MIN_REORDERED_CELLS
from dmcmc.run.compilation.block_move_kernel_sets import block_moves
from dmcmc.run.compilation.kernel_sets import (
    KernelSet,
    SearchVariant,
    chains,
    first_search,
)
from dmcmc.run.compilation.tiny_problems import settings, tiny_problem

if TYPE_CHECKING:
    from dmcmc.solving.planning.divided_problem import DividedProblem


def subtree_orders() -> KernelSet:
    """Return the kernels that improve the elimination orders of large plans."""
    from dmcmc.inference.orders.reorder_subtrees import compile_subtree_search

    return KernelSet("orders", compile_subtree_search)


def searches_subtree_orders(parts: "DividedProblem") -> bool:
    """Return whether the orders of a large plan will be improved; true for all very large problems."""

    def large(local: LocalProblem) -> bool:
        if len(local.hidden) <= MAX_EXACT_VARIABLES:
            return False
        scopes = [f.scope for f in local.factors]
        return joins_at_least(scopes, local.domains, local.hidden, local.interface, MIN_REORDERED_CELLS)

    whole = parts.problem
    whole_problem = [factor.scope for factor in whole.factors], whole.domains, range(whole.n_variables), ()
    return parts.config.local.method in ("auto", "exact") and (
        any(map(large, parts.division.locals))
        or whole.n_variables > MAX_BITSET_VARIABLES
        or (whole.n_variables > MAX_EXACT_VARIABLES and joins_at_least(*whole_problem, MIN_REORDERED_CELLS))
    )


def rates() -> KernelSet:
    """Return the kernels that measure the speed of this machine."""
    from dmcmc.samplers.auto.rates import compile_measured_kernels

    return KernelSet("rates", compile_measured_kernels)


def local_search(parts: "DividedProblem") -> list[KernelSet]:
    """Return the kernels of all steps of the local search over the whole assignment."""
    variant = SearchVariant.of(parts)
    return [first_search(variant.dtype, variant.dense), chains(variant), block_moves(variant)]


def own_engine(name: str | None) -> list[KernelSet]:
    """Return the kernels of a search engine of dmcmc for the whole problem; none for an engine in a process."""
    from dmcmc.samplers.own_engines import kernels_of

    function = kernels_of(name)
    return [] if function is None else [KernelSet(f"search {name}", function)]


def whole_problem(parts: "DividedProblem", eliminate: Callable[[Problem, Settings], object]) -> list[KernelSet]:
    """Return the kernels that eliminate and search a whole problem, the most important first.

    Parameters
    ----------
    parts : DividedProblem
        The problem.
    eliminate : callable
        Eliminates a tiny problem in the way of the run; a function of a module.
    """
    variant = SearchVariant.of(parts)
    needed = [first_search(variant.dtype, variant.dense), chains(variant)]
    return [*needed, *_elimination(parts, eliminate), block_moves(variant)]


def _elimination(parts: "DividedProblem", eliminate: Callable[[Problem, Settings], object]) -> list[KernelSet]:
    """Return the kernels of mini-buckets of the whole problem, if these may be needed."""
    combine, dtype = parts.config.combine, parts.arithmetic.dtype
    if combine.method == "exact":
        return []
    name = f"whole problem {dtype} {combine.partition} {combine.moment_matching}"
    options = {"method": "mini-bucket", "z": 2, "partition": combine.partition}
    return [KernelSet(name, partial(_compile_whole_problem, dtype, options, combine.moment_matching, eliminate))]


def _compile_whole_problem(
    dtype: np.dtype[Any], options: dict[str, Any], matched: bool, eliminate: Callable[[Problem, Settings], object]
) -> None:
    """Eliminate a tiny problem with mini-buckets."""
    eliminate(tiny_problem(dtype, [dtype]), settings({}, options | {"moment_matching": matched}))
    if matched:
        compile_matching(dtype)
