"""Write ``.uai``: a Markov network whose potentials are the exponentials of the utilities."""

from collections.abc import Iterator
from math import exp

from dmcmc.formats.common.factor_entries import Cost, Listing, keep, listings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ProblemError, ResourceError

_LEAST, _MOST = -700.0, 700.0  # beyond, exp is 0, infinite or loses digits
_CELLS = 2**28


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem; what is read back differs from it by rounding.

    Raises
    ------
    ProblemError
        For agents, labels and names (``--drop`` leaves them out), a minimisation, and utilities beyond ±700.
    """
    keep(problem)
    if problem.sense != "max":
        raise ProblemError("the format maximises, and the problem is minimised; --drop sense writes negated costs")
    functions = list(listings(problem, constants=False))
    yield f"MARKOV\n{problem.n_variables}\n{' '.join(map(str, problem.domains.tolist()))}\n{len(functions)}\n"
    for _, listing in functions:
        yield " ".join(map(str, (len(listing.scope), *listing.scope))) + "\n"
    for name, listing in functions:
        yield from _table(name, listing)


def _table(name: str, listing: Listing) -> Iterator[str]:
    cells = 1
    for size in listing.shape:
        cells *= size
    if cells > _CELLS:
        raise ResourceError(f"factor {name!r}: a table of {cells:.3g} entries; uai writes at most {_CELLS:,}")
    words = [_potential(name, listing.default)] * cells
    for row, cost in zip(listing.rows, listing.costs, strict=True):
        at = 0
        for value, size in zip(row, listing.shape, strict=True):
            at = at * size + value
        words[at] = _potential(name, cost)
    yield f"\n{cells}\n{' '.join(words)}\n"


def _potential(name: str, utility: Cost) -> str:
    if utility is None:
        return "0"
    if not _LEAST <= utility <= _MOST:
        raise ProblemError(f"factor {name!r}: utility {utility}; its exponential is no number (-700 to 700 have one)")
    return repr(exp(utility))
