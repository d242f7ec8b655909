"""What kernels each kind of work needs: a *kernel set* is the set of kernels that solving a tiny problem compiles.

A kernel set is data (a name, and a function with its arguments), so that another process can compile it. The name
contains everything that the kernels depend on: number types, methods, layouts. A marker file next to the compiled
kernels says that a set has been compiled (:mod:`.background_compiler`).

The columns of utilities that chains read are *compact* if 16-bit numbers hold them. The kernel sets of agents are in
:mod:`.agent_kernel_sets`.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import compile_search
from dmcmc.inference.orders.tuning import MAX_EXACT_VARIABLES, MAX_INTERPRETED_VARIABLES
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.interpreted import is_interpreting
from dmcmc.inference.storage.cache_folders import compiled_marker
from dmcmc.mpi.world import World
from dmcmc.run.compilation.tiny_problems import settings, tiny_problem, with_constraint, with_sparse_factor
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.model.chain_model import is_compact

if TYPE_CHECKING:
    from dmcmc.solving.planning.divided_problem import DividedProblem

_TINY_SWEEPS = 200  # sweeps of a tiny search


class KernelSet(NamedTuple):
    """The kernels of one kind of work.

    Attributes
    ----------
    name : str
        What the kernels depend on; also names the marker file.
    compile : callable
        Compiles or loads the kernels by calling them. It can be pickled.
    """

    name: str
    compile: Callable[[], object]

    @property
    def is_compiled(self) -> bool:
        """Whether a process of this node has compiled and stored the kernels."""
        if is_interpreting() or self.name in COMPILED:
            return True
        marker = compiled_marker(self.name)
        if marker is not None and os.path.isfile(marker):
            COMPILED.add(self.name)
        return self.name in COMPILED


COMPILED: set[str] = set()  # names of the sets that this process knows to be compiled


def planning(config: Settings) -> KernelSet:
    """Return the kernels that divide, presolve and plan any problem."""
    return KernelSet(f"planning {config.local.method}", partial(_compile_planning, config.local.method))


def before_plan(problem: Problem, config: Settings) -> list[KernelSet]:
    """Return the kernels that a run needs until it has divided the problem, the most important first."""
    sets = [planning(config)]
    if searches_orders(problem, config.budget.time is not None):
        sets.append(order_search())
    if config.local_search != "none":
        sets.insert(0, first_search_of(problem))
    return sets


def _compile_planning(method: str) -> None:
    """Plan a tiny problem."""
    from dmcmc.solving.planning.plan import prepare

    prepare(tiny_problem(np.dtype(np.int32)), settings({"method": method}), World())


def order_search() -> KernelSet:
    """Return the kernels that search for elimination orders."""
    return KernelSet("order search", compile_search)


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


def first_search(dtype: np.dtype[Any], dense: bool, constrained: bool = False) -> KernelSet:
    """Return the kernels that find the first incumbent and make answers 1-optimal.

    Parameters
    ----------
    dtype : dtype
        Number type of the tables.
    dense : bool
        Whether all factors are tables.
    constrained : bool
        Whether there are global constraints.
    """
    if constrained:
        return constraint_search()
    return KernelSet(f"search {dtype} {dense}", partial(_compile_first_search, dtype, dense))


def constraint_search() -> KernelSet:
    """Return the kernels of the local search on global constraints, from the first answer on."""
    return KernelSet("constraint search", compile_constraint_search)


def compile_constraint_search() -> None:
    """Search on a tiny problem with a global constraint."""
    problem = tiny_problem(np.dtype(np.int32), [np.dtype(np.int32)])
    search = LocalSearch(with_constraint(problem), problem, 0, 1, NO_DEADLINE)
    search.improve(search.first(), None, _TINY_SWEEPS)


def first_search_of(problem: Problem) -> KernelSet:
    """Return the kernels that find the first incumbent of a problem as given."""
    dtypes = {part.dtype for factor in problem.factors for part in factor.arrays()[-1:]}
    dtype = max(dtypes, key=lambda d: (d.kind == "f", d.itemsize), default=np.dtype(np.int32))
    return first_search(dtype, problem.dense, not problem.tabular)


def _compile_first_search(dtype: np.dtype[Any], dense: bool) -> None:
    """Find the first incumbent of a tiny problem."""
    tiny_search(SearchVariant(dtype, dense, compact=True)).first()


class SearchVariant(NamedTuple):
    """What the kernels of the local search depend on.

    Attributes
    ----------
    dtype : dtype
        Number type of the tables.
    dense : bool
        Whether all factors are tables.
    compact : bool
        Whether the columns that chains read are compact.
    constrained : bool
        Whether there are global constraints.
    """

    dtype: np.dtype[Any]
    dense: bool
    compact: bool
    constrained: bool = False

    @classmethod
    def of(cls, parts: "DividedProblem") -> "SearchVariant":
        """Return the variant for a divided problem."""
        return cls._of(parts.problem, parts.original.dense)._replace(constrained=not parts.original.tabular)

    @classmethod
    def _of(cls, problem: Problem, dense: bool) -> "SearchVariant":
        """Return the variant for a problem of tables, which was dense before or not."""
        flat = problem.flat
        return cls(flat.data.dtype, dense, dense and is_compact(problem))

    @classmethod
    def of_given(cls, problem: Problem) -> "SearchVariant | None":
        """Return the variant for a problem as given, unless presolve changes it; None if its factors are not dense."""
        return cls._of(problem, dense=True) if problem.dense and problem.factors else None

    @property
    def text(self) -> str:
        """The variant as a part of a name."""
        return " ".join(map(str, self[:3]))


def chains(variant: SearchVariant) -> KernelSet:
    """Return the kernels of annealed chains, or of the search on global constraints."""
    if variant.constrained:
        return constraint_search()
    return KernelSet(f"chains {variant.text}", partial(_compile_chains, variant))


def _compile_chains(variant: SearchVariant) -> None:
    """Anneal chains on a tiny problem."""
    search = tiny_search(variant)
    search.chains.may_move_blocks = no_block_moves
    search.improve(np.zeros(search.problem.n_variables, dtype=np.int64), None, _TINY_SWEEPS)


def no_block_moves() -> bool:
    """Return False: the kernels of block moves are not needed."""
    return False


def tiny_search(variant: SearchVariant) -> LocalSearch:
    """Return a search of a tiny problem that uses the kernels of a variant without global constraints."""
    problem = tiny_problem(np.dtype(np.int32), [variant.dtype], hard=not variant.compact)
    return LocalSearch(problem if variant.dense else with_sparse_factor(problem), problem, 0, 1, NO_DEADLINE)
