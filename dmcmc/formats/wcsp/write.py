"""Write ``.wcsp``: non-negative integer costs, minimised. Forbidden entries have the cost ``top`` of the header.

If a factor has negative costs, each factor is shifted so that its least cost is 0, and the sum of the shifts becomes a
constant. The format has no negative constant: toulbar2 would read it as 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dmcmc.formats.common.factor_entries import (
    Cost,
    FactorEntries,
    check_missing,
    least_total_cost,
    missing_features,
    named_factor_entries,
)
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ProblemError

_MAX_TOP = 2**62  # limit for the sum of all costs; leaves headroom in int64


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem.

    Raises
    ------
    ProblemError
        For agents, labels, names and a maximisation (``--drop`` removes them), for costs that are not integers, and
        for costs whose least sum is negative.
    """
    missing = missing_features(problem, sense="min")
    named = list(named_factor_entries(replace(problem, sense="min")))
    functions = [listing for _, listing in named]
    costs = [(name, cost) for name, listing in named for cost in listing.all_costs if cost is not None]
    for name, cost in costs:
        if cost != int(cost):
            besides = f"factor {name!r}: cost {cost}; whole numbers from 0 are needed (cfn has others)"
            check_missing(missing, besides)
    negative = next(((name, cost) for name, cost in costs if cost < 0), None)
    if negative is not None:
        least = least_total_cost(functions) or 0
        if least < 0:
            what = f"factor {negative[0]!r}: cost {negative[1]}; whole numbers from 0 are needed"
            missing["constant"] = f"no negative constant such as {least} ({what})"
        functions = _shifted(functions, least)
    check_missing(missing)
    top = 1 + sum(int(max((c for c in listing.all_costs if c is not None), default=0)) for listing in functions)
    if top >= _MAX_TOP:
        raise ProblemError(f"the costs add up to {top - 1}; the sum must be below 2^62")
    name = "_".join(problem.name.split()) or "problem"
    yield f"{name} {problem.n_variables} {problem.domains.max(initial=0)} {len(functions)} {top}\n"
    yield " ".join(map(str, problem.domains.tolist())) + "\n"
    for listing in functions:
        yield from _function(listing, top)


def _shifted(functions: Sequence[FactorEntries], constant: int) -> list[FactorEntries]:
    """Return functions whose least costs are 0, and a constant function. All costs are whole numbers."""
    shifted = [FactorEntries((), (), [], [], constant)] if constant else []
    for listing in functions:
        least = least_total_cost([listing]) or 0
        if listing.scope:
            costs: list[Cost] = [None if cost is None else int(cost) - least for cost in listing.costs]
            default = None if listing.default is None else int(listing.default) - least
            shifted.append(replace(listing, costs=costs, default=default))
        elif listing.default is None:
            shifted.append(listing)  # forbids every assignment
    return shifted


def _function(listing: FactorEntries, top: int) -> Iterator[str]:
    """Yield the text of one constraint: a default cost and the tuples that differ from it."""
    default = top if listing.default is None else int(listing.default)
    yield " ".join(map(str, (len(listing.scope), *listing.scope, default, len(listing.rows)))) + "\n"
    for row, cost in zip(listing.rows, listing.costs, strict=True):
        yield f"{' '.join(map(str, row))} {top if cost is None else int(cost)}\n"
