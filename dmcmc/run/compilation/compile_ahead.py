"""Compile the kernels that a run will use before its clock starts; this takes time only once per machine.

Kernels are compiled by solving tiny problems that call them, as tasks of ``once_per_node``: what plans any run,
what finds its first incumbent, and, once the plan is known, what the agents do. ``dmcmc.run.solve`` calls these
functions on all ranks. Each returns the seconds that it took, which do not count as run time.

The columns of utilities that chains read are *compact* if 16-bit numbers hold them. A *listed* agent samples a list
of its rows (assignments of its boundary variables) only.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.bounds.branch_and_bound.row_search import compile_boundary_search
from dmcmc.inference.bounds.dual.rounding import compile_rounding
from dmcmc.inference.bounds.semidefinite.relaxation import compile_relaxation, is_suitable
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.eliminate import compile_joins
from dmcmc.inference.minibuckets.moment_matching import compile_matching, with_headroom
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import MIN_REORDERED_CELLS, compile_search
from dmcmc.inference.orders.estimate_cost import MAX_BITSET_VARIABLES, MAX_INTERPRETED_VARIABLES, joins_at_least
from dmcmc.inference.orders.exact_order import MAX_EXACT_VARIABLES
from dmcmc.inference.orders.reorder_subtrees import compile_subtree_search
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.sparse.function_filtering import compile_filtering
from dmcmc.mpi.world import World
from dmcmc.run.compilation import once_per_node
from dmcmc.run.compilation.tiny_problems import settings, tiny_problem, with_sparse_factor
from dmcmc.run.monitoring.progress import ProgressReporter
from dmcmc.run.planning.combination_plan import may_split_buckets
from dmcmc.run.planning.divided_problem import DividedProblem
from dmcmc.run.planning.plan import prepare
from dmcmc.run.planning.setup import Setup
from dmcmc.samplers import registry
from dmcmc.samplers.auto.rates import load_rates
from dmcmc.samplers.blocks.mini_bucket_starts import starts_of
from dmcmc.samplers.blocks.sweep_kernels import mobility
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.cpu.chain_kernels import compile_chains
from dmcmc.samplers.local_search.block_moves import BlockMoves, penalised_graph
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.model.chain_model import is_compact

Solve = Callable[[Problem, Settings], object]  # solves as the run does: work with a deadline has other kernels

_TINY_SWEEPS = 200  # sweeps of a tiny search
_TINY_CHAIN_SECONDS = 0.001  # seconds of chains after which block moves get their turn


def compile_planning(problem: Problem | None, config: Settings, world: World, progress: ProgressReporter) -> None:
    """Compile and load the kernels that plan any run; the problem may be None on other ranks than 0."""

    def work() -> None:
        prepare(tiny_problem(np.dtype(np.int32)), settings({"method": config.local.method}), World())

    once_per_node.compile_and_load("planning", work, world, progress)
    timed = config.budget.time is not None
    if world.on_first_rank(lambda: problem is not None and _searches_orders(problem, timed)):
        once_per_node.compile_and_load("order search", compile_search, world, progress)


def measure_rates(config: Settings, world: World, progress: ProgressReporter) -> float:
    """Compile and load the kernels that measure this machine, if ``local.method`` is ``auto``; return the seconds.

    The measured rates decide which eliminations fit the time budget.
    """
    start = time.perf_counter()
    if config.local.method == "auto":
        once_per_node.compile_and_load("rates", _measure, world, progress)
    return time.perf_counter() - start


def _measure() -> None:
    """Measure or load this machine's rates."""
    load_rates()


def _searches_orders(problem: Problem, timed: bool) -> bool:
    """Return whether elimination orders will be searched at once.

    Up to ``MAX_EXACT_VARIABLES`` variables have exact orders, which need no kernels. With a time budget, larger
    problems also need them for the decision whether to presolve.
    """
    largest_agent = np.bincount(problem.owner, minlength=1).max()
    return problem.n_variables > MAX_EXACT_VARIABLES and (
        bool(max(largest_agent, problem.n_agents) > MAX_EXACT_VARIABLES)
        or (timed and problem.n_variables > MAX_INTERPRETED_VARIABLES)
    )


