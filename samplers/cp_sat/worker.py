"""The functions of CP-SAT's search process (``dmcmc.samplers.external.worker``): build a model, and search it.

The process prints ``solution`` and the values of all variables, ``bound`` and a lower bound on the cost, and
``complete`` when the search has proven its result.

The model is built by ``tables.py`` and ``global_constraints.py``. If it has large sets of literals of which at most one
is true, its linear relaxation is tight and is solved first (``linear_relaxation.py``): it gives a bound, and the values
with the smallest reduced costs, among which a first search looks for good assignments.
"""

from math import floor
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.contract import tuning
from dmcmc.samplers.cp_sat.cost_model import CpSatModel, ModelVariables
from dmcmc.samplers.cp_sat.global_constraints import add_constraints
from dmcmc.samplers.cp_sat.linear_relaxation import LinearRelaxation, solve_relaxation
from dmcmc.samplers.cp_sat.tables import add_cost_functions
from dmcmc.samplers.external import problem_arrays

_ROUNDING = 1e-6  # CP-SAT's bound is an integer in floating point

_Array = NDArray[Any]


def prepare() -> None:
    """Import CP-SAT."""
    import ortools.sat.python.cp_model  # noqa: F401


def search(job: dict[str, Any], arrays: dict[str, _Array]) -> None:
    """Search one problem and print what is found.

    Parameters
    ----------
    job : dict
        ``top``: the cost to beat; ``seconds``: the time limit; ``workers``: number of workers; ``hint``: an assignment,
        or None.
    arrays : dict of ndarray
        The arrays of ``CostProblem.save``.
    """
    from ortools.sat.python import cp_model

    model = CpSatModel(cp_model, arrays["domains"].tolist(), int(arrays["top"]))
    add_cost_functions(model, arrays)
    add_constraints(model, problem_arrays.constraints(arrays))
    arrays.clear()
    hint, variables = job["hint"], model.variables
    # With a hint, assignments that are as good as the known one are allowed: the hint is a first solution.
    unweighted = model.cost.minimise(job["top"] if hint is not None else job["top"] - 1)
    variables.hint(hint or [])
    found: list[list[int]] = []

    class Solutions(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            found[:] = [variables.values(self.value)]
            print("solution", *found[0], flush=True)

    def solver(seconds: float) -> Any:
        """Return a solver with a time limit."""
        made = cp_model.CpSolver()
        made.parameters.num_workers = job["workers"]
        made.parameters.random_seed = 1
        made.parameters.max_time_in_seconds = seconds
        # A tenth of the default: the first solution of schedules with 25,000 variables came 25 s earlier.
        made.parameters.probing_deterministic_time_limit = 0.1
        if unweighted:  # a core-guided search, which needs no linear relaxation
            made.parameters.optimize_with_core = True
            made.parameters.linearization_level = 0
        elif model.has_cliques:  # their relaxation is tight, and probing all literals takes longer than solving it
            made.parameters.linearization_level = 2
            made.parameters.cp_model_probing_level = 0
        return made

    until = perf_counter() + job["seconds"]
    if model.has_cliques and not unweighted:
        relaxation = solve_relaxation(model.cp, tuning.MAIN_SHARE * job["seconds"])
        if relaxation is not None:
            print("bound", relaxation.bound, flush=True)
            seconds = tuning.FIRST_SHARE * (until - perf_counter())
            solver(seconds).solve(_restricted(variables, relaxation, hint), Solutions())
            if found:
                variables.hint(found[0])
    final = solver(max(0.0, until - perf_counter()))
    final.best_bound_callback = lambda bound: print("bound", floor(bound + _ROUNDING), flush=True)
    status = final.solve(model.cp, Solutions())
    if status in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
        print("complete")


def _restricted(variables: ModelVariables, relaxation: LinearRelaxation, hint: list[int] | None) -> Any:
    """Return the model with only those values that a linear relaxation uses, or that cost least in addition.

    The values of the hint stay possible. Good assignments are found much sooner among few values (relaxation
    enforced neighbourhood search: Berthold, *Computational Optimization and Applications* 58, 2014).
    """
    literals = [
        (v, a, literal)
        for v, own in enumerate(variables.literals_of)
        if own is not None and len(variables.allowed[v]) > 2
        for a, literal in enumerate(own)
        if a in variables.allowed[v]
    ]
    indices = [literal.index for _, _, literal in literals]
    reduced = relaxation.reduced_costs[indices]
    kept = (relaxation.values[indices] > 0) | (reduced <= np.quantile(reduced, tuning.PREFERRED_PART))
    model = variables.cp.clone()
    for (v, a, literal), keep in zip(literals, kept.tolist(), strict=True):
        if not keep and (hint is None or hint[v] != a):
            model.add_bool_and(model.get_bool_var_from_proto_index(literal.index).negated())
    return model
