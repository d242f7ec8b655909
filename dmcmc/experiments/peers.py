"""Other programs that an experiment compares.

The interface of peers: other solvers that experiments compare dmcmc with.

OR-tools' CP-SAT as a peer: one table constraint per factor, with the cost in the last column.

pyDCOP's algorithms as peers: one agent and one thread per variable, in a separate process.

The registry of peers, by name.

toulbar2 as a peer: hybrid best-first branch and bound on the whole problem, on one core.
"""

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ResourceError, Unavailable
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.samplers.external.process import SearchProgress
from dmcmc.samplers.toulbar2.costs import CostProblem, costs_of
from dmcmc.samplers.toulbar2.process import Toulbar2Process
from dmcmc.samplers.toulbar2.whole_problem import costs_of_problem


class PeerAnswer(NamedTuple):
    """The answer of a peer.

    Attributes
    ----------
    values : (n,) int64 or None
        Value index of each variable; None without an assignment. The caller evaluates it.
    bound : number or None
        Proven bound in the problem's own sense.
    infeasible : bool
        Whether the peer proved that no assignment satisfies the hard constraints.
    time : float
        Wall-clock seconds of the solver itself, without converting the problem for it.
    trace : list of (float, number or None, number or None)
        Seconds, objective and bound at each improvement.
    """

    values: Ints | None
    bound: Number | None
    infeasible: bool
    time: float
    trace: list[tuple[float, Number | None, Number | None]]


class Peer(NamedTuple):
    """Another solver.

    Attributes
    ----------
    summary : str
        One line of description, for lists.
    solve : callable
        Called with the problem, the time limit in wall-clock seconds and the seed; returns a :class:`PeerAnswer`.
    """

    summary: str
    solve: Callable[[Problem, float, int], PeerAnswer]


_MAX_CP_SAT_BYTES = 2 << 30  # bytes of dense tables
_MAX_TUPLES = 20_000_000  # tuples of all table constraints; Python lists of more do not fit the memory


def solve_with_cp_sat(problem: Problem, seconds: float, seed: int) -> PeerAnswer:
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
    dense = densify(problem, _MAX_CP_SAT_BYTES).problem
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


_MAX_PYDCOP_BYTES = 2 << 30  # bytes of the problem's cost tables
_OVERHEAD_SECONDS = 60.0  # for pyDCOP to start and to end, in addition to the time limit
_SCRIPT = Path(__file__).with_name("pydcop_process.py")


def solver_of(algorithm: str) -> Callable[[Problem, float, int], PeerAnswer]:
    """Return a solver for one of pyDCOP's algorithms (``dsa``, ``mgm``, ``mgm2``)."""

    def solve(problem: Problem, seconds: float, seed: int) -> PeerAnswer:
        """Run pyDCOP until the time limit; it gives no bounds and no trace.

        Raises
        ------
        Unavailable
            If pyDCOP is not installed or fails.
        ResourceError
            If it does not end after the time limit.
        """
        if find_spec("pydcop") is None:
            raise Unavailable(f"peer pydcop-{algorithm}: pyDCOP is not installed; pip install 'dmcmc[pydcop]'")
        dense = densify(problem, _MAX_PYDCOP_BYTES).problem
        costs = costs_of([f.scope for f in dense.factors], [f.table for f in dense.factors], dense.domains)
        if not costs.feasible:
            return PeerAnswer(None, None, True, 0.0, [])
        tables = [(list(map(int, scope)), table) for scope, table in zip(costs.scopes, costs.costs, strict=True)]
        cost_tables = [
            (scope, table.reshape([int(costs.domains[v]) for v in scope]).tolist()) for scope, table in tables
        ]
        request = {"domains": costs.domains.tolist(), "tables": cost_tables, "algorithm": algorithm, "seconds": seconds}
        begun = time.perf_counter()
        try:
            process = subprocess.run(
                [sys.executable, "-P", str(_SCRIPT)],  # -P: otherwise ``import pydcop`` would find this file
                input=json.dumps(request | {"seed": seed}) + "\n",
                capture_output=True,
                text=True,
                timeout=seconds + _OVERHEAD_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise ResourceError(
                f"peer pydcop-{algorithm}: did not end within {_OVERHEAD_SECONDS:g} s after its time limit"
            ) from None
        solver_seconds = time.perf_counter() - begun
        if process.returncode or not process.stdout:
            reason = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            raise Unavailable(f"peer pydcop-{algorithm}: pyDCOP failed: {reason}")
        values = json.loads(process.stdout)
        assignment = None if values is None else np.array(values[: problem.n_variables], dtype=np.int64)
        return PeerAnswer(assignment, None, False, solver_seconds, [])

    return solve


_MAX_TOULBAR2_BYTES = 4 << 30  # bytes of the problem's cost tables
_POLL_SECONDS = 0.005  # between two checks of the search


def solve_with_toulbar2(problem: Problem, seconds: float, seed: int) -> PeerAnswer:
    """Search until the time limit; the seed is not used.

    Raises
    ------
    Unavailable
        If pytoulbar2 is not installed.
    """
    costs = costs_of_problem(problem, _MAX_TOULBAR2_BYTES)
    if not costs.feasible:
        return PeerAnswer(None, None, True, 0.0, [])
    trace = list[tuple[float, Number | None, Number | None]]()
    with Toulbar2Process() as solver:
        begun = time.perf_counter()
        progress = solver.start(costs, None, seconds)
        last_values: object = None
        while True:
            ended = progress.ended or time.perf_counter() - begun > seconds
            now = time.perf_counter() - begun
            if progress.values is not last_values:
                last_values = progress.values
                trace.append((now, _objective(problem, progress), None))
            if ended:
                break
            time.sleep(_POLL_SECONDS)
        solver_seconds = time.perf_counter() - begun
    values = None if progress.values is None else progress.values[: problem.n_variables]
    bound = _bound(problem, costs, progress)
    return PeerAnswer(values, bound, progress.complete and values is None, solver_seconds, trace)


def _objective(problem: Problem, progress: SearchProgress) -> Number | None:
    """Return the objective of the best assignment; None if it breaks a hard constraint."""
    assert progress.values is not None
    evaluation = problem.evaluate(progress.values[: problem.n_variables])
    return None if evaluation.violation else evaluation.objective


def _bound(problem: Problem, costs: CostProblem, progress: SearchProgress) -> Number | None:
    """Return the proven bound in the problem's own sense; None if the search proved infeasibility."""
    if progress.complete:
        if progress.values is None:
            return None
        return problem.to_own_sense(costs.bound(costs.of(progress.values)))
    return problem.to_own_sense(costs.bound(progress.lower))


_PYDCOP = ("dsa", "mgm", "mgm2")
PEERS = {
    "toulbar2": Peer("hybrid best-first search (extra: toulbar2)", solve_with_toulbar2),
    "cp-sat": Peer("OR-tools' CP-SAT, one worker (extra: peers)", solve_with_cp_sat),
    **{f"pydcop-{name}": Peer(f"pyDCOP's {name.upper()} (extra: pydcop)", solver_of(name)) for name in _PYDCOP},
}
