"""What kernels each kind of work needs: a *kernel set* is the set of kernels that solving a tiny problem compiles.

A kernel set is data (a name, and a function with its arguments), so that another process can compile it. The name
contains everything that the kernels depend on: number types, methods, layouts. A marker file next to the compiled
kernels says that a set has been compiled (:mod:`.background_compiler`).

A component that has a name declares its set in the file of its kernels. The sets here are those that a run needs before
it has a plan.
The sets of the local search are in :mod:`.search_components`, those of agents in :mod:`.agent_kernel_sets`.
"""

from functools import partial

import numpy as np

from dmcmc.compilation.search_components import SearchVariant, chains, first_search_of
from dmcmc.compilation.tiny_problems import settings, tiny_problem
from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import ORDER_SEARCH
from dmcmc.inference.orders.reorder_subtrees import SUBTREE_ORDERS
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.tuning import MAX_EXACT_VARIABLES, MAX_INTERPRETED_VARIABLES
from dmcmc.mpi.world import World
from dmcmc.samplers.auto.rates import RATE_KERNELS


def planning(config: Settings) -> KernelSet:
    """Return the kernels that divide, presolve and plan any problem."""
    return KernelSet(f"planning {config.local.method}", partial(_compile_planning, config.local.method))


def before_plan(problem: Problem | None, config: Settings) -> list[KernelSet]:
    """Return the kernels that a run needs until it has divided the problem, the most important first (rank 0)."""
    assert problem is not None
    sets = [planning(config)]
    if searches_orders(problem, config.budget.time is not None):
        sets.append(ORDER_SEARCH)
    if config.local_search != "none":
        sets.insert(0, first_search_of(problem))
    return sets


def _compile_planning(method: str) -> None:
    """Plan a tiny problem."""
    from dmcmc.solving.planning.plan import prepare

    prepare(tiny_problem(np.dtype(np.int32)), settings({"method": method}), World())


def searches_orders(problem: Problem, timed: bool) -> bool:
    """Return whether elimination orders will be searched at once.

    Up to ``MAX_EXACT_VARIABLES`` variables have exact orders, which need no kernels. With a time budget, larger
    problems also need them for the decision whether to presolve.
    """
    largest_agent = np.bincount(problem.owner, minlength=1).max()
    return problem.n_variables > MAX_EXACT_VARIABLES and (
        bool(max(largest_agent, problem.n_agents) > MAX_EXACT_VARIABLES)
        or (timed and problem.n_variables > MAX_INTERPRETED_VARIABLES)
    )


def soon(problem: Problem | None, config: Settings, with_orders: bool = False) -> list[KernelSet]:
    """Return the kernels that a run with a time budget uses as soon as they are there, given its problem (rank 0).

    ``with_orders`` adds those of the search for elimination orders, which a run uses later if they are there.
    """
    assert problem is not None
    variant = SearchVariant.of_given(problem)
    found = [] if variant is None or config.local_search == "none" else [chains(variant)]
    if with_orders:
        found.append(ORDER_SEARCH)
    return [*found, SUBTREE_ORDERS, RATE_KERNELS] if with_orders or searches_orders(problem, timed=True) else found