def compile_orders(parts: DividedProblem, world: World, progress: ProgressReporter) -> float:
    """Compile the kernels that search the orders of large plans, if there are any; return the seconds.

    They are compiled for all very large problems, because an estimate would take seconds. Only the compilation counts
    in the seconds that are returned.
    """

    def large(local: LocalProblem) -> bool:
        if len(local.hidden) <= MAX_EXACT_VARIABLES:
            return False
        scopes = [f.scope for f in local.factors]
        return joins_at_least(scopes, local.domains, local.hidden, local.interface, MIN_REORDERED_CELLS)

    def plans() -> bool:
        whole = parts.problem
        whole_problem = [factor.scope for factor in whole.factors], whole.domains, range(whole.n_variables), ()
        return parts.config.local.method in ("auto", "exact") and (
            any(map(large, parts.division.locals))
            or whole.n_variables > MAX_BITSET_VARIABLES
            or (whole.n_variables > MAX_EXACT_VARIABLES and joins_at_least(*whole_problem, MIN_REORDERED_CELLS))
        )

    is_needed = world.on_first_rank(plans)
    start = time.perf_counter()
    if is_needed:
        once_per_node.compile_once("orders", compile_subtree_search, world, progress)
    return time.perf_counter() - start


def compile_first_search(parts: DividedProblem, world: World, progress: ProgressReporter) -> float:
    """Compile and load the kernels that find the first incumbent and make answers 1-optimal; return the seconds."""
    return _compile_first(lambda: (parts.problem.flat.data.dtype, parts.original.dense), world, progress)


def compile_first_answer(problem: Problem | None, world: World, progress: ProgressReporter) -> float:
    """Compile and load the kernels for the first answer to the problem as given; return the seconds.

    The problem may be None on other ranks than 0.
    """

    def variant() -> tuple[np.dtype[Any], bool]:
        assert problem is not None
        dtypes = {part.dtype for factor in problem.factors for part in factor.arrays()[-1:]}
        return max(dtypes, key=lambda d: (d.kind == "f", d.itemsize), default=np.dtype(np.int32)), problem.dense

    return _compile_first(variant, world, progress)


def _compile_first(
    variant: Callable[[], tuple[np.dtype[Any], bool]], world: World, progress: ProgressReporter
) -> float:
    """Compile and load the kernels of a first search; ``variant`` returns their table type, and whether all are tables.

    Only the compilation counts in the seconds that are returned, not the search for the variant.
    """
    dtype, dense = world.on_first_rank(variant)
    start = time.perf_counter()

    def work() -> None:
        _tiny_search(dtype, dense, compact=True).first()

    once_per_node.compile_and_load(f"search {dtype} {dense}", work, world, progress)
    return time.perf_counter() - start


def compile_local_search(parts: DividedProblem, world: World, progress: ProgressReporter) -> float:
    """Compile and load the kernels that search for better assignments than the first; return the seconds."""
    start, variant = time.perf_counter(), world.on_first_rank(lambda: _kernel_variant(parts))

    def work() -> None:
        search = _tiny_search(*variant)
        first = search.first()
        search.improve(first, None, _TINY_SWEEPS)
        values, block_turns = first[: search.original.n_variables], BlockMoves(search.ascent.graph, 0, 1)
        block_turns.add_chain_time(_TINY_CHAIN_SECONDS, gained=False)  # without a turn they would not anneal
        block_turns.run(values, timed=False, stop=NO_DEADLINE)
        mobility(penalised_graph(search.ascent.graph), values, 1.0)
        starts = starts_of(
            penalised_graph(search.ascent.graph), np.arange(values.size), values, np.zeros(2, np.uint64), NO_DEADLINE
        )
        if starts is not None:
            starts.draw(0, 1)
            compile_matching(np.dtype(np.int64))  # larger problems have large buckets

    if parts.problem.n_variables > MAX_EXACT_VARIABLES:  # blocks of variables follow an order
        once_per_node.compile_and_load("order search", compile_search, world, progress)
    once_per_node.compile_and_load(f"chains {' '.join(map(str, variant))}", work, world, progress)
    return time.perf_counter() - start


