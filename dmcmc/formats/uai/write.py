"""Write ``.uai``: a Markov network whose potentials are the exponentials of the utilities."""

from collections.abc import Iterator
from math import exp

from dmcmc.formats.common.factor_entries import Cost, FactorEntries, check_expressible, named_factor_entries
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ProblemError, ResourceError

# Outside these utilities, exp underflows, overflows or loses digits.
_MIN_UTILITY = -700.0
_MAX_UTILITY = 700.0
_MAX_TABLE_ENTRIES = 2**28  # entries of a table; each is written as text


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem; reading it back gives the same problem up to rounding.

    Raises
    ------
    ProblemError
        For agents, labels and names (``--drop`` removes them), a minimisation, and utilities outside ±700.
    """
    check_expressible(problem, sense="max")
    functions = list(named_factor_entries(problem, constants=False))
    yield f"MARKOV\n{problem.n_variables}\n{' '.join(map(str, problem.domains.tolist()))}\n{len(functions)}\n"
    for _, listing in functions:
        yield " ".join(map(str, (len(listing.scope), *listing.scope))) + "\n"
    for name, listing in functions:
        yield from _table(name, listing)


def _table(name: str, listing: FactorEntries) -> Iterator[str]:
    """Yield the text of one table."""
    entries = 1
    for size in listing.shape:
        entries *= size
    if entries > _MAX_TABLE_ENTRIES:
        raise ResourceError(
            f"factor {name!r}: a table of {entries:.3g} entries; uai writes at most {_MAX_TABLE_ENTRIES:,}"
        )
    words = [_potential(name, listing.default)] * entries
    for row, cost in zip(listing.rows, listing.costs, strict=True):
        index = 0
        for value, size in zip(row, listing.shape, strict=True):
            index = index * size + value
        words[index] = _potential(name, cost)
    yield f"\n{entries}\n{' '.join(words)}\n"


def _potential(name: str, utility: Cost) -> str:
    """Return the exponential of a utility as text."""
    if utility is None:
        return "0"
    if not _MIN_UTILITY <= utility <= _MAX_UTILITY:
        raise ProblemError(f"factor {name!r}: utility {utility}; only utilities from -700 to 700 can be written")
    return repr(exp(utility))
