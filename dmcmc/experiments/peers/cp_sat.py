"""OR-tools' CP-SAT as a peer: one table constraint per factor, with the cost in the last column."""

import importlib
import time
from typing import Any

import numpy as np

from dmcmc.experiments.peers.contract import PeerAnswer
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ResourceError, Unavailable
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.samplers.toulbar2.costs import CostProblem, costs_of

_MAX_TABLE_BYTES = 2 << 30  # bytes of dense tables
_MAX_TUPLES = 20_000_000  # tuples of all table constraints; Python lists of more do not fit the memory


def solve(problem: Problem, seconds: float, seed: int) -> PeerAnswer:
    """Search with one worker until the time limit.

    Raises
    ------
    Unavailable
        If OR-tools is not installed.
    ResourceError
        If the table constraints have too many tuples.
    """
    try:
        cp_model = importlib.import_module("ortools.sat.python.cp_model")
    except ImportError:
        raise Unavailable("peer cp-sat: OR-tools is not installed; pip install 'dmcmc[peers]'") from None
    dense = densify(problem, _MAX_TABLE_BYTES).problem
    if sum(f.table.size for f in dense.factors) > _MAX_TUPLES:
        raise ResourceError(f"peer cp-sat: more than {_MAX_TUPLES:,} tuples")
    costs = costs_of([f.scope for f in dense.factors], [f.table for f in dense.factors], dense.domains)
    if not costs.feasible:
        return PeerAnswer(None, None, True, 0.0, [])
    model, variables = _model(cp_model, costs)
    trace = list[tuple[float, Number | None, Number | None]]()
    n = problem.n_variables  # the dense problem may have further variables, for the states of automata, at the end

    class SolutionCallback(cp_model.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
        def on_solution_callback(self) -> None:
            values = np.array([self.value(v) for v in variables], dtype=np.int64)
            evaluation = problem.evaluate(values[:n])
            trace.append((time.perf_counter() - begun, None if evaluation.violation else evaluation.objective, None))

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed % (1 << 31)  # the parameter is an int32
    solver.parameters.max_time_in_seconds = seconds
    begun = time.perf_counter()
    status = solver.solve(model, SolutionCallback())
    solver_seconds = time.perf_counter() - begun
    has_solution = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    values: Ints | None = np.array([solver.value(v) for v in variables], dtype=np.int64)[:n] if has_solution else None
    infeasible = status == cp_model.INFEASIBLE
    # Costs are integers; 1e-6 covers the rounding of the solver's floating-point bound.
    bound = None if infeasible else problem.to_own_sense(costs.bound(int(np.floor(solver.best_objective_bound + 1e-6))))
    return PeerAnswer(values, bound, infeasible, solver_seconds, trace)


def _model(cp_model: Any, costs: CostProblem) -> tuple[Any, list[Any]]:
    """Return the model and its variables: one table constraint per factor, without forbidden tuples."""
    model = cp_model.CpModel()
    variables = [model.new_int_var(0, size - 1, f"x{v}") for v, size in enumerate(costs.domains.tolist())]
    terms = []
    for i, (scope, cost) in enumerate(zip(costs.scopes, costs.costs, strict=True)):
        allowed = np.flatnonzero(cost < costs.top)
        values = np.stack(np.unravel_index(allowed, tuple(costs.domains[scope])), axis=1)
        tuples = np.column_stack([values, cost[allowed]]).tolist()
        factor_cost = model.new_int_var(0, int(cost[allowed].max(initial=0)), f"c{i}")
        model.add_allowed_assignments([*(variables[v] for v in scope), factor_cost], tuples)
        terms.append(factor_cost)
    model.minimize(sum(terms))
    return model, variables
