"""The kernels of the searches of a run, and those that it needs before its plan.

What kernels each kind of work needs: a *kernel set* is the set of kernels that solving a tiny problem compiles.

A kernel set is data (a name, and a function with its arguments), so that another process can compile it. The name
contains everything that the kernels depend on: number types, methods, layouts. A marker file next to the compiled
kernels says that a set has been compiled (:mod:`.background_compiler`).

A component that has a name declares its set in the file of its kernels. The sets here are those that a run needs before
it has a plan. The sets of the local search are in :mod:`.search_components`, those of agents in
:mod:`.agent_kernel_sets`.

The components of the local search over the whole assignment, and what their kernels depend on.

The columns of utilities that chains read are *compact* if 16-bit numbers hold them.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dmcmc.compilation.small_problems import settings, tiny_problem, with_constraint, with_sparse_factor
from dmcmc.config.settings import Settings
from dmcmc.inference.minibuckets.moment_matching import compile_matching
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import ORDER_SEARCH, compile_search
from dmcmc.inference.orders.reorder_subtrees import SUBTREE_ORDERS
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.tuning import MAX_EXACT_VARIABLES, MAX_INTERPRETED_VARIABLES
from dmcmc.mpi.world import World
from dmcmc.samplers.auto.rates import RATE_KERNELS
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.model.chain_model import is_compact

if TYPE_CHECKING:
    from dmcmc.solving.planning.divided_problem import DividedProblem


_TINY_SWEEPS = 200  # sweeps of a tiny search
_TINY_CHAIN_SECONDS = 0.001  # seconds of chains after which block moves get their turn


class SearchComponents(NamedTuple):
    """The components of the local search of a problem; each says whether it is ready.

    Attributes
    ----------
    first, chains, block_moves : KernelSet
        The greedy assignment and hill climbing, annealed chains, and block moves between chains.
    """

    first: KernelSet
    chains: KernelSet
    block_moves: KernelSet

    @classmethod
    def of(cls, parts: "DividedProblem") -> "SearchComponents":
        """Return the components for a divided problem."""
        variant = SearchVariant.of(parts)
        first = first_search(variant.dtype, variant.dense, variant.constrained)
        return cls(first, chains(variant), block_moves(variant))


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


def block_moves(variant: SearchVariant) -> KernelSet:
    """Return the kernels of block moves between chains, which a search on global constraints does not make."""
    if variant.constrained:
        return constraint_search()
    return KernelSet(f"block moves {variant.text}", partial(_compile_block_moves, variant))


def _compile_block_moves(variant: SearchVariant) -> None:
    """Make block moves on a tiny problem."""
    from dmcmc.samplers.blocks.block_gibbs_kernels import mobility
    from dmcmc.samplers.blocks.neighbourhood_search import penalised_graph
    from dmcmc.samplers.blocks.starts import starts_of
    from dmcmc.samplers.local_search.block_moves import BlockMoves

    compile_search()  # blocks of variables follow an order
    graph = tiny_search(variant).ascent.graph
    values, penalised = np.zeros(graph.domains.size, dtype=np.int64), penalised_graph(graph)
    block_turns = BlockMoves(graph, 0, 1)
    block_turns.add_chain_time(_TINY_CHAIN_SECONDS, gained=False)  # without a turn they would not anneal
    block_turns.run(values, timed=False, stop=NO_DEADLINE)
    mobility(penalised, values, 1.0)
    starts = starts_of(penalised, np.arange(values.size), values, np.zeros(2, np.uint64), NO_DEADLINE)
    if starts is not None:
        starts.draw(0, 1)
        compile_matching(np.dtype(np.int64))  # larger problems have large buckets


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
