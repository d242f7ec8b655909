"""The semirings of elimination: one implementation serves max-plus, min-plus and log-sum-exp.

⊕ eliminates a variable from a table, ⊗ joins tables.
"""

from dataclasses import dataclass

# The operations that project a bucket's variable out.
MAXIMUM = 0
LOG_SUM = 1


@dataclass(frozen=True)
class Semiring:
    """A semiring (⊕, ⊗) of elimination; ⊗ is always addition.

    Attributes
    ----------
    name : str
        Name used in messages.
    operation : int
        The operation ⊕: ``MAXIMUM``, or ``LOG_SUM`` for log Σ exp.
    sign : int
        −1 if input tables and results are negated: min x is computed as −max(−x).
    """

    name: str
    operation: int
    sign: int


MAX_PLUS = Semiring("max-plus", MAXIMUM, 1)
MIN_PLUS = Semiring("min-plus", MAXIMUM, -1)
LOG_SUM_EXP = Semiring("log-sum-exp", LOG_SUM, 1)
