"""toulbar2 as a peer: what it finds and proves."""

import pytest

from support.naive import INFINITY, utilities

HARD = -INFINITY


def optimum(problem):
    """The best utility of an integer problem by toulbar2, −∞ if it proves that there is none."""
    pytoulbar2 = pytest.importorskip("pytoulbar2")
    offset, functions, top = 0, [], 1
    for factor in problem.factors:
        table = utilities(factor.table).ravel().tolist()
        if all(entry == HARD for entry in table):
            return HARD
        best = max(table)
        offset += best
        top += max(best - entry for entry in table if entry > HARD)
        functions.append((factor.scope, [best - entry for entry in table]))
    if not problem.n_variables:
        return offset
    network = pytoulbar2.CFN(top)
    for name, size in zip(problem.variables, problem.domains.tolist(), strict=True):
        network.AddVariable(name, range(size))
    for scope, costs in functions:
        if scope:
            network.AddFunction(list(scope), [min(cost, top) for cost in costs])
    found = network.Solve()
    return HARD if found is None else offset - round(found[1])
