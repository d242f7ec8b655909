"""Mini-bucket elimination of a whole problem: an assignment and a proven bound, whoever owns the variables."""

import time

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.relaxation import Relaxed, Resources, eliminate_within
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import SEARCH_LONG, best_order
from dmcmc.inference.runtime.device import opened
from dmcmc.inference.runtime.threads import cores
from dmcmc.results.outcome import Proof, judge, worth_of
from dmcmc.results.provenance import provenance
from dmcmc.results.result import AgentMetrics, Result, TracePoint
from dmcmc.run.combination import arithmetic_for, relaxation_of


def solve_single_agent(problem: Problem, config: Settings) -> Result:
    """Eliminate all variables as ``combine`` and ``budget.memory`` say; the assignment comes from VALUE.

    Parameters
    ----------
    problem
        With one agent.
    config
        How; ``problem`` and ``local`` are not looked at.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory, or z is too small for them.
    """
    start = time.perf_counter()
    dense = densify(problem, config.budget.bytes).problem
    arithmetic, backend = arithmetic_for(dense, config.combine), Backend.of(config.device, cores())
    constants = tuple(f for f in dense.factors if not f.scope)
    tables = [arithmetic.encode(f) for f in dense.factors if f.scope]
    scopes = [t.scope for t in tables]
    order = best_order(scopes, dense.domains, range(dense.n_variables), budget=SEARCH_LONG).variables
    query = Query(tables, dense.domains, order, (), arithmetic)
    resources = Resources(config.budget.bytes, backend, user="the whole problem")
    found = eliminate_within(query, relaxation_of(config.combine), resources)
    done, values = found.elimination, np.zeros(dense.n_variables, dtype=np.int64)
    done.choose(values)
    own = values[: problem.n_variables]
    proof = Proof([done.total()], arithmetic, len(dense.factors), found.margin)
    outcome = judge(problem, worth_of(problem, own), constants, proof)
    seconds = time.perf_counter() - start
    how = "exact" if found.z is None else f"mini-bucket, z = {found.z}"
    return Result(
        status=outcome.status,
        objective=outcome.objective,
        bound=outcome.bound,
        gap=outcome.gap,
        violation=outcome.violation,
        assignment=None if outcome.status == "infeasible" else problem.assignment(own),
        sense=problem.sense,
        time=seconds,
        simulated_time=seconds,
        agents=(_metrics(problem, found, seconds),),
        trace=(TracePoint(seconds, outcome.objective, outcome.bound),),
        provenance=provenance(
            config,
            1,
            backend.threads,
            {"arithmetic": arithmetic.dtype.name, "combine": {problem.agents[0]: how}},
            "cuda" if opened() else "cpu",
        ),
    )


def _metrics(problem: Problem, found: Relaxed, seconds: float) -> AgentMetrics:
    """Return what the one agent did."""
    return AgentMetrics(
        name=problem.agents[0],
        method="exact" if found.z is None else "mini-bucket",
        exact=found.z is None,
        variables=problem.n_variables,
        interface=0,
        rows=1,
        cells=found.elimination.plan.cells,
        time=seconds,
        z=found.z,
    )
