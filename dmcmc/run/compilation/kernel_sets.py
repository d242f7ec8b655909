"""What kernels each kind of work needs: a *kernel set* is the set of kernels that solving a tiny problem compiles.

A kernel set is data (a name, and a function with its arguments), so that another process can compile it. The name
contains everything that the kernels depend on: number types, methods, layouts. A marker file next to the compiled
kernels says that a set has been compiled (:mod:`.background_compiler`).

The columns of utilities that chains read are *compact* if 16-bit numbers hold them. A *listed* agent samples a list
of its rows (assignments of its boundary variables) only.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.bounds.semidefinite.relaxation import is_suitable
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.minibuckets.moment_matching import compile_matching, with_headroom
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import MIN_REORDERED_CELLS, compile_search
from dmcmc.inference.orders.estimate_cost import MAX_BITSET_VARIABLES, MAX_INTERPRETED_VARIABLES, joins_at_least
from dmcmc.inference.orders.exact_order import MAX_EXACT_VARIABLES
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.interpreted import is_interpreting
from dmcmc.inference.storage.cache_folders import compiled_marker
from dmcmc.mpi.world import World
from dmcmc.run.compilation.tiny_problems import settings, tiny_problem, with_sparse_factor
from dmcmc.run.planning.combination_plan import may_split_buckets
from dmcmc.run.planning.divided_problem import DividedProblem
from dmcmc.run.planning.setup import Setup
from dmcmc.run.scheduler.proposal import BRANCH, FUNCTION_FILTERING, SEMIDEFINITE, UNION_BOUND
from dmcmc.samplers import registry
from dmcmc.samplers.auto.survey import SAMPLER
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.cpu.chain_kernels import compile_chains
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.model.chain_model import is_compact

COMPILE_LIMIT = 600.0  # time limit of a tiny problem in seconds, longer than any compilation
_TINY_SWEEPS = 200  # sweeps of a tiny search
_TINY_CHAIN_SECONDS = 0.001  # seconds of chains after which block moves get their turn

SolveTiny = Callable[[Problem, Settings, str], object]  # solves a problem, ending in one of these ways:
Ending = Literal["none", "deadline"]  # how a tiny problem is solved: work with a deadline has other kernels


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
        if is_interpreting() or self.name in _COMPILED:
            return True
        marker = compiled_marker(self.name)
        if marker is not None and os.path.isfile(marker):
            _COMPILED.add(self.name)
        return self.name in _COMPILED


_COMPILED: set[str] = set()  # names of the sets that this process knows to be compiled


def planning(config: Settings) -> KernelSet:
    """Return the kernels that divide, presolve and plan any problem."""
    return KernelSet(f"planning {config.local.method}", partial(_compile_planning, config.local.method))


def _compile_planning(method: str) -> None:
    """Plan a tiny problem."""
    from dmcmc.run.planning.plan import prepare

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


def searches_subtree_orders(parts: DividedProblem) -> bool:
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


def first_search(dtype: np.dtype[Any], dense: bool) -> KernelSet:
    """Return the kernels that find the first incumbent and make answers 1-optimal.

    Parameters
    ----------
    dtype : dtype
        Number type of the tables.
    dense : bool
        Whether all factors are tables.
    """
    return KernelSet(f"search {dtype} {dense}", partial(_compile_first_search, dtype, dense))


def first_search_of(problem: Problem) -> KernelSet:
    """Return the kernels that find the first incumbent of a problem as given."""
    dtypes = {part.dtype for factor in problem.factors for part in factor.arrays()[-1:]}
    dtype = max(dtypes, key=lambda d: (d.kind == "f", d.itemsize), default=np.dtype(np.int32))
    return first_search(dtype, problem.dense)


def _compile_first_search(dtype: np.dtype[Any], dense: bool) -> None:
    """Find the first incumbent of a tiny problem."""
    _tiny_search(dtype, dense, compact=True).first()


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
    """

    dtype: np.dtype[Any]
    dense: bool
    compact: bool

    @classmethod
    def of(cls, parts: DividedProblem) -> "SearchVariant":
        """Return the variant for a divided problem."""
        return cls._of(parts.problem, parts.original.dense)

    @classmethod
    def _of(cls, problem: Problem, dense: bool) -> "SearchVariant":
        """Return the variant for a problem of tables, which was dense before or not."""
        flat = problem.flat
        return cls(flat.data.dtype, dense, dense and is_compact(flat, problem.n_variables))

    @classmethod
    def of_given(cls, problem: Problem) -> "SearchVariant | None":
        """Return the variant for a problem as given, unless presolve changes it; None if its factors are not dense."""
        return cls._of(problem, dense=True) if problem.dense and problem.factors else None

    @property
    def text(self) -> str:
        """The variant as a part of a name."""
        return " ".join(map(str, self))


