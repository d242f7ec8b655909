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
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.minibuckets.moment_matching import compile_matching
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import compile_search
from dmcmc.inference.orders.estimate_cost import joins_at_least
from dmcmc.inference.orders.tuning import (
    MAX_BITSET_VARIABLES,
    MAX_EXACT_VARIABLES,
    MAX_INTERPRETED_VARIABLES,
    MIN_REORDERED_CELLS,
)
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
_TINY_CHAIN_SECONDS = 0.001  # seconds of chains after which block moves get their turn


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


def block_moves(variant: SearchVariant) -> KernelSet:
    """Return the kernels of block moves between chains, which a search on global constraints does not make."""
    if variant.constrained:
        return constraint_search()
    return KernelSet(f"block moves {variant.text}", partial(_compile_block_moves, variant))


def _compile_block_moves(variant: SearchVariant) -> None:
    """Make block moves on a tiny problem."""
    from dmcmc.samplers.blocks.block_workspace import penalised_graph
    from dmcmc.samplers.blocks.mini_bucket_starts import starts_of
    from dmcmc.samplers.blocks.sweep_kernels import mobility
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


def local_search(parts: "DividedProblem") -> list[KernelSet]:
    """Return the kernels of all steps of the local search over the whole assignment."""
    variant = SearchVariant.of(parts)
    return [first_search(variant.dtype, variant.dense), chains(variant), block_moves(variant)]


def tiny_search(variant: SearchVariant) -> LocalSearch:
    """Return a search of a tiny problem that uses the kernels of a variant without global constraints."""
    problem = tiny_problem(np.dtype(np.int32), [variant.dtype], hard=not variant.compact)
    return LocalSearch(problem if variant.dense else with_sparse_factor(problem), problem, 0, 1, NO_DEADLINE)


def own_engine(name: str | None) -> list[KernelSet]:
    """Return the kernels of a search engine of dmcmc for the whole problem; none for an engine in a process."""
    from dmcmc.samplers.own_engines import kernels_of

    function = kernels_of(name)
    return [] if function is None else [KernelSet(f"search {name}", function)]


def whole_problem(parts: "DividedProblem", eliminate: Callable[[Problem, Settings], object]) -> list[KernelSet]:
    """Return the kernels that eliminate a whole problem, with mini-buckets if these may be needed.

    Parameters
    ----------
    parts : DividedProblem
        The problem.
    eliminate : callable
        Eliminates a tiny problem in the way of the run; a function of a module.
    """
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
