"""A network nested in a constraint: its cost at the constraint's variables must lie between two bounds."""

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ProblemError

_FORBIDDEN = np.iinfo(np.int64).max  # cost of a forbidden entry
_MAX_INNER_ENTRIES = 1 << 20  # entries of an inner factor's table
_MAX_TABLE_ENTRIES = 1024  # a constraint over at most this many entries is stored as a table


class NestedNetwork(NamedTuple):
    """A network and the bounds on its cost.

    Attributes
    ----------
    domains : sequence of int
        Domain sizes of its variables, which are those of the scope in the same order.
    factors : tuple of Factor
        Its factors; utilities are negated costs.
    unit : int
        Integer that represents the cost 1, a power of ten.
    low, high : int
        The constraint low ≤ cost < high; integers in the same unit.
    """

    domains: Sequence[int]
    factors: tuple[Factor, ...]
    unit: int
    low: int
    high: int


def nested_constraint(nested: NestedNetwork, scope: Sequence[int], shape: Sequence[int], name: str) -> Factor:
    """Return the hard constraint as an automaton.

    A state holds the cost so far and the values of the variables that later factors still need.

    Raises
    ------
    ProblemError
        If the network's variables differ from those of the scope.
    ResourceError
        If the automaton needs too many states.
    """
    if [*nested.domains] != [*shape]:
        raise ProblemError(f"its network has domains {[*nested.domains]}, its scope {[*shape]}")
    inner_tables, start = [], 0
    for factor in nested.factors:
        if type(factor) is not Factor and prod(factor.shape) > _MAX_INNER_ENTRIES:
            raise ProblemError("its network has a function over too many variables")
        costs = _costs(factor, nested.unit)
        if factor.scope:
            inner_tables.append((factor.scope, costs))
        else:
            start += int(costs) if costs != _FORBIDDEN else nested.high
    if not scope:
        raise ProblemError("its scope is empty")
    min_remaining, max_remaining = np.zeros(len(scope) + 1, dtype=object), np.zeros(len(scope) + 1, dtype=object)
    closing_factors: list[list[tuple[tuple[int, ...], NDArray[np.int64]]]] = [[] for _ in scope]
    last_use = [0] * len(scope)
    for inner_scope, costs in inner_tables:
        end = max(inner_scope)
        closing_factors[end].append((inner_scope, costs))
        finite = costs[costs != _FORBIDDEN]
        min_remaining[: end + 1] += int(finite.min()) if finite.size else 0
        max_remaining[: end + 1] += int(finite.max()) if finite.size else 0
        for v in inner_scope:
            last_use[v] = max(last_use[v], end)

    def step(position: int, state: Any, value: int) -> tuple[Hashable, int | None]:
        total, needed_values = state
        values = {**dict(needed_values), position: value}
        for inner_scope, costs in closing_factors[position]:
            cost = int(costs[tuple(values[v] for v in inner_scope)])
            if cost == _FORBIDDEN:
                return None, None
            total += cost
        if total + min_remaining[position + 1] >= nested.high or total + max_remaining[position + 1] < nested.low:
            return None, None
        if position == len(scope) - 1:
            return 0, 0
        return (total, tuple((v, x) for v, x in values.items() if last_use[v] > position)), 0

    result = unroll(scope, shape, (start, ()), step, name=name)
    return Factor(result.scope, result.table, name) if prod(shape) <= _MAX_TABLE_ENTRIES else result


def _costs(factor: Factor, unit: int) -> NDArray[np.int64]:
    """Return a factor's table as integer costs."""
    table = factor.table
    hard = forbidden(table)
    utility = np.where(hard, 0, table)
    if table.dtype.kind == "f":
        utility = np.rint(utility * unit)
    return np.where(hard, _FORBIDDEN, -utility.astype(np.int64) * (1 if table.dtype.kind == "f" else unit))
