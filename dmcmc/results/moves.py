"""What it costs to move away from the assignment from which a run starts, and which variables move."""

from collections.abc import Mapping

import msgspec

from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.types import Number


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an objective that is the cost of moving, in a run with ``stay``.

    Attributes
    ----------
    objective : int, float or None
        The value of the assignment on the problem's own factors, without the cost of moving; None if it breaks a hard
        constraint. The objective of the result is this number minus ``cost``, or plus ``cost`` if it is minimised.
    cost : int or float
        The sum of the weights of the variables that moved.
    count : int
        Number of variables that moved: their value differs from that of the start.
    moved : dict of str to label
        The value in the start of each variable that moved, by its name. Empty if the agents do not disclose their
        assignments.
    """

    objective: Number | None
    cost: Number
    count: int
    moved: Mapping[str, Label] = {}
