"""Solve the linear relaxation of a CP-SAT model: a lower bound on the cost, and the reduced cost of each variable.

CP-SAT's process imports this file; it imports no other module of dmcmc, so that the process starts fast.
"""

from collections.abc import Iterator
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.contract import tuning

_TOLERANCE = 1e-7  # relative error of the bound, which is a sum of doubles; far above that of the sum
_INFINITE = 2**62  # from which on a bound of a row is infinite

_Floats = NDArray[np.float64]


class LinearRelaxation(NamedTuple):
    """The solution of a linear relaxation.

    Attributes
    ----------
    bound : int
        Proven lower bound on the cost.
    values, reduced_costs : (variables,) float64
        For each variable of the model, its value, and by how much the relaxation's cost grows per unit.
    """

    bound: int
    values: _Floats
    reduced_costs: _Floats


class _Row(NamedTuple):
    """A linear constraint ``low`` ≤ Σ ``coefficients`` · x[``variables``] ≤ ``high``."""

    variables: list[int]
    coefficients: list[int]
    low: float
    high: float


def solve_relaxation(model: Any, seconds: float) -> LinearRelaxation | None:
    """Solve the linear relaxation of a model that minimises; None if it is too large, or not solved in time.

    Constraints that are not linear, or hold only if a literal is true, are left out.

    The bound follows from the dual solution by weak duality alone, with the bounds of the variables: it holds however
    exact the solver was (Neumaier and Shcherbina, *Mathematical Programming* 99, 2004).

    Parameters
    ----------
    model : CpModel
        The model.
    seconds : float
        Time limit in seconds.
    """
    from ortools.linear_solver import pywraplp

    proto = model.proto
    low, high = np.array([_ends(v.domain) for v in proto.variables], dtype=np.float64).T
    cost = np.zeros(len(low))
    for variable, coefficient in zip(proto.objective.vars, proto.objective.coeffs, strict=True):
        cost[variable] += coefficient
    rows = [row for constraint in proto.constraints for row in _rows_of(constraint)]
    if sum(len(row.variables) for row in rows) > tuning.MAX_RELAXATION_TERMS:
        return None
    solver = pywraplp.Solver.CreateSolver("GLOP")
    columns = [solver.NumVar(a, b, "") for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    for column, coefficient in zip(columns, cost.tolist(), strict=True):
        solver.Objective().SetCoefficient(column, coefficient)
    constraints = []
    for row in rows:
        constraint = solver.Constraint(row.low, row.high)
        for variable, coefficient in zip(row.variables, row.coefficients, strict=True):
            constraint.SetCoefficient(columns[variable], coefficient)
        constraints.append(constraint)
    solver.SetTimeLimit(max(1, int(1000 * min(seconds, 1e6))))
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return None
    bound, reduced = _dual_bound(cost, (low, high), rows, np.array([c.dual_value() for c in constraints]))
    offset = proto.objective.offset
    return LinearRelaxation(
        ceil(offset + bound - _TOLERANCE * (1 + abs(bound))), np.array([c.solution_value() for c in columns]), reduced
    )


def _rows_of(constraint: Any) -> Iterator[_Row]:
    """Yield the linear constraints that a constraint of the model is or implies."""
    enforcing = list(constraint.enforcement_literal)
    if constraint.has_bool_and() and len(enforcing) == 1:
        for literal in constraint.bool_and.literals:
            yield _sum_of_literals([-enforcing[0] - 1, literal], 1, np.inf)
    if enforcing:
        return
    if constraint.has_at_most_one():
        yield _sum_of_literals(constraint.at_most_one.literals, -np.inf, 1)
    elif constraint.has_exactly_one():
        yield _sum_of_literals(constraint.exactly_one.literals, 1, 1)
    elif constraint.has_bool_or():
        yield _sum_of_literals(constraint.bool_or.literals, 1, np.inf)
    elif constraint.has_linear():
        linear = constraint.linear
        low, high = _ends(linear.domain)
        yield _Row(
            list(linear.vars),
            list(linear.coeffs),
            -np.inf if low <= -_INFINITE else low,
            np.inf if high >= _INFINITE else high,
        )


def _ends(domain: Any) -> tuple[int, int]:
    """Return the least and the largest value of a domain, which is a list of the ends of intervals."""
    ends = list(domain)
    return ends[0], ends[-1]


def _sum_of_literals(literals: Any, low: float, high: float) -> _Row:
    """Return bounds on the number of true literals; literal −i − 1 is the negation of variable i."""
    given = list(literals)
    negated = sum(literal < 0 for literal in given)
    variables = [-literal - 1 if literal < 0 else literal for literal in given]
    return _Row(variables, [-1 if literal < 0 else 1 for literal in given], low - negated, high - negated)


def _dual_bound(
    cost: _Floats, box: tuple[_Floats, _Floats], rows: list[_Row], multipliers: _Floats
) -> tuple[float, _Floats]:
    """Return the bound that multipliers of the rows give, and the reduced costs; multipliers of a wrong sign become 0.

    For all x within ``box``, Σ cost · x = Σ_r y_r (row r of x) + Σ (cost − yᵀA) · x, and each sum is bounded by itself.
    """
    low, high = np.array([(row.low, row.high) for row in rows], dtype=np.float64).reshape(-1, 2).T
    multipliers = np.where(np.isinf(low), np.minimum(multipliers, 0), multipliers)
    multipliers = np.where(np.isinf(high), np.maximum(multipliers, 0), multipliers)
    sizes = [len(row.variables) for row in rows]
    variables = np.array([v for row in rows for v in row.variables], dtype=np.int64)
    coefficients = np.array([c for row in rows for c in row.coefficients], dtype=np.float64)
    reduced = cost - np.bincount(variables, coefficients * np.repeat(multipliers, sizes), len(cost))
    sides = np.where(multipliers > 0, low, high)
    of_rows = np.where(multipliers == 0, 0.0, multipliers * np.where(np.isinf(sides), 0.0, sides))
    of_variables = np.where(reduced > 0, reduced * box[0], reduced * box[1])
    return float(of_rows.sum() + of_variables.sum()), reduced
