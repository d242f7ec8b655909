"""The result of an elimination of a whole problem."""

import time

from dmcmc.inference.execution.exact_or_mini_buckets import RelaxedElimination
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.inference.runtime.threads import cores
from dmcmc.results.outcome import BoundProof, judge
from dmcmc.results.result import AgentMetrics, Result, TracePoint
from dmcmc.results.stored_result import provenance
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.rank_search import RankSearch


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