def compile_branch_and_bound(world: World, progress: ProgressReporter) -> float:
    """Compile and load the kernels of branch and bound; return the seconds."""
    from dmcmc.samplers.branch_and_bound.engine import compile_search as compile_branching

    start = time.perf_counter()
    once_per_node.compile_and_load("branching", compile_branching, world, progress)
    return time.perf_counter() - start


def tiny_search_for(parts: DividedProblem) -> LocalSearch:
    """Return a search of a tiny problem that uses the same kernels as a search of the given problem."""
    return _tiny_search(*_kernel_variant(parts))


def _kernel_variant(parts: DividedProblem) -> tuple[np.dtype[Any], bool, bool]:
    """Return what a search's kernels depend on: table type, and whether factors are dense and columns compact."""
    flat, dense = parts.problem.flat, parts.original.dense
    return flat.data.dtype, dense, dense and is_compact(flat, parts.problem.n_variables)


def _tiny_search(dtype: np.dtype[Any], dense: bool, compact: bool) -> LocalSearch:
    """Return a search of a tiny problem with the given kernel variant."""
    problem = tiny_problem(np.dtype(np.int32), [dtype], hard=not compact)
    return LocalSearch(problem if dense else with_sparse_factor(problem), problem, 0, 1, NO_DEADLINE)


class _KernelNeeds(NamedTuple):
    """The methods and data types that the agents of a plan use, which determine the kernels to compile.

    Attributes
    ----------
    methods, providers : list of str
        Local solvers and bound providers.
    tables : list of dtype
        Number types of the problem's tables.
    listed : bool
        Whether an agent's table has a list of rows only.
    wide : bool
        Whether a domain has more than 256 values.
    compact : bool
        Whether the columns of the chains are compact.
    has_relaxation : bool
        Whether an agent may have a semidefinite relaxation.
    name : str
        Name of the compilation task, unique for the combination.
    """

    methods: list[str]
    providers: list[str]
    tables: list[np.dtype[Any]]
    listed: bool
    wide: bool
    compact: bool
    has_relaxation: bool
    name: str


def _kernel_needs_of(setup: Setup, stoppable: bool) -> _KernelNeeds:
    """Return the kernels that the agents of a plan use, now and later (cached)."""
    factors, local_search = setup.problem.factors, setup.config.local_search
    tables = setup.problem.facts.get_or_compute(
        "numbers", lambda: tuple(sorted({f.table.dtype for f in factors}, key=str))
    )
    return setup.facts.get_or_compute(
        ("needs", stoppable, local_search, tables), lambda: _find_kernel_needs(setup, stoppable, tables)
    )


def _find_kernel_needs(setup: Setup, stoppable: bool, numbers: Sequence[np.dtype[Any]]) -> _KernelNeeds:
    """Find the kernels that the agents of a plan use; ``numbers`` are the types of the problem's tables."""
    choices = [choice for _, choice in setup.possible_choices(range(setup.problem.n_agents))]
    methods = {choice.method for choice in choices}
    providers = {choice.bound for choice in choices} - {"none"}
    budget = setup.config.budget.time
    if any(setup.exact_seconds(agent) is not None for agent in range(setup.problem.n_agents)):
        methods.add("exact")  # proposed later, if there is time
    combine, local_search = setup.config.combine, setup.config.local_search
    listed = any(setup.listed_rows)
    # A list of rows has more values than a tiny problem's.
    wide = listed or bool(setup.problem.domains.max(initial=0) > 256)
    tables = list(numbers) or [np.dtype(np.int32)]
    task_parts = [
        *sorted(map(_kernel, methods)), *sorted(providers),
        may_split_buckets(setup) and [combine.partition, combine.moment_matching], listed, wide, tables,
        setup.arithmetic.dtype, stoppable, *["plain"] * (local_search == "none"),
        *["rows"] * bool(budget and providers),
    ]  # fmt: skip

    # Not compact: the chains have other columns. Without chains, the tables need not be one array.
    compact = methods <= {"exact"} or is_compact(setup.problem.flat, setup.problem.n_variables)
    task_parts += ["wide columns"] * (not compact)
    has_relaxation = bool(budget and providers) and any(map(is_suitable, setup.division.locals))
    task_parts += ["semidefinite"] * has_relaxation
    return _KernelNeeds(
        sorted(methods), sorted(providers), tables, listed, wide, compact, has_relaxation, f"solving {task_parts}"
    )


