"""What elimination adds up and maximises over: the same code for all three."""

from dataclasses import dataclass

MAXIMUM, LOG_SUM = 0, 1  # how a bucket's values of its variable are put together


@dataclass(frozen=True)
class Semiring:
    """A pair of operations; ⊗ is always +.

    Attributes
    ----------
    name : str
    operation : int
        MAXIMUM, or LOG_SUM: log Σ exp.
    sign : int
        −1 where tables are negated on the way in and results on the way out: min is −max of the negated.
    """

    name: str
    operation: int
    sign: int


MAX_PLUS = Semiring("max-plus", MAXIMUM, 1)
MIN_PLUS = Semiring("min-plus", MAXIMUM, -1)
LOG_SUM_EXP = Semiring("log-sum-exp", LOG_SUM, 1)
