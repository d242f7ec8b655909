"""The counting constraint whose number is the value of a variable."""

from collections.abc import Sequence
from typing import Any

from dmcmc.inference.model.automaton import AutomatonFactor, unroll
from dmcmc.inference.model.building.python_number import cost_per_unit


def count_variable(
    scope: Sequence[int], counted: Sequence[Sequence[int]], cost: int | float | None, name: str
) -> AutomatonFactor:
    """Return an automaton: the number of variables that take one of some values equals the number of the last one.

    Parameters
    ----------
    scope : sequence of int
        Variable indices; the last variable is the number.
    counted : sequence of sequence of int
        For each variable but the last one, 1 for each value that counts, and 0 for the others; for the last one the
        number of each value.
    cost : int, float or None
        Cost per unit of difference; None for a hard constraint.
    name : str
        Name of the factor.
    """
    cost = cost_per_unit(cost, f"constraint {name}")

    def step(position: int, number: Any, value: int) -> tuple[int, int | float | None]:
        entry = counted[position][value]
        if position < len(scope) - 1:
            return number + entry, 0
        difference = abs(number - entry)
        return 0, (-cost * difference if cost is not None else None if difference else 0)

    return unroll(scope, [len(c) for c in counted], 0, step, name=name)