def chains(variant: SearchVariant) -> KernelSet:
    """Return the kernels of annealed chains."""
    return KernelSet(f"chains {variant.text}", partial(_compile_chains, variant))


def _compile_chains(variant: SearchVariant) -> None:
    """Anneal chains on a tiny problem."""
    search = _tiny_search(*variant)
    search.may_move_blocks = no_block_moves
    search.improve(np.zeros(search.problem.n_variables, dtype=np.int64), None, _TINY_SWEEPS)


def no_block_moves() -> bool:
    """Return False: the kernels of block moves are not needed."""
    return False


def block_moves(variant: SearchVariant) -> KernelSet:
    """Return the kernels of block moves between chains."""
    return KernelSet(f"block moves {variant.text}", partial(_compile_block_moves, variant))


def _compile_block_moves(variant: SearchVariant) -> None:
    """Make block moves on a tiny problem."""
    from dmcmc.samplers.blocks.mini_bucket_starts import starts_of
    from dmcmc.samplers.blocks.sweep_kernels import mobility
    from dmcmc.samplers.local_search.block_moves import BlockMoves, penalised_graph

    compile_search()  # blocks of variables follow an order
    graph = _tiny_search(*variant).ascent.graph
    values, penalised = np.zeros(graph.domains.size, dtype=np.int64), penalised_graph(graph)
    block_turns = BlockMoves(graph, 0, 1)
    block_turns.add_chain_time(_TINY_CHAIN_SECONDS, gained=False)  # without a turn they would not anneal
    block_turns.run(values, timed=False, stop=NO_DEADLINE)
    mobility(penalised, values, 1.0)
    starts = starts_of(penalised, np.arange(values.size), values, np.zeros(2, np.uint64), NO_DEADLINE)
    if starts is not None:
        starts.draw(0, 1)
        compile_matching(np.dtype(np.int64))  # larger problems have large buckets


def tiny_search_for(parts: DividedProblem) -> LocalSearch:
    """Return a search of a tiny problem that uses the same kernels as a search of the given problem."""
    return _tiny_search(*SearchVariant.of(parts))


def _tiny_search(dtype: np.dtype[Any], dense: bool, compact: bool) -> LocalSearch:
    """Return a search of a tiny problem with the given kernel variant."""
    problem = tiny_problem(np.dtype(np.int32), [dtype], hard=not compact)
    return LocalSearch(problem if dense else with_sparse_factor(problem), problem, 0, 1, NO_DEADLINE)


def branch_and_bound() -> KernelSet:
    """Return the kernels of branch and bound on the whole problem."""
    from dmcmc.samplers.branch_and_bound.engine import compile_search as compile_branching

    return KernelSet("branch and bound", compile_branching)


def function_filtering(arithmetic: Arithmetic) -> KernelSet:
    """Return the kernels of function filtering."""
    from dmcmc.inference.sparse.function_filtering import compile_filtering

    return KernelSet(f"filtering {with_headroom(arithmetic).dtype}", partial(compile_filtering, arithmetic))


