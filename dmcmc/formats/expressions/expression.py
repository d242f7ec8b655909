"""A parsed expression and the limit for its evaluation.

An expression is evaluated for all assignments at once with NumPy if the result is certainly the same, else for one
assignment after the other with closures. The parsers of :mod:`dmcmc.formats.expressions.parse` create it.
"""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from dmcmc.formats.expressions.arrays import evaluate
from dmcmc.formats.expressions.functions import ExpressionError
from dmcmc.inference.runtime.types import Array
from dmcmc.tuning import formats as tuning

MAX_STEPS = 10_000_000  # evaluation steps for one file, a few seconds
_STEPS_PER_BYTE = 500  # further steps per byte of a file

Environment = dict[str, Any]  # value of each name
Closure = Callable[[Environment], Any]


@dataclass
class StepBudget:
    """Number of evaluation steps that are left for a file; all expressions of the file share it.

    A step is the evaluation of one node of an expression for one assignment.

    Attributes
    ----------
    steps : int
        Steps that are left; negative once the budget was exceeded.
    """

    steps: int = MAX_STEPS

    @classmethod
    def of(cls, text: bytes) -> "StepBudget":
        """Return the budget for a file, which grows with its length."""
        return cls(MAX_STEPS + _STEPS_PER_BYTE * len(text))

    def spend(self, steps: int) -> None:
        """Subtract steps; raise ``ExpressionError`` if none are left."""
        self.steps -= steps
        if self.steps < 0:
            raise ExpressionError("takes too many steps; list its tuples instead")


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Attributes
    ----------
    names : tuple of str
        Free names in the order of their appearance: the variables.
    size : int
        Number of nodes, an upper bound on the steps per evaluation except for loops.
    run : callable
        Closure that evaluates the expression in an environment.
    budget : StepBudget
        Steps that are left for the file.
    tree : ast.expr or None
        Equivalent single expression; None for statements that assign.
    """

    names: tuple[str, ...]
    size: int
    run: Closure = field(repr=False)
    budget: StepBudget = field(repr=False)
    tree: ast.expr | None = field(repr=False, default=None)

    def __call__(self, values: Mapping[str, Any]) -> int | float:
        """Return the value for one assignment, given by name; raises ``ExpressionError`` as ``evaluate_all`` does."""
        return self._one_by_one([dict(values)])[0]

    def evaluate_all(
        self, values: Sequence[Sequence[Any]], axes: Sequence[int] | None = None
    ) -> Array | list[int | float]:
        """Return the values for all assignments.

        Parameters
        ----------
        values
            Values on each axis; the last axis is the fastest.
        axes
            Axis of each name; by default the names' positions.

        Raises
        ------
        ExpressionError
            If Python would raise (division by zero, wrong types), if a value is not a number, or if the step budget is
            exhausted.
        """
        count, axes = prod(map(len, values)), range(len(values)) if axes is None else axes
        self.budget.spend(self.size * count)
        if count >= tuning.ARRAY_ASSIGNMENTS and self.tree is not None:
            results = evaluate(self.tree, self.names, values, axes)
            if results is not None:
                return results
        return self._one_by_one(
            {n: assignment[i] for n, i in zip(self.names, axes, strict=True)} for assignment in product(*values)
        )

    def _one_by_one(self, assignments: Iterable[Environment]) -> list[int | float]:
        """Return the values for environments one by one; the evaluation may modify the environments."""
        run, results = self.run, []
        try:
            for assignment in assignments:
                result = run(assignment)
                kind = type(result)
                if kind is not int and kind is not float:
                    if kind is not bool:
                        raise ExpressionError(f"has the value {str(result)[:40]!r}, which is not a number")
                    result = int(result)
                results.append(result)
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            raise ExpressionError(f"cannot be evaluated: {' '.join(str(error).split())[:200]}") from None
        return results
