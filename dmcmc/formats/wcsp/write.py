"""Write ``.wcsp``: non-negative integer costs, minimised. Forbidden entries have the cost ``top`` of the header."""

from collections.abc import Iterator

from dmcmc.formats.common.factor_entries import FactorEntries, check_expressible, named_factor_entries
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ProblemError

_MAX_TOP = 2**62  # limit for the sum of all costs; leaves headroom in int64


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem.

    Raises
    ------
    ProblemError
        For agents, labels and names (``--drop`` removes them), a maximisation, and costs that are negative or not
        integers.
    """
    check_expressible(problem)
    if problem.sense != "min":
        raise ProblemError("the format minimises, and the problem is maximised; --drop sense writes negated utilities")
    functions = []
    for name, listing in named_factor_entries(problem):
        for cost in listing.all_costs:
            if cost is not None and (cost < 0 or cost != int(cost)):
                raise ProblemError(f"factor {name!r}: cost {cost}; whole numbers from 0 are needed (cfn has others)")
        functions.append(listing)
    top = 1 + sum(int(max((c for c in listing.all_costs if c is not None), default=0)) for listing in functions)
    if top >= _MAX_TOP:
        raise ProblemError(f"the costs add up to {top - 1}; the sum must be below 2^62")
    name = "_".join(problem.name.split()) or "problem"
    yield f"{name} {problem.n_variables} {problem.domains.max(initial=0)} {len(functions)} {top}\n"
    yield " ".join(map(str, problem.domains.tolist())) + "\n"
    for listing in functions:
        yield from _function(listing, top)


def _function(listing: FactorEntries, top: int) -> Iterator[str]:
    """Yield the text of one constraint: a default cost and the tuples that differ from it."""
    default = top if listing.default is None else int(listing.default)
    yield " ".join(map(str, (len(listing.scope), *listing.scope, default, len(listing.rows)))) + "\n"
    for row, cost in zip(listing.rows, listing.costs, strict=True):
        yield f"{' '.join(map(str, row))} {top if cost is None else int(cost)}\n"
