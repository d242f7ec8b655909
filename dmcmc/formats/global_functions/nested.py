"""Convert a network nested in a constraint to a factor: the network's cost must lie between two bounds.

The network has the variables of the constraint's scope. The constraint becomes a deterministic automaton that reads the
scope variable by variable and adds up the cost of the network.
"""

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.samplers.tuning import common
from dmcmc.tuning import formats as tuning

_FORBIDDEN = np.iinfo(np.int64).max  # cost of a forbidden entry; the largest int64


class NestedNetwork(NamedTuple):
    """A network and the bounds on its cost.

    Costs are integers in units of the last decimal place of the file: the cost 1.25 of a file with two decimals is 125.

    Attributes
    ----------
    domains : sequence of int
        Domain sizes of its variables, which are those of the scope in the same order.
    factors : tuple of Factor
        Its factors over the variables 0, 1, ... of the network; utilities are negated costs, in units of 1.
    unit : int
        Integer that represents the cost 1, a power of ten: 100 if the file has two decimals.
    low, high : int
        The constraint low ≤ cost < high, as integer costs.
    """

    domains: Sequence[int]
    factors: tuple[Factor, ...]
    unit: int
    low: int
    high: int


def nested_constraint(nested: NestedNetwork, scope: Sequence[int], shape: Sequence[int], name: str) -> Factor:
    """Return the hard constraint ``nested.low`` ≤ cost of the network < ``nested.high`` as an automaton.

    A state is a pair: the cost so far, and the (position, value) pairs of the variables that later factors still need.
    A transition is forbidden as soon as no values of the remaining variables can satisfy the bounds. If the scope has
    at most 1024 assignments, the factor is returned as a table.

    Parameters
    ----------
    nested
        The network and its bounds.
    scope, shape
        Variables of the constraint in the outer problem, and their domain sizes.
    name
        Name of the factor.

    Raises
    ------
    ProblemError
        If the scope is empty, its domain sizes differ from those of the network, or the table of a network's function
        is too large.
    ResourceError
        If the automaton needs too many states.
    """
    if [*nested.domains] != [*shape]:
        raise ProblemError(f"its network has domains {[*nested.domains]}, its scope {[*shape]}")
    inner_tables, start, is_forbidden = [], 0, False  # start: the sum of the network's constants
    for factor in nested.factors:
        if type(factor) is not Factor and prod(factor.shape) > tuning.EXPANDED_ENTRIES:
            raise ProblemError("its network has a function over too many variables")
        costs = _costs(factor, nested.unit)
        if factor.scope:
            inner_tables.append((factor.scope, costs))
        else:
            if costs == _FORBIDDEN:
                is_forbidden = True
            start += int(costs)
    if not scope:
        raise ProblemError("its scope is empty")
    if is_forbidden:  # negative costs of other factors do not make up for it
        return Factor.of((), np.array(-np.inf), name=name)
    # Sums of the smallest and of the largest finite costs of all factors whose last variable is at position i or later.
    # They are Python integers (dtype object), which do not overflow.
    min_remaining, max_remaining = np.zeros(len(scope) + 1, dtype=object), np.zeros(len(scope) + 1, dtype=object)
    # For each position, the (scope, costs) of the factors whose last variable is there: their costs are added there.
    closing_factors: list[list[tuple[tuple[int, ...], NDArray[np.int64]]]] = [[] for _ in scope]
    last_use = [0] * len(scope)  # for each variable, the last position at which a factor needs its value
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
    return Factor(result.scope, result.table, name) if prod(shape) <= common.PLAIN_TABLE_ENTRIES else result


def _costs(factor: Factor, unit: int) -> NDArray[np.int64]:
    """Return a factor's table as int64 costs in units of the last decimal place; ``_FORBIDDEN`` for forbidden entries.

    Utilities are negated costs in units of 1, so that an entry is −utility · ``unit``; float utilities are rounded.
    """
    table = factor.table
    hard = forbidden(table)
    utility = np.where(hard, 0, table)
    if table.dtype.kind == "f":
        utility = np.rint(utility * unit)
    return np.where(hard, _FORBIDDEN, -utility.astype(np.int64) * (1 if table.dtype.kind == "f" else unit))
