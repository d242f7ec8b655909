"""A bound without a combination: the sum of what each table can be worth by itself."""

from collections.abc import Mapping, Sequence

from dmcmc.inference.dpop.division import Division
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.cuda.device_table import largest
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.types import Number
from dmcmc.run.agent.agent import Agent


def loose_bounds(
    division: Division, arithmetic: Arithmetic, numbers: Sequence[int], agents: Mapping[int, Agent]
) -> dict[int, Number]:
    """Return at most what each of some agents can be worth (encoded): by its table if it has one, else by its factors.

    Parameters
    ----------
    agents
        Those that have a table.
    """
    found: dict[int, Number] = {}
    for number in numbers:
        upper = agents[number].table.upper if number in agents else None
        if upper is None:
            found[number] = largest_sum(division.locals[number].factors, arithmetic)
        else:
            found[number] = clamped_sum([largest(table) for table in upper], arithmetic)
    return found


def whole_bound(division: Division, arithmetic: Arithmetic, parts: Sequence[Mapping[int, Number]]) -> Number | None:
    """Return at most what the whole can be worth (encoded), from the agents' bounds; None where one has none."""
    bounds = [bound for part in parts for bound in part.values()]
    if len(bounds) < len(division.locals):
        return None
    return clamped_sum([*bounds, largest_sum(division.crossing, arithmetic)], arithmetic)


def largest_sum(factors: Sequence[Factor], arithmetic: Arithmetic) -> Number:
    """Return the sum of each factor's largest entry (encoded)."""
    total: Number = 0
    for factor in factors:
        largest = factor.table.max().item()
        if largest == forbidden_value(factor.table.dtype):
            return arithmetic.lowest
        total += largest
    return total


def largest_sums(division: Division, arithmetic: Arithmetic) -> tuple[dict[int, Number], Number]:
    """Return what each agent's factors can be worth at most, and all that are between agents together."""
    own = {local.agent: largest_sum(local.factors, arithmetic) for local in division.locals}
    return own, largest_sum(division.crossing, arithmetic)


def clamped_sum(numbers: Sequence[Number], arithmetic: Arithmetic) -> Number:
    """Return a sum of encoded numbers; −∞ where one of them is."""
    return arithmetic.lowest if any(map(arithmetic.is_lowest, numbers)) else sum(numbers)
