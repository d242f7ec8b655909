"""Mini-bucket elimination of a whole problem: an assignment and a proven bound, whoever owns the variables.

The elimination is exact unless the settings or the memory ask for mini-buckets. A search starts from its assignment.
"""

import time
from dataclasses import replace
from functools import partial

import numpy as np

from dmcmc.anytime.local_search import IncumbentSearch
from dmcmc.compilation.run_components import RunComponents
from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.slicing import split_memory
from dmcmc.inference.elimination.plan import EliminationQuery
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.exact_or_mini_buckets import RelaxedElimination, Resources, eliminate_within
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.tuning import LONG_BUDGET
from dmcmc.mpi.world import World
from dmcmc.results.outcome import BoundProof, judge
from dmcmc.results.result import AgentMetrics, Result, TracePoint
from dmcmc.results.stored_result import provenance
from dmcmc.solving.agent.bounds import largest_sum
from dmcmc.solving.observe import NoProgress, RunHandle
from dmcmc.solving.planning.combination_plan import relaxation_of
from dmcmc.solving.planning.divided_problem import DividedProblem, divide_problem, order_search_budget
from dmcmc.solving.rank_search import RankSearch, begin, take_start
from dmcmc.solving.tuning import SWEEPS


def eliminate_whole(parts: DividedProblem, stop: Deadline) -> RelaxedElimination:
    """Eliminate all variables."""
    dense, config, arithmetic = parts.problem, parts.config, parts.arithmetic
    backend = replace(Backend.of(config.device, cores()), stop=stop)
    tables = [arithmetic.encode(f) for f in dense.factors if f.scope]
    scopes = [t.scope for t in tables]
    seconds = config.budget.time
    order_budget = LONG_BUDGET if seconds is None else min(LONG_BUDGET, order_search_budget(seconds))
    order = best_order(scopes, dense.domains, range(dense.n_variables), budget=order_budget, stop=stop).variables
    stop.check()
    query = EliminationQuery(tables, dense.domains, order, (), arithmetic)
    shares = split_memory(config.budget.bytes, parts.original, parts.problem)
    resources = Resources(shares.work, backend, owner="the whole problem")
    return eliminate_within(query, relaxation_of(config.combine), resources)


def eliminate_and_decode(parts: DividedProblem, search: IncumbentSearch, stop: Deadline) -> RelaxedElimination | None:
    """Eliminate all variables and record the decoded assignment; return None if the elimination was given up."""
    timed, elimination = parts.timed, None
    try:
        elimination = eliminate_whole(parts, stop)
        _decode(elimination, search, stop.left if timed else None)
    except (OutOfTime, OutOfMemory) as error:
        if isinstance(error, OutOfMemory) and not timed:
            raise
        search.incumbent.give_up(error)
        if isinstance(error, OutOfMemory):
            search.use_remaining_time()
    return elimination


def proof_of(elimination: RelaxedElimination | None, parts: DividedProblem) -> BoundProof:
    """Return the bound of the elimination, or the sum of all factors' largest entries if it was given up."""
    factors, arithmetic = [f for f in parts.problem.factors if f.scope], parts.arithmetic
    if elimination is None:
        return BoundProof([largest_sum(factors, arithmetic)], arithmetic, len(parts.problem.factors))
    return BoundProof([elimination.elimination.total()], arithmetic, len(parts.problem.factors), elimination.margin)


def _decode(elimination: RelaxedElimination, search: IncumbentSearch, seconds: float | None) -> None:
    """Record the elimination's assignment, and search for a better one if the elimination was not exact."""
    values = np.zeros(search.parts.problem.n_variables, dtype=np.int64)
    elimination.elimination.choose(values)
    search.make_1_optimal(values)
    if elimination.z is not None and seconds is None and not search.decodes_only:
        search.improve(None, SWEEPS)
    elif elimination.z is not None and seconds is not None:
        search.improve_while_it_pays(seconds)


def result_of(
    problem: Problem,
    parts: DividedProblem,
    search: RankSearch,
    elimination: RelaxedElimination | None,
    proof: BoundProof,
    start: float,
    late: bool,
) -> Result:
    """Return the result of an elimination of a problem with one agent.

    Parameters
    ----------
    problem
        The problem as given.
    parts
        The divided problem.
    search
        The search, which has the best assignment and the trace.
    elimination
        The elimination; None if it was given up.
    proof
        The bound.
    start
        When the run began (``time.perf_counter``).
    late
        Whether the elimination was given up, or the deadline is over.
    """
    outcome = judge(problem, search.quality, parts.division.constants, proof)
    seconds = time.perf_counter() - start
    method = (
        "given up" if elimination is None else "exact" if elimination.z is None else f"mini-bucket, z = {elimination.z}"
    )
    timed_out = late and outcome.status not in ("optimal", "infeasible")
    return Result(
        status="timeout" if timed_out else outcome.status,
        objective=outcome.objective,
        bound=outcome.bound,
        gap=outcome.gap,
        violation=outcome.violation,
        assignment=None if outcome.status == "infeasible" else problem.assignment(search.best[: problem.n_variables]),
        sense=problem.sense,
        time=seconds,
        simulated_time=seconds,
        agents=(_metrics(problem, elimination, seconds),),
        note=search.incumbent.note,
        trace=(*search.incumbent.trace, TracePoint(seconds, outcome.objective, outcome.bound)),
        provenance=provenance(
            parts.config,
            1,
            cores(),
            {"arithmetic": parts.arithmetic.dtype.name, "combine": {problem.agents[0]: method}},
            "cuda" if is_gpu_in_use() else "cpu",
        ),
    )


def _metrics(problem: Problem, elimination: RelaxedElimination | None, seconds: float) -> AgentMetrics:
    """Return the metrics of the one agent."""
    return AgentMetrics(
        name=problem.agents[0],
        method="exact" if elimination is not None and elimination.z is None else "mini-bucket",
        exact=elimination is not None and elimination.z is None,
        variables=problem.n_variables,
        interface=0,
        rows=1,
        cells=0 if elimination is None else elimination.elimination.plan.cells,
        time=seconds,
        z=None if elimination is None else elimination.z,
    )


def solve_single_agent(problem: Problem, config: Settings, ending: RunHandle | None = None) -> Result:
    """Eliminate all variables by ``combine`` and ``budget.memory``; the assignment is decoded and made 1-optimal.

    With a time budget the local search continues as long as it is worthwhile.

    Parameters
    ----------
    problem
        A problem with one agent.
    config
        Settings of the run. ``problem`` and ``local`` are not used, except ``local.bound: none``.
    ending
        Handle by which a caller that handles signals ends the run early.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory, or z is too small for them.
    """
    world, no_progress, ending = World(), NoProgress(), ending or RunHandle()
    start = time.perf_counter()
    parts = divide_problem(problem, config, world)
    with RunComponents(world, config, no_progress) as components:
        start += components.request(*(components.of_search(parts) or ()))
        until = float("inf") if config.budget.time is None else start + config.budget.time
        components.stop = stop = Deadline(until, cancellation=ending.cancellation)
        search = begin(parts, world, stop, start, no_progress, partial(IncumbentSearch, components=components))
        search.first()
        take_start(search)
        ending.best = search.best_so_far
        with ending.deliver_if_late(stop):
            elimination = eliminate_and_decode(parts, search, stop)
            proof = proof_of(elimination, parts)
    late = elimination is None or stop.over
    return result_of(problem, parts, search, elimination, proof, start, late)
