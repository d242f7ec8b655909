"""The components of a run, and the kernels that each of them needs before it can work.

A component is a method or a step of a run: annealed chains, planning, an agent's tables, a bound. It needs a *kernel
set*: the kernels that it compiles when it solves a tiny problem. A kernel set is data (a name, and a function with its
arguments), so that another process can compile it. The name contains everything that the kernels depend on: number
types, methods, layouts. A marker file next to the compiled kernels says that the set has been compiled.

A component whose kernels are in one file declares its set there. Here are the sets of components that call kernels of
several files.

The columns of utilities that chains read are *compact* if 16-bit numbers hold them. A *listed* agent samples a list of
its rows (assignments of its boundary variables) only.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from dmcmc.compilation.kernel_supply import compiles_before_clock
from dmcmc.compilation.small_problems import settings, tiny_problem, with_constraint, with_sparse_factor
from dmcmc.config.settings import Settings
from dmcmc.inference.bounds.dual.rounding import ROUNDING_KERNELS
from dmcmc.inference.bounds.mini_bucket import MINI_BUCKET_BOUNDS
from dmcmc.inference.bounds.search_rows import BOUNDARY_SEARCH
from dmcmc.inference.bounds.semidefinite.relaxation import RELAXATION_KERNELS, is_suitable
from dmcmc.inference.minibuckets.moment_matching import compile_matching
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import ORDER_SEARCH, compile_search
from dmcmc.inference.orders.reorder_subtrees import SUBTREE_ORDERS
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.sparse.function_filtering import filtering_kernels
from dmcmc.inference.tuning import MAX_EXACT_VARIABLES, MAX_INTERPRETED_VARIABLES
from dmcmc.mpi.world import World
from dmcmc.results.result import BRANCH, FUNCTION_FILTERING, ROUNDING, SEMIDEFINITE, UNION_BOUND
from dmcmc.samplers import registry
from dmcmc.samplers.auto.rates import RATE_KERNELS
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.model.chain_model import is_compact
from dmcmc.solving.planning.combination_plan import may_split_buckets

if TYPE_CHECKING:
    from dmcmc.solving.planning.divided_problem import DividedProblem
    from dmcmc.solving.planning.plan import Setup


_TINY_SWEEPS = 200  # sweeps of a tiny search
_TINY_CHAIN_SECONDS = 0.001  # seconds of chains after which block moves get their turn


class SearchComponents(NamedTuple):
    """The components of the local search of a problem; each says whether it is ready.

    Attributes
    ----------
    first, chains, block_moves, constraints : KernelSet
        The greedy assignment and hill climbing, annealed chains, block moves between chains, and the search on global
        constraints, which replaces the others if there are such constraints.
    """

    first: KernelSet
    chains: KernelSet
    block_moves: KernelSet
    constraints: KernelSet

    @classmethod
    def of(cls, parts: "DividedProblem") -> "SearchComponents":
        """Return the components for a divided problem."""
        variant = SearchVariant.of(parts)
        first = first_search(variant.dtype, variant.dense, variant.constrained)
        return cls(first, chains(variant), block_moves(variant), constraint_search())


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


SolveTiny = Callable[[Problem, Settings, str], object]  # solves a problem, ending in one of these ways:
_AND_MINI_BUCKETS = "+mini-bucket"  # end of the names of bound providers: mini-buckets besides a dual ascent
Ending = Literal["none", "deadline"]  # how a tiny problem is solved: work with a deadline has other kernels


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
        """The needs other than the methods, as the text of a key."""
        return " ".join(map(str, (self.arithmetic.dtype, *self[1:3], *self[4:])))


class AgentKernels(NamedTuple):
    """The kernels of the agents of a plan.

    Attributes
    ----------
    tables : list of KernelSet
        The kernels that make and combine the agents' tables.
    bounds : dict of str to list of KernelSet
        By improver: the kernels that improve the tables' bounds later.
    union : KernelSet or None
        The kernels that bound the union of all agents; None if it is not bounded.
    """

    tables: list[KernelSet]
    bounds: dict[str, list[KernelSet]]
    union: KernelSet | None

    @property
    def before_tables(self) -> list[KernelSet]:
        """The kernels that bound and search the union of all agents before there are tables."""
        return [] if self.union is None else [self.union, *self.bounds.get(BRANCH, [])]


def agent_work(setup: "Setup", ending: Ending, solve: SolveTiny, union: str | None = None) -> AgentKernels:
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
    factors = setup.divided.problem.factors
    tables = setup.divided.problem.facts.get_or_compute(
        "numbers", lambda: tuple(sorted(dtype.name for dtype in {f.table.dtype for f in factors})) or ("int32",)
    )
    key = ("kernel sets", ending, setup.divided.config.local_search, tables, union)
    found: AgentKernels = setup.facts.get_or_compute(key, lambda: _find_agent_work(setup, ending, tables, solve, union))
    return found


def _find_agent_work(
    setup: "Setup", ending: Ending, tables: tuple[str, ...], solve: SolveTiny, union: str | None
) -> AgentKernels:
    """Find the kernels of the agents of a plan; ``tables`` are the number types of the problem's tables."""
    agents = range(setup.divided.problem.n_agents)
    choices = [choice for _, choice in setup.possible_choices(agents)]
    methods = {choice.method for choice in choices}
    if any(setup.exact_seconds(agent) is not None for agent in agents):
        methods.add("exact")  # proposed later, if there is time
    providers = {choice.bound for choice in choices} - {"none"}
    combine, listed, splits = setup.divided.config.combine, any(setup.listed_rows), may_split_buckets(setup)
    work = KernelNeeds(
        methods=tuple(sorted(methods)),
        providers=tuple(sorted(providers)),
        tables=tables,
        arithmetic=setup.divided.arithmetic,
        listed=listed,
        # A list of rows has more values than a tiny problem's.
        wide=listed or bool(setup.divided.problem.domains.max(initial=0) > 256),
        # Without chains, the tables need not be one array.
        compact=methods <= {"exact"} or is_compact(setup.divided.problem),
        local_search=setup.divided.config.local_search,
        partition=combine.partition if splits else "",
        moment_matching=splits and combine.moment_matching,
        timed=setup.divided.timed,
        ending=ending,
    )
    sets = []
    for method in work.methods:
        for bound in work.providers if method != "exact" and work.providers else ("none",):
            sets.append(_tables(work, method, bound, solve))
    if (not work.timed or compiles_before_clock()) and any(map(_has_mini_buckets, providers)):
        sets.append(MINI_BUCKET_BOUNDS)
    sets.append(KernelSet(f"combination {work.text}", partial(_compile_combination, work, solve)))
    return AgentKernels(
        sets,
        _bounds(setup, union is not None) if providers or union else {},
        None if union is None else _union(work, union),
    )