class KernelNeeds(NamedTuple):
    """The methods and number types that the agents of a plan use, which determine their kernels.

    Attributes
    ----------
    methods, providers : tuple of str
        Local solvers and bound providers.
    tables : tuple of str
        Number types of the problem's tables.
    arithmetic : Arithmetic
        Number type of the sums.
    listed : bool
        Whether an agent's table has a list of rows only.
    wide : bool
        Whether a domain has more than 256 values.
    compact : bool
        Whether the columns of the chains are compact.
    local_search : str
        The setting ``local_search``.
    partition : str
        How mini-buckets are chosen; empty if no bucket is split.
    moment_matching : bool
        Whether mini-buckets of the combination are matched.
    timed : bool
        Whether there is a time budget.
    ending : str
        How runs end: ``none`` (with the work) or ``deadline``.
    """

    methods: tuple[str, ...]
    providers: tuple[str, ...]
    tables: tuple[str, ...]
    arithmetic: Arithmetic
    listed: bool
    wide: bool
    compact: bool
    local_search: str
    partition: str
    moment_matching: bool
    timed: bool
    ending: Ending

    @property
    def text(self) -> str:
        """What the kernels depend on, without the methods."""
        return " ".join(map(str, (self.arithmetic.dtype, *self[1:3], *self[4:])))


class AgentKernels(NamedTuple):
    """The kernels of the agents of a plan.

    Attributes
    ----------
    tables : list of KernelSet
        What makes and combines the agents' tables.
    bounds : list of KernelSet
        What improves the tables' bounds later.
    union : KernelSet or None
        The kernels that bound the union of all agents; None if it is not bounded.
    """

    tables: list[KernelSet]
    bounds: list[KernelSet]
    union: KernelSet | None


def agent_work(setup: Setup, ending: Ending, solve: SolveTiny, union: str | None = None) -> AgentKernels:
    """Return the kernels of the agents of a plan.

    Parameters
    ----------
    setup : Setup
        The plan.
    ending : str
        How the run ends, see :class:`KernelNeeds`.
    solve : callable
        Solves a tiny problem in the way of the run; a function of a module, so that other processes find it.
    union : str or None
        Bound provider of the union of all agents; None if it is not bounded.
    """
    factors = setup.problem.factors
    tables = setup.problem.facts.get_or_compute(
        "numbers", lambda: tuple(sorted({f.table.dtype.name for f in factors})) or ("int32",)
    )
    key = ("kernel sets", ending, setup.config.local_search, tables, union)
    found: AgentKernels = setup.facts.get_or_compute(key, lambda: _find_agent_work(setup, ending, tables, solve, union))
    return found


def _find_agent_work(
    setup: Setup, ending: Ending, tables: tuple[str, ...], solve: SolveTiny, union: str | None
) -> AgentKernels:
    """Find the kernels of the agents of a plan; ``tables`` are the number types of the problem's tables."""
    agents = range(setup.problem.n_agents)
    choices = [choice for _, choice in setup.possible_choices(agents)]
    methods = {choice.method for choice in choices}
    if any(setup.exact_seconds(agent) is not None for agent in agents):
        methods.add("exact")  # proposed later, if there is time
    providers = {choice.bound for choice in choices} - {"none"}
    combine, listed, splits = setup.config.combine, any(setup.listed_rows), may_split_buckets(setup)
    work = KernelNeeds(
        methods=tuple(sorted(methods)),
        providers=tuple(sorted(providers)),
        tables=tables,
        arithmetic=setup.arithmetic,
        listed=listed,
        # A list of rows has more values than a tiny problem's.
        wide=listed or bool(setup.problem.domains.max(initial=0) > 256),
        # Without chains, the tables need not be one array.
        compact=methods <= {"exact"} or is_compact(setup.problem.flat, setup.problem.n_variables),
        local_search=setup.config.local_search,
        partition=combine.partition if splits else "",
        moment_matching=splits and combine.moment_matching,
        timed=setup.timed,
        ending=ending,
    )
    sets = []
    for method in work.methods:
        for bound in work.providers if method != "exact" and work.providers else ("none",):
            sets.append(_tables(work, method, bound, solve))
    sets.append(KernelSet(f"combination {work.text}", partial(_compile_combination, work, solve)))
    return AgentKernels(
        sets,
        bounds(setup, union is not None) if providers or union else [],
        None if union is None else _tables(work, SAMPLER, union, solve),
    )


