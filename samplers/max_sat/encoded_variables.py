"""The variables of a cost problem in a weighted formula: a literal for each value."""

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.external import problem_arrays
from dmcmc.samplers.external.problem_arrays import Arrays
from dmcmc.samplers.max_sat.formula import WeightedFormula


class EncodedVariables:
    """A formula with the literals of a problem's variables.

    Parameters
    ----------
    arrays : dict of ndarray
        The arrays of ``CostProblem.save``.

    Attributes
    ----------
    formula : WeightedFormula
        The formula.
    top : int
        The cost from which on an assignment is forbidden.
    literals : list of list of int
        For each variable, the literals of its values; that of a forbidden value is false.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.formula, self.top = WeightedFormula(), int(arrays["top"])
        allowed = [np.ones(size, dtype=np.bool_) for size in arrays["domains"].tolist()]
        for scope, cost in problem_arrays.tables(arrays):
            if len(scope) == 1:
                allowed[scope[0]] &= cost < self.top
        self.literals = [self._variable(values) for values in allowed]

    def values(self, true: set[int]) -> list[int]:
        """Return the value of each variable, given the literals that are true in a model."""
        return [next(a for a, x in enumerate(own) if -x not in true) for own in self.literals]

    def _variable(self, allowed: NDArray[np.bool_]) -> list[int]:
        """Return the literals of a variable's values."""
        formula, values = self.formula, np.flatnonzero(allowed).tolist()
        literals = [formula.false] * allowed.size
        if not values:
            formula.add()
            literals[0] = formula.true
        elif len(values) == 1:
            literals[values[0]] = formula.true
        elif len(values) == 2:
            literals[values[0]] = formula.new()
            literals[values[1]] = -literals[values[0]]
        else:
            for a in values:
                literals[a] = formula.new()
            formula.exactly_one([literals[a] for a in values])
        return literals
