"""Mini-bucket elimination of a whole problem: an assignment and a proven bound, whoever owns the variables."""

import time
from dataclasses import replace

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.memory_shares import shares_of
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxed, Resources, eliminate_within
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import SEARCH_LONG, best_order
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import opened
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.inference.runtime.threads import cores
from dmcmc.mpi.world import World
from dmcmc.results.outcome import Proof, judge
from dmcmc.results.provenance import provenance
from dmcmc.results.result import AgentMetrics, Result, TracePoint
from dmcmc.run.agent.uncombined_bound import largest_sum
from dmcmc.run.compilation.compile_ahead import warm_up_chains, warm_up_orders, warm_up_search, warm_up_undivided
from dmcmc.run.compilation.once_per_node import WARM_UP
from dmcmc.run.initial_incumbent import begin
from dmcmc.run.local_search import SWEEPS, Search
from dmcmc.run.monitoring.interrupt import Ending
from dmcmc.run.monitoring.progress import Silent
from dmcmc.run.planning.combination_plan import relaxation_of
from dmcmc.run.planning.divided_problem import Divided, divided, words_for


def solve_single_agent(problem: Problem, config: Settings, ending: Ending | None = None) -> Result:
    """Eliminate all variables as ``combine`` and ``budget.memory`` say; the assignment comes from VALUE, polished.

    With a time budget the search goes on as long as it pays.

    Parameters
    ----------
    problem
        With one agent.
    config
        How; ``problem`` and ``local`` are not looked at, but for a bound that is not wanted.
    ending
        How a caller that hears signals ends the run early.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory, or z is too small for them.
    """
    world, quiet, ending = World(), Silent(), ending or Ending()
    start = time.perf_counter()
    parts = divided(problem, config, world)
    start += warm_up_search(parts, world, quiet) + warm_up_chains(parts, world, quiet)
    start += warm_up_orders(parts, world, quiet) + warm_up_undivided(parts, world, quiet, _eliminate_tiny)
    stop = Stop(float("inf") if config.budget.time is None else start + config.budget.time, wish=ending.wish)
    search = begin(parts, world, stop, start, quiet)
    ending.best = search.best_so_far
    with ending.watched(stop):
        found = _answered(parts, search, stop)
        proof = _proof(found, parts)
    outcome = judge(problem, search.worth, parts.division.constants, proof)
    seconds = time.perf_counter() - start
    how = "given up" if found is None else "exact" if found.z is None else f"mini-bucket, z = {found.z}"
    over = (found is None or stop.over) and outcome.status not in ("optimal", "infeasible")
    return Result(
        status="timeout" if over else outcome.status,
        objective=outcome.objective,
        bound=outcome.bound,
        gap=outcome.gap,
        violation=outcome.violation,
        assignment=None if outcome.status == "infeasible" else problem.assignment(search.best[: problem.n_variables]),
        sense=problem.sense,
        time=seconds,
        simulated_time=seconds,
        agents=(_metrics(problem, found, seconds),),
        note=search.incumbent.note,
        trace=(*search.incumbent.trace, TracePoint(seconds, outcome.objective, outcome.bound)),
        provenance=provenance(
            config,
            1,
            cores(),
            {"arithmetic": parts.arithmetic.dtype.name, "combine": {problem.agents[0]: how}},
            "cuda" if opened() else "cpu",
        ),
    )


def _answered(parts: Divided, search: Search, stop: Stop) -> Relaxed | None:
    """Eliminate all variables and take the answer in; None where there is no time or, with a time budget, no room."""
    timed, found = parts.timed, None
    try:
        found = _eliminated(parts, stop)
        _decode(found, search, stop.left if timed else None)
    except (OutOfTime, OutOfMemory) as error:
        if isinstance(error, OutOfMemory) and not timed:
            raise
        search.incumbent.give_up(error)
        if isinstance(error, OutOfMemory):
            search.until_the_end()
    return found


def _proof(found: Relaxed | None, parts: Divided) -> Proof:
    """Return what is proven: by the elimination, or by the largest entries where there was no time for it."""
    factors, arithmetic = [f for f in parts.problem.factors if f.scope], parts.arithmetic
    if found is None:
        return Proof([largest_sum(factors, arithmetic)], arithmetic, len(parts.problem.factors))
    return Proof([found.elimination.total()], arithmetic, len(parts.problem.factors), found.margin)


def _decode(found: Relaxed, search: Search, seconds: float | None) -> None:
    """Take the elimination's assignment in, and look for a better one where that may not be the best."""
    values = np.zeros(search.parts.problem.n_variables, dtype=np.int64)
    found.elimination.choose(values)
    search.polish(values)
    if found.z is not None and seconds is None and not search.plain:
        search.improve(None, SWEEPS)
    elif found.z is not None and seconds is not None:
        search.improve_while_it_pays(seconds)


def _eliminated(parts: Divided, stop: Stop) -> Relaxed:
    """Eliminate all variables."""
    dense, config, arithmetic = parts.problem, parts.config, parts.arithmetic
    backend = replace(Backend.of(config.device, cores()), stop=stop)
    tables = [arithmetic.encode(f) for f in dense.factors if f.scope]
    scopes = [t.scope for t in tables]
    seconds = config.budget.time
    words = SEARCH_LONG if seconds is None else min(SEARCH_LONG, words_for(seconds))
    order = best_order(scopes, dense.domains, range(dense.n_variables), budget=words, stop=stop).variables
    stop.check()
    query = Query(tables, dense.domains, order, (), arithmetic)
    shares = shares_of(config.budget.bytes, parts.original, parts.problem)
    resources = Resources(shares.work, backend, user="the whole problem")
    return eliminate_within(query, relaxation_of(config.combine), resources)


def _eliminate_tiny(problem: Problem, config: Settings) -> None:
    """Do what a run does, with a problem that takes no time: its kernels are compiled then."""
    done = _eliminated(divided(problem, config, World()), Stop(time.perf_counter() + WARM_UP)).elimination
    done.choose(np.zeros(problem.n_variables, dtype=np.int64))


def _metrics(problem: Problem, found: Relaxed | None, seconds: float) -> AgentMetrics:
    """Return what the one agent did."""
    return AgentMetrics(
        name=problem.agents[0],
        method="exact" if found is not None and found.z is None else "mini-bucket",
        exact=found is not None and found.z is None,
        variables=problem.n_variables,
        interface=0,
        rows=1,
        cells=0 if found is None else found.elimination.plan.cells,
        time=seconds,
        z=None if found is None else found.z,
    )