def _tables(work: KernelNeeds, method: str, bound: str, solve: SolveTiny) -> KernelSet:
    """Return the kernels that make tables by one method with one bound provider."""
    solver = registry.get(method)
    # The name of the chains' kernel changes with the source of the sampler.
    source = compile_chains(solver.sampler).__name__ if isinstance(solver, ChainSolver) else method
    one = work._replace(methods=(method,), providers=(bound,), partition="", moment_matching=False)
    return KernelSet(f"tables {source} {one.text}", partial(_compile_tables, one, solve))


def bounds(parts: DividedProblem, of_union: bool = False) -> list[KernelSet]:
    """Return the kernels that improve the bounds of agents, and of their union, in a run with a time budget."""
    if not parts.timed or parts.config.local.bound == "none":
        return []
    has_relaxation = of_union or any(map(is_suitable, parts.division.locals))
    return [KernelSet(f"bounds {has_relaxation}", partial(_compile_bounds, has_relaxation))]


def for_improvers(setup: Setup, agents: AgentKernels) -> dict[str, KernelSet]:
    """Return the kernels that improvers need besides those of the tables, by the improver's name."""
    needed = {name: kernels for name in (SEMIDEFINITE, BRANCH) for kernels in agents.bounds}
    if agents.union is not None:
        needed[UNION_BOUND] = agents.union
    if any(map(setup.may_filter, range(setup.problem.n_agents))):
        needed[FUNCTION_FILTERING] = function_filtering(setup.arithmetic)
    return needed


def _tiny_problem_of(work: KernelNeeds) -> Problem:
    """Return a tiny problem with the number types of a run."""
    tables = [np.dtype(name) for name in work.tables]
    return tiny_problem(work.arithmetic.dtype, tables, work.wide, inside=not work.compact)


def _compile_tables(work: KernelNeeds, solve: SolveTiny) -> None:
    """Make and combine the tables of a tiny problem by one method with one bound."""
    (method,), (bound,) = work.methods, work.providers
    local: dict[str, Any] = {"method": method, "runs": 2, "samples": 20, "bound": bound}
    local |= {"rows": 2} if work.listed and method != "exact" else {}
    solve(_tiny_problem_of(work), settings(local, local_search=work.local_search), work.ending)
    if "mini-bucket" in bound:  # larger agents have split buckets
        compile_matching(np.dtype(np.int64))


def _compile_combination(work: KernelNeeds, solve: SolveTiny) -> None:
    """Join and combine tables of a tiny problem, also with mini-buckets if the run may need these."""
    from dmcmc.inference.elimination.eliminate import compile_joins

    compile_joins(work.arithmetic)
    if work.partition:
        options = {"method": "mini-bucket", "z": 1, "partition": work.partition}
        combine = options | {"moment_matching": work.moment_matching}
        solve(_tiny_problem_of(work), settings({"method": "exact"}, combine), work.ending)
    if work.moment_matching:
        compile_matching(work.arithmetic.dtype)  # also the kernels of large buckets


def _compile_bounds(has_relaxation: bool) -> None:
    """Improve the bounds of tiny problems in all ways that need a time budget."""
    from dmcmc.inference.bounds.branch_and_bound.row_search import compile_boundary_search
    from dmcmc.inference.bounds.dual.rounding import compile_rounding
    from dmcmc.inference.bounds.semidefinite.relaxation import compile_relaxation

    compile_rounding()  # the search also starts from roundings of the bounds
    compile_boundary_search()
    if has_relaxation:
        compile_relaxation()


def whole_problem(parts: DividedProblem, eliminate: Callable[[Problem, Settings], object]) -> list[KernelSet]:
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
