"""One of several alternative assignments of a result."""

from collections.abc import Mapping

import msgspec

from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.types import Number


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """An assignment that breaks no hard constraint, and the proof of its rank.

    Attributes
    ----------
    objective : int or float
        The value of the assignment on the original factors.
    bound : int, float or None
        Proven: no assignment that differs enough from all earlier alternatives is better. None without a proven bound.
    proven : bool
        Whether no such assignment is better than this one. If all earlier alternatives are proven as well and one
        changed variable is enough, this is the assignment of that rank.
    changed : int
        Number of variables whose value differs from that in the first alternative.
    assignment : dict
        The label of the value of each variable, by variable name.
    """

    objective: Number
    bound: Number | None
    proven: bool
    changed: int
    assignment: Mapping[str, Label]
