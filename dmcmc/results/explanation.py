"""Results of belief networks, in the network's own terms."""

import math

import msgspec

from dmcmc.results.result import Result


class Explanation(Result, frozen=True, kw_only=True):
    """The most probable explanation of a belief network: a result with the value in the file's own terms.

    Attributes
    ----------
    value
        The product of the file's numbers, e^objective; None where a float cannot hold it.
    log10
        Its logarithm.
    """

    value: float | None
    log10: float | None


def explained(result: Result) -> Explanation:
    """Return a result with its objective, a logarithm, in the file's own terms."""
    ln = result.objective
    return Explanation(
        **msgspec.structs.asdict(result),
        value=None if ln is None else exp_or_none(ln),
        log10=None if ln is None else ln / math.log(10),
    )


def exp_or_none(ln: float) -> float | None:
    """Return e^ln; None where that is beyond a float64, or 0 for one although it is not.

    >>> exp_or_none(0.0), exp_or_none(1000.0), exp_or_none(-1000.0)
    (1.0, None, None)
    """
    if abs(ln) > 700:
        return None
    return math.exp(ln)
