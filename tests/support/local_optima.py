"""Check 1- and 2-optimality by enumeration, violations before utility."""

from itertools import combinations, product

import numpy as np


def value_of(problem, values):
    """Return (−violations, utility) of value indices; a larger tuple is better."""
    objective, violation = problem.evaluate(values)
    return -violation, objective if problem.sense == "max" else -objective


def tolerance(problem):
    """Return the difference up to which two float sums count as equal; 0 for integers."""
    tables = [factor.table for factor in problem.factors]
    if all(table.dtype.kind == "i" for table in tables):
        return 0
    return 1e-9 * sum(float(np.abs(table[np.isfinite(table)]).max(initial=0)) for table in tables)


def is_better(problem, value, other):
    """Return whether the second value is definitely better than the first one."""
    return other[0] > value[0] or (other[0] == value[0] and other[1] > value[1] + tolerance(problem))


def moves(problem, values, groups):
    """Yield the assignments in which only the variables of one group have other values."""
    for group in groups:
        for new_values in product(*(range(problem.domains[v]) for v in group)):
            changed = np.array(values)
            changed[list(group)] = new_values
            yield changed


def better_by_one(problem, values):
    """Return the better assignments that differ in one variable; there are none if ``values`` is 1-optimal."""
    groups, value = [(v,) for v in range(problem.n_variables)], value_of(problem, values)
    return [m.tolist() for m in moves(problem, values, groups) if is_better(problem, value, value_of(problem, m))]


def better_by_two(problem, values):
    """Return the better assignments that differ in one variable or two variables of a factor; none if 2-optimal."""
    groups = {pair for factor in problem.factors for pair in combinations(sorted(factor.scope), 2)}
    value = value_of(problem, values)
    pairs = [m.tolist() for m in moves(problem, values, groups) if is_better(problem, value, value_of(problem, m))]
    return better_by_one(problem, values) + pairs
