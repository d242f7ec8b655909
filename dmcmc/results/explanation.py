"""Results of belief networks, with the objective as a probability."""

import math

import msgspec

from dmcmc.results.result import Result


class Explanation(Result, frozen=True, kw_only=True):
    """The most probable explanation of a belief network: a result with the product of probabilities.

    Attributes
    ----------
    value : float or None
        The product of the numbers in the file, e^objective; None if it is outside the range of floats.
    log10 : float or None
        Its decimal logarithm.
    """

    value: float | None
    log10: float | None


def as_explanation(result: Result) -> Explanation:
    """Return a result with the product of the numbers in the file; its objective is the natural logarithm of that."""
    ln = result.objective
    return Explanation(
        **msgspec.structs.asdict(result),
        value=None if ln is None else exp_or_none(ln),
        log10=None if ln is None else ln / math.log(10),
    )


def exp_or_none(ln: float) -> float | None:
    """Return e^ln; None if it overflows a float64, or underflows to 0.

    >>> exp_or_none(0.0), exp_or_none(1000.0), exp_or_none(-1000.0)
    (1.0, None, None)
    """
    if abs(ln) > 700:  # e^709.8 is the largest float64, e^-708.4 the smallest with full precision
        return None
    return math.exp(ln)
