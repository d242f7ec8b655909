"""Bound the whole problem without a combination: by the sum of the largest entries of each agent's upper table.

It is used before the first combination and for runs that end without one. Bounds are encoded: utilities in the number
type of the tables, in which −∞ is a sentinel.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dmcmc.inference.dpop.division import Division
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.cuda.device_table import largest_entry
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.types import Number

if TYPE_CHECKING:
    from dmcmc.solving.agent.agent import Agent


def uncombined_bounds(
    division: Division, arithmetic: Arithmetic, numbers: Sequence[int], agents: "Mapping[int, Agent]"
) -> dict[int, Number]:
    """Return an encoded upper bound on each agent's utility: from its upper table, or from its factors without one.

    Parameters
    ----------
    division
        The agents' local problems.
    arithmetic
        Encoding of the tables.
    numbers
        The agents to bound.
    agents
        The agents that have a table.
    """
    bounds: dict[int, Number] = {}
    for number in numbers:
        upper = agents[number].table.upper if number in agents else None
        if upper is None:
            bounds[number] = largest_sum(division.locals[number].factors, arithmetic)
        else:
            bounds[number] = clamped_sum([largest_entry(table) for table in upper], arithmetic)
    return bounds


def problem_bound(division: Division, arithmetic: Arithmetic, parts: Sequence[Mapping[int, Number]]) -> Number | None:
    """Return an upper bound on the whole problem (encoded) from the agents' bounds; None if an agent has none."""
    bounds = [bound for part in parts for bound in part.values()]
    if len(bounds) < len(division.locals):
        return None
    return clamped_sum([*bounds, largest_sum(division.crossing, arithmetic)], arithmetic)


def largest_sum(factors: Sequence[Factor], arithmetic: Arithmetic) -> Number:
    """Return the sum of each factor's largest entry (encoded), an upper bound on their sum."""
    total: Number = 0
    for factor in factors:
        largest = factor.table.max().item()
        if largest == forbidden_value(factor.table.dtype):
            return arithmetic.lowest
        total += largest
    return total


def largest_total(problem: Problem, arithmetic: Arithmetic) -> Number:
    """Return the sum of the largest entries of all factors with variables (encoded), from the problem's flat tables."""
    flat = problem.flat
    with_scope = np.diff(flat.scope_start) > 0
    if not with_scope.any():
        return 0
    largest = np.maximum.reduceat(flat.data, flat.at[:-1])[with_scope]
    if (largest == forbidden_value(flat.data.dtype)).any():
        return arithmetic.lowest
    total: Number = sum(largest.tolist())
    return total


def largest_sums(division: Division, arithmetic: Arithmetic) -> tuple[dict[int, Number], Number]:
    """Return an upper bound for each agent's own factors, and one for all factors between agents."""
    agent_bounds = {local.agent: largest_sum(local.factors, arithmetic) for local in division.locals}
    return agent_bounds, largest_sum(division.crossing, arithmetic)


def clamped_sum(numbers: Sequence[Number], arithmetic: Arithmetic) -> Number:
    """Return a sum of encoded numbers; −∞ if one of them is −∞."""
    return arithmetic.lowest if any(map(arithmetic.is_lowest, numbers)) else sum(numbers)
