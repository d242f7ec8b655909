"""A parsed expression: evaluated for all assignments at once where that is sound, else for one after the other."""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from dmcmc.formats.expressions.arrays import evaluate
from dmcmc.formats.expressions.functions import ExpressionError
from dmcmc.inference.runtime.types import Array

MOST_STEPS = 10_000_000  # some seconds
_STEPS_A_BYTE = 500
_WORTHWHILE = 100  # assignments from which on arrays are faster

Env = dict[str, Any]
Node = Callable[[Env], Any]


@dataclass
class Meter:
    """What may still be spent on evaluation."""

    steps: int = MOST_STEPS

    @classmethod
    def of(cls, text: bytes) -> "Meter":
        """Return what a file may spend: more if it is long."""
        return cls(MOST_STEPS + _STEPS_A_BYTE * len(text))

    def spend(self, steps: int) -> None:
        """Count steps; ExpressionError when they are used up."""
        self.steps -= steps
        if self.steps < 0:
            raise ExpressionError("takes too many steps; list its tuples instead")


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Attributes
    ----------
    names : tuple of str
        Its free names, in the order of their appearance: the variables.
    size : int
        Number of nodes: at most so many steps an evaluation, loops aside.
    tree : ast.expr or None
        The same as one expression; None for statements that assign.
    """

    names: tuple[str, ...]
    size: int
    run: Node = field(repr=False)
    meter: Meter = field(repr=False)
    tree: ast.expr | None = field(repr=False, default=None)

    def __call__(self, values: Mapping[str, Any]) -> int | float:
        """Return the value for one assignment; see :meth:`over`."""
        return self._one_by_one([dict(values)])[0]

    def over(self, values: Sequence[Sequence[Any]], axes: Sequence[int] | None = None) -> Array | list[int | float]:
        """Return the values for all assignments.

        Parameters
        ----------
        values
            Of each axis; the last is the fastest.
        axes
            Of each name; by default they are the names, in their order.

        Raises
        ------
        ExpressionError
            For what Python would raise (division by zero, wrong types), for no number, and for too much work.
        """
        count, axes = prod(map(len, values)), range(len(values)) if axes is None else axes
        self.meter.spend(self.size * count)
        if count >= _WORTHWHILE and self.tree is not None:
            found = evaluate(self.tree, self.names, values, axes)
            if found is not None:
                return found
        return self._one_by_one(
            {n: chosen[i] for n, i in zip(self.names, axes, strict=True)} for chosen in product(*values)
        )

    def _one_by_one(self, assignments: Iterable[Env]) -> list[int | float]:
        """Return the values for assignments, dictionaries that no one else needs."""
        run, found = self.run, []
        try:
            for assignment in assignments:
                result = run(assignment)
                kind = type(result)
                if kind is not int and kind is not float:
                    if kind is not bool:
                        raise ExpressionError(f"has the value {str(result)[:40]!r}, which is no number")
                    result = int(result)
                found.append(result)
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            raise ExpressionError(f"cannot be evaluated: {' '.join(str(error).split())[:200]}") from None
        return found
