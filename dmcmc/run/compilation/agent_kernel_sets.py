"""The kernel sets of a plan's agents: what makes, combines and bounds their tables, and bounds the union of all agents.

The columns of utilities that chains read are *compact* if 16-bit numbers hold them. A *listed* agent samples a list of
its rows (assignments of its boundary variables) only.
"""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.bounds.branch_and_bound_rows import BOUNDARY_SEARCH
from dmcmc.inference.bounds.dual.rounding import ROUNDING_KERNELS
from dmcmc.inference.bounds.semidefinite.relaxation import RELAXATION_KERNELS, is_suitable
from dmcmc.inference.minibuckets.moment_matching import compile_matching
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.sparse.function_filtering import filtering_kernels
from dmcmc.mpi.world import World
from dmcmc.results.result import BRANCH, FUNCTION_FILTERING, ROUNDING, SEMIDEFINITE, UNION_BOUND
from dmcmc.run.compilation.search_components import SearchComponents
from dmcmc.run.compilation.tiny_problems import settings, tiny_problem
from dmcmc.samplers import registry
from dmcmc.samplers.model.chain_model import is_compact
from dmcmc.samplers.tuning import common
from dmcmc.solving.planning.combination_plan import may_split_buckets

if TYPE_CHECKING:
    from dmcmc.run.compilation.kernel_supply import KernelSupply
    from dmcmc.solving.planning.setup import Setup

SolveTiny = Callable[[Problem, Settings, str], object]  # solves a problem, ending in one of these ways:
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
    factors = setup.problem.factors
    tables = setup.problem.facts.get_or_compute(
        "numbers", lambda: tuple(sorted(dtype.name for dtype in {f.table.dtype for f in factors})) or ("int32",)
    )
    key = ("kernel sets", ending, setup.config.local_search, tables, union)
    found: AgentKernels = setup.facts.get_or_compute(key, lambda: _find_agent_work(setup, ending, tables, solve, union))
    return found


def _find_agent_work(
    setup: "Setup", ending: Ending, tables: tuple[str, ...], solve: SolveTiny, union: str | None
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
        compact=methods <= {"exact"} or is_compact(setup.problem),
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
        _bounds(setup, union is not None) if providers or union else {},
        None if union is None else _union(work, union),
    )


def _tables(work: KernelNeeds, method: str, bound: str, solve: SolveTiny) -> KernelSet:
    """Return the kernels that make tables by one method with one bound provider."""
    source = registry.name_of_kernel(method)
    one = work._replace(methods=(method,), providers=(bound,), partition="", moment_matching=False)
    return KernelSet(f"tables {source} {one.text}", partial(_compile_tables, one, solve))


def _bounds(setup: "Setup", of_union: bool) -> dict[str, list[KernelSet]]:
    """Return the kernels that improve the bounds of agents, and of their union, in a run with a time budget."""
    if not setup.timed or setup.config.local.bound == "none":
        return {}
    found = {BRANCH: [BOUNDARY_SEARCH], ROUNDING: [ROUNDING_KERNELS]}
    if of_union or any(map(is_suitable, setup.division.locals)):
        found[SEMIDEFINITE] = [RELAXATION_KERNELS]
    return found


def for_improvers(setup: "Setup", agents: AgentKernels) -> dict[str, list[KernelSet]]:
    """Return the kernels that improvers need besides those of the tables, by the improver's name."""
    needed = dict(agents.bounds)
    if agents.union is not None:
        needed[UNION_BOUND] = [agents.union]
    if any(map(setup.may_filter, range(setup.problem.n_agents))):
        needed[FUNCTION_FILTERING] = [filtering_kernels(setup.arithmetic)]
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
    """Return the kernels of the first bounds of the union of all agents."""
    return KernelSet(f"union {provider} {work.text}", partial(_compile_union, work, provider))


def _compile_union(work: KernelNeeds, provider: str) -> None:
    """Bound the union of the agents of a tiny problem; again, because the first time ends while it is compiled."""
    from dmcmc.anytime.union.union_agent import UnionAgent
    from dmcmc.solving.planning.plan import prepare

    setup = prepare(_tiny_problem_of(work), settings({}), World())
    for _ in range(2):
        UnionAgent(setup, provider, lambda: None, common.SLICE_SECONDS)
    if "mini-bucket" in provider:
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


def request_when_planned(
    kernels: "KernelSupply", world: World, solve_tiny: SolveTiny, can_end_early: bool
) -> Callable[["Setup"], None]:
    """Return a function that requests the kernels of a plan at its first call; all ranks call it.

    A run without a time budget does not know of them: it compiles what it calls, unless another process was faster.

    Parameters
    ----------
    kernels
        The kernels that are compiled.
    world
        The ranks.
    solve_tiny
        Solves a tiny problem in the way of the run; see :func:`.agent_work`.
    can_end_early
        Whether the run may be asked to end: work with a deadline has other kernels.
    """
    called = False

    def planned(setup: "Setup") -> None:
        nonlocal called
        if called:  # the plan may change while tables are made
            return
        called = True
        find = partial(agent_work, setup, "deadline" if can_end_early else "none", solve_tiny)
        needed = world.on_first_rank(find)
        kernels.request(*needed.tables)
        if not setup.will_prove and setup.config.local_search != "none":
            kernels.request(*world.on_first_rank(partial(SearchComponents.of, setup)))
        kernels.request(*chain.from_iterable(for_improvers(setup, needed).values()))

    return planned
