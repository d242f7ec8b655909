"""Compile what a run will use before its clock starts: the first time only.

Kernels are compiled by solving tiny problems, in three parts: what plans any run, what searches for its first
incumbent, and then, once it is known what the agents do, what they do it with.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.bounds.branch_and_bound.row_search import compile_branching
from dmcmc.inference.bounds.dual.rounding import compile_rounding
from dmcmc.inference.bounds.semidefinite.relaxation import compile_lift, suits
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.eliminate import compile_joins
from dmcmc.inference.minibuckets.moment_matching import compile_matching, with_headroom
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import STAKE, compile_search
from dmcmc.inference.orders.estimate_cost import AT_A_GLANCE, takes
from dmcmc.inference.orders.exact_order import FEW
from dmcmc.inference.orders.reorder_subtrees import compile_pieces
from dmcmc.inference.runtime.deadline import NO_STOP
from dmcmc.inference.sparse.function_filtering import compile_filtering
from dmcmc.mpi.world import World
from dmcmc.run.compilation import once_per_node
from dmcmc.run.compilation.tiny_problems import settings, tiny, with_a_list
from dmcmc.run.monitoring.progress import Progress
from dmcmc.run.planning.combination_plan import splits
from dmcmc.run.planning.divided_problem import Divided
from dmcmc.run.planning.plan import prepare
from dmcmc.run.planning.setup import Setup
from dmcmc.samplers import registry
from dmcmc.samplers.auto.rates import load_rates
from dmcmc.samplers.blocks.mini_bucket_starts import starts_of
from dmcmc.samplers.blocks.sweep_kernels import mobility
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.cpu.chain_kernels import compile_chains
from dmcmc.samplers.local_search.block_moves import BlockTurns, priced
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.model.chain_model import is_compact

Solve = Callable[[Problem, Settings], object]  # as the run itself: work that may be stopped has kernels of its own

_SWEEPS = 200  # of a tiny search
_TURN = 0.001  # seconds of chains that earn block moves a turn


def warm_up_planning(problem: Problem | None, config: Settings, world: World, progress: Progress) -> None:
    """Compile what prepares any run, and load it; the problem may be None on other ranks than the first."""

    def work() -> None:
        prepare(tiny(np.dtype(np.int32)), settings({"method": config.local.method}), World())

    once_per_node.load("planning", work, world, progress)
    timed = config.budget.time is not None
    if world.decided(lambda: problem is not None and _searches(problem, timed)):
        once_per_node.load("order search", compile_search, world, progress)


def warm_up_weighing(config: Settings, world: World, progress: Progress) -> float:
    """Compile what weighs eliminations against the time budget, and load it; return the seconds that this took.

    This machine is measured where ``auto`` asks for it.
    """
    start = time.perf_counter()
    if config.local.method == "auto":
        once_per_node.load("rates", _measure, world, progress)
    return time.perf_counter() - start


def _measure() -> None:
    load_rates()


def _searches(problem: Problem, timed: bool) -> bool:
    """Return whether orders will be searched for at once: fewer variables have exact ones, which need no kernels.

    With a time budget nothing may be compiled where a problem is looked at to be reduced.
    """
    own = np.bincount(problem.owner, minlength=1).max()
    return problem.n_variables > FEW and (
        bool(max(own, problem.n_agents) > FEW) or (timed and problem.n_variables > AT_A_GLANCE)
    )


def warm_up_orders(parts: Divided, world: World, progress: Progress) -> float:
    """Compile what orders of large plans are searched with, where there are any; return the seconds that this took."""

    def large(local: LocalProblem) -> bool:
        if len(local.hidden) <= FEW:
            return False
        scopes = [f.scope for f in local.factors]
        return takes(scopes, local.domains, local.hidden, local.interface, STAKE)

    def plans() -> bool:
        whole = parts.problem
        everyone = [factor.scope for factor in whole.factors], whole.domains, range(whole.n_variables), ()
        return parts.config.local.method in ("auto", "exact") and (
            any(map(large, parts.division.locals)) or (whole.n_variables > FEW and takes(*everyone, STAKE))
        )

    start = time.perf_counter()
    if world.decided(plans):
        once_per_node.once("orders", compile_pieces, world, progress)
    return time.perf_counter() - start


def warm_up_search(parts: Divided, world: World, progress: Progress) -> float:
    """Compile what finds and polishes the first incumbent, and load it: that takes longer than to find one.

    Returns
    -------
    float
        The seconds that this took.
    """
    start = time.perf_counter()
    dtype, dense = world.decided(lambda: (parts.problem.flat.data.dtype, parts.original.dense))

    def work() -> None:
        _tiny_search(dtype, dense, compact=True).first()

    once_per_node.load(f"search {dtype} {dense}", work, world, progress)
    return time.perf_counter() - start


def warm_up_chains(parts: Divided, world: World, progress: Progress) -> float:
    """Compile what looks for better assignments than the first, and load it; return the seconds that this took."""
    start, what = time.perf_counter(), world.decided(lambda: _kinds_of(parts))

    def work() -> None:
        search = _tiny_search(*what)
        first = search.first()
        search.improve(first, None, _SWEEPS)
        values, turns = first[: search.original.n_variables], BlockTurns(search.ascent.graph, 0, 1)
        turns.earn(_TURN, gained=False)  # without anything to do they would not anneal
        turns.turn(values, timed=False, stop=NO_STOP)
        mobility(priced(search.ascent.graph), values, 1.0)
        starts = starts_of(priced(search.ascent.graph), np.arange(values.size), values, np.zeros(2, np.uint64), NO_STOP)
        if starts is not None:
            starts.draw(0, 1)
            compile_matching(np.dtype(np.int64))  # that of larger problems has large buckets

    if parts.problem.n_variables > FEW:  # blocks of a problem's variables follow an order
        once_per_node.load("order search", compile_search, world, progress)
    once_per_node.load(f"chains {' '.join(map(str, what))}", work, world, progress)
    return time.perf_counter() - start


def warm_up_branching(world: World, progress: Progress) -> float:
    """Compile branch and bound, and load it; return the seconds that this took."""
    from dmcmc.samplers.branch_and_bound.engine import compile_search as compile_branching

    start = time.perf_counter()
    once_per_node.load("branching", compile_branching, world, progress)
    return time.perf_counter() - start


def tiny_search_for(parts: Divided) -> LocalSearch:
    """Return a search of a tiny problem that uses the same kernels as that of a problem."""
    return _tiny_search(*_kinds_of(parts))


def _kinds_of(parts: Divided) -> tuple[np.dtype[Any], bool, bool]:
    """Return what kernels of a search depend on: numbers, whether all is dense, and whether columns are compact."""
    flat, dense = parts.problem.flat, parts.original.dense
    return flat.data.dtype, dense, dense and is_compact(flat, parts.problem.n_variables)


def _tiny_search(dtype: np.dtype[Any], dense: bool, compact: bool) -> LocalSearch:
    """Return a search of a tiny problem that uses the same kernels."""
    problem = tiny(np.dtype(np.int32), [dtype], hard=not compact)
    return LocalSearch(problem if dense else with_a_list(problem), problem, 0, 1, NO_STOP)


class _Needs(NamedTuple):
    """What the agents of a setup use: local solvers, bounds, numbers of tables; and a name for all of it."""

    methods: list[str]
    providers: list[str]
    tables: list[np.dtype[Any]]
    listed: bool
    wide: bool
    compact: bool
    lifted: bool
    name: str


def _needs_of(setup: Setup, stoppable: bool) -> _Needs:
    """Return what the agents of a setup use, now and later."""
    factors, polish = setup.problem.factors, setup.config.polish
    tables = setup.problem.known.once("numbers", lambda: tuple(sorted({f.table.dtype for f in factors}, key=str)))
    return setup.facts.once(("needs", stoppable, polish, tables), lambda: _needs(setup, stoppable, tables))


def _needs(setup: Setup, stoppable: bool, numbers: Sequence[np.dtype[Any]]) -> _Needs:
    choices = [choice for _, choice in setup.possible(range(setup.problem.n_agents))]
    methods = {choice.method for choice in choices}
    providers = {choice.bound for choice in choices} - {"none"}
    budget = setup.config.budget.time
    if any(setup.exact_price(agent) is not None for agent in range(setup.problem.n_agents)):  # later, if there is time
        methods.add("exact")
    combine, polish = setup.config.combine, setup.config.polish
    listed = any(setup.listed)
    wide = listed or bool(setup.problem.domains.max(initial=0) > 256)  # lists of rows have more, the tiny ones not
    tables = list(numbers) or [np.dtype(np.int32)]
    what = [
        *sorted(map(_kernel, methods)), *sorted(providers),
        splits(setup) and [combine.partition, combine.moment_matching], listed, wide, tables, setup.arithmetic.dtype,
        stoppable, *["plain"] * (polish == "none"), *["rows"] * bool(budget and providers),
    ]  # fmt: skip

    # Else chains have other columns. Where there are none, all tables need not be one array.
    compact = methods <= {"exact"} or is_compact(setup.problem.flat, setup.problem.n_variables)
    what += ["wide columns"] * (not compact)
    lifted = bool(budget and providers) and any(map(suits, setup.division.locals))
    what += ["lifted"] * lifted
    return _Needs(sorted(methods), sorted(providers), tables, listed, wide, compact, lifted, f"solving {what}")


def solving_is_compiled(setup: Setup, world: World, stoppable: bool) -> bool:
    """Return whether :func:`warm_up_solving` would find everything there; called by all ranks."""
    return not any(world.allgather(once_per_node.is_missing(_needs_of(setup, stoppable).name, world)))


def warm_up_solving(setup: Setup, world: World, progress: Progress, solve: Solve, stoppable: bool) -> float:
    """Compile what the agents of a setup use; return the seconds that this took.

    Parameters
    ----------
    solve
        Solves a tiny problem, and looks at a :class:`.Stop` or does not, as the run will.
    stoppable
        Whether it does.
    """
    start, needs = time.perf_counter(), _needs_of(setup, stoppable)
    methods, providers, listed, combine = needs.methods, needs.providers, needs.listed, setup.config.combine

    def work() -> None:
        problem = tiny(setup.arithmetic.dtype, needs.tables, needs.wide, inside=not needs.compact)
        for method in methods:
            for bound in providers if method != "exact" and providers else ["none"]:
                local: dict[str, Any] = {"method": method, "runs": 2, "samples": 20, "bound": bound}
                local |= {"rows": 2} if listed and method != "exact" else {}
                solve(problem, settings(local, polish=setup.config.polish))
        if splits(setup):
            options = {"method": "mini-bucket", "z": 1, "partition": combine.partition}
            solve(problem, settings({"method": "exact"}, options | {"moment_matching": combine.moment_matching}))
            if combine.moment_matching:
                compile_matching(setup.arithmetic.dtype)  # of large buckets, too
        compile_joins(setup.arithmetic)
        if setup.timed and providers:  # the search begins at what bounds say is good
            compile_rounding()
            compile_branching()
        if needs.lifted:
            compile_lift()
        if any("mini-bucket" in one for one in providers):  # the buckets of larger agents are split
            compile_matching(np.dtype(np.int64))

    once_per_node.once(needs.name, work, world, progress)
    return time.perf_counter() - start


def warm_up_undivided(parts: Divided, world: World, progress: Progress, eliminate: Solve) -> float:
    """Compile what eliminates a whole problem with mini-buckets; return the seconds that this took.

    Parameters
    ----------
    eliminate
        Eliminates a tiny problem, as the run will.
    """
    start, combine, dtype = time.perf_counter(), parts.config.combine, parts.arithmetic.dtype

    def work() -> None:
        options = {"method": "mini-bucket", "z": 2, "partition": combine.partition}
        matched = options | {"moment_matching": combine.moment_matching}
        eliminate(tiny(dtype, [dtype]), settings({}, matched))
        if combine.moment_matching:
            compile_matching(dtype)

    if combine.method != "exact":
        once_per_node.once(f"undivided {dtype} {combine.partition} {combine.moment_matching}", work, world, progress)
    return time.perf_counter() - start


def warm_up_filtering(setup: Setup, world: World, progress: Progress) -> float:
    """Compile eliminations that filter, if an agent may have one; return the seconds that this took."""
    start, arithmetic = time.perf_counter(), setup.arithmetic
    if any(map(setup.filters, range(setup.problem.n_agents))):
        what = f"filtering {with_headroom(arithmetic).dtype}"
        once_per_node.once(what, partial(compile_filtering, arithmetic), world, progress)
    return time.perf_counter() - start


def _kernel(method: str) -> str:
    """Return a name for a local solver that changes with its sources."""
    solver = registry.get(method)
    return compile_chains(solver.sampler).__name__ if isinstance(solver, ChainSolver) else method