def solving_is_compiled(setup: Setup, world: World, stoppable: bool) -> bool:
    """Return whether :func:`compile_agent_work` would compile nothing; called by all ranks."""
    return not any(world.allgather(once_per_node.is_missing(_kernel_needs_of(setup, stoppable).name, world)))


def compile_agent_work(setup: Setup, world: World, progress: ProgressReporter, solve: Solve, stoppable: bool) -> float:
    """Compile the kernels that the agents of a plan use; return the seconds.

    Parameters
    ----------
    setup
        The plan.
    world
        The ranks.
    progress
        Receives the progress of the compilation.
    solve
        Solves a tiny problem in the way of the run: with or without a deadline.
    stoppable
        Whether the run has a deadline.
    """
    start, needs = time.perf_counter(), _kernel_needs_of(setup, stoppable)
    methods, providers, listed, combine = needs.methods, needs.providers, needs.listed, setup.config.combine

    def work() -> None:
        problem = tiny_problem(setup.arithmetic.dtype, needs.tables, needs.wide, inside=not needs.compact)
        for method in methods:
            for bound in providers if method != "exact" and providers else ["none"]:
                local: dict[str, Any] = {"method": method, "runs": 2, "samples": 20, "bound": bound}
                local |= {"rows": 2} if listed and method != "exact" else {}
                solve(problem, settings(local, local_search=setup.config.local_search))
        if may_split_buckets(setup):
            options = {"method": "mini-bucket", "z": 1, "partition": combine.partition}
            solve(problem, settings({"method": "exact"}, options | {"moment_matching": combine.moment_matching}))
            if combine.moment_matching:
                compile_matching(setup.arithmetic.dtype)  # also the kernels of large buckets
        compile_joins(setup.arithmetic)
        if setup.timed and providers:  # the search also starts from roundings of the bounds
            compile_rounding()
            compile_boundary_search()
        if needs.has_relaxation:
            compile_relaxation()
        if any("mini-bucket" in provider for provider in providers):  # larger agents have split buckets
            compile_matching(np.dtype(np.int64))

    once_per_node.compile_once(needs.name, work, world, progress)
    return time.perf_counter() - start


def compile_whole_problem(parts: DividedProblem, world: World, progress: ProgressReporter, eliminate: Solve) -> float:
    """Compile the kernels that eliminate a whole problem with mini-buckets; return the seconds.

    Parameters
    ----------
    parts
        The problem.
    world
        The ranks.
    progress
        Receives the progress of the compilation.
    eliminate
        Eliminates a tiny problem in the way of the run.
    """
    start, combine, dtype = time.perf_counter(), parts.config.combine, parts.arithmetic.dtype

    def work() -> None:
        options = {"method": "mini-bucket", "z": 2, "partition": combine.partition}
        matched = options | {"moment_matching": combine.moment_matching}
        eliminate(tiny_problem(dtype, [dtype]), settings({}, matched))
        if combine.moment_matching:
            compile_matching(dtype)

    if combine.method != "exact":
        once_per_node.compile_once(
            f"whole problem {dtype} {combine.partition} {combine.moment_matching}", work, world, progress
        )
    return time.perf_counter() - start


def compile_function_filtering(setup: Setup, world: World, progress: ProgressReporter) -> float:
    """Compile the kernels of function filtering, if an agent may use it; return the seconds."""
    start, arithmetic = time.perf_counter(), setup.arithmetic
    if any(map(setup.may_filter, range(setup.problem.n_agents))):
        task = f"filtering {with_headroom(arithmetic).dtype}"
        once_per_node.compile_once(task, partial(compile_filtering, arithmetic), world, progress)
    return time.perf_counter() - start


def _kernel(method: str) -> str:
    """Return a name for a local solver that changes with its source code."""
    solver = registry.get(method)
    return compile_chains(solver.sampler).__name__ if isinstance(solver, ChainSolver) else method