def _has_mini_buckets(bound: str) -> bool:
    """Return whether a bound provider has mini-buckets besides a dual ascent, which then have kernels of their own."""
    return bound.endswith(_AND_MINI_BUCKETS)


def _tables(work: KernelNeeds, method: str, bound: str, solve: SolveTiny) -> KernelSet:
    """Return the kernels that make tables by one method with one bound provider."""
    source, bound = registry.name_of_kernel(method), bound.removesuffix(_AND_MINI_BUCKETS)
    one = work._replace(methods=(method,), providers=(bound,), partition="", moment_matching=False)
    return KernelSet(f"tables {source} {one.text}", partial(_compile_tables, one, solve))


def _bounds(setup: "Setup", of_union: bool) -> dict[str, list[KernelSet]]:
    """Return the kernels that improve the bounds of agents, and of their union, in a run with a time budget."""
    if not setup.divided.timed or setup.divided.config.local.bound == "none":
        return {}
    found = {BRANCH: [BOUNDARY_SEARCH], ROUNDING: [ROUNDING_KERNELS]}
    if of_union or any(map(is_suitable, setup.divided.division.locals)):
        found[SEMIDEFINITE] = [RELAXATION_KERNELS]
    return found


def for_improvers(setup: "Setup", agents: AgentKernels) -> dict[str, list[KernelSet]]:
    """Return the kernels that improvers need besides those of the tables, by the improver's name."""
    needed = dict(agents.bounds)
    if agents.union is not None:
        needed[UNION_BOUND] = [agents.union]
    if any(map(setup.may_filter, range(setup.divided.problem.n_agents))):
        needed[FUNCTION_FILTERING] = [filtering_kernels(setup.divided.arithmetic)]
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


def _union(work: KernelNeeds, provider: str) -> KernelSet:
    """Return the kernels of the dual ascent that bounds the union of all agents."""
    provider = provider.removesuffix(_AND_MINI_BUCKETS)
    return KernelSet(f"union {provider} {work.text}", partial(_compile_union, work, provider))


def _compile_union(work: KernelNeeds, provider: str) -> None:
    """Bound the union of the agents of a tiny problem; again, because the first time ends while it is compiled."""
    from dmcmc.anytime.whole_problem.whole_problem_agent import WholeProblemAgent
    from dmcmc.solving.planning.plan import prepare

    setup = prepare(_tiny_problem_of(work), settings({}), World())
    for _ in range(2):
        WholeProblemAgent(setup, provider, lambda: None, tuning.SLICE_SECONDS)


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
