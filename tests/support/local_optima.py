"""Whether one variable, or two neighbours together, could do better: by trying all of it, violations before utility."""

from itertools import combinations, product

import numpy as np


def worth(problem, values):
    """(violations, utility) of value indices such that more is better."""
    objective, violation = problem.evaluate(values)
    return -violation, objective if problem.sense == "max" else -objective


def tolerance(problem):
    """How far two sums of floats may be apart without either being better; 0 for integers."""
    tables = [factor.table for factor in problem.factors]
    if all(table.dtype.kind == "i" for table in tables):
        return 0
    return 1e-9 * sum(float(np.abs(table[np.isfinite(table)]).max(initial=0)) for table in tables)


def better(problem, ours, theirs):
    """Whether theirs is surely better than ours; both as `worth` has them."""
    return theirs[0] > ours[0] or (theirs[0] == ours[0] and theirs[1] > ours[1] + tolerance(problem))


def moves(problem, values, groups):
    """The assignments in which only one of the groups has other values."""
    for group in groups:
        for others in product(*(range(problem.domains[v]) for v in group)):
            changed = np.array(values)
            changed[list(group)] = others
            yield changed


def better_by_one(problem, values):
    """The assignments that are better and differ in one variable; none: 1-optimal."""
    groups, ours = [(v,) for v in range(problem.n_variables)], worth(problem, values)
    return [m.tolist() for m in moves(problem, values, groups) if better(problem, ours, worth(problem, m))]


def better_by_two(problem, values):
    """The assignments that are better and differ in two variables of one factor, or in one; none: 2-optimal."""
    groups = {pair for factor in problem.factors for pair in combinations(sorted(factor.scope), 2)}
    ours = worth(problem, values)
    pairs = [m.tolist() for m in moves(problem, values, groups) if better(problem, ours, worth(problem, m))]
    return better_by_one(problem, values) + pairs
