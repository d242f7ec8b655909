"""Effects, costs and gains of work on tables: records that runs with and without a time budget share.

An *improver* is a component that can raise the objective or lower the upper bound. The first tables are made in the
names of improvers, too, so that every result lists who has found what.
"""

from dataclasses import dataclass
from enum import Flag, auto
from typing import NamedTuple


class Effect(Flag):
    """The numbers that the work of an improver changes.

    Attributes
    ----------
    ASSIGNMENTS
        It finds whole assignments; their gain is reported at once.
    LOWER_TABLES
        It raises agents' lower tables, from which the next combination makes an assignment.
    BOUNDS
        It lowers upper bounds.
    """

    ASSIGNMENTS = auto()
    LOWER_TABLES = auto()
    BOUNDS = auto()


class MeasuredGain(NamedTuple):
    """The measured cost and gain of a piece of work.

    Attributes
    ----------
    improver : str
        Name of the improver.
    seconds : float
        Seconds that the work has taken.
    estimated_seconds : float
        Seconds that it was estimated to take; 0 if it can use any number of seconds.
    closed_gap : float
        Utility by which the agent's part of the optimality gap has shrunk.
    objective_gain : float
        Utility by which the best assignment has improved, if that is known at once.
    """

    improver: str
    seconds: float
    estimated_seconds: float = 0.0
    closed_gap: float = 0.0
    objective_gain: float = 0.0


@dataclass
class ImproverRecord:
    """Totals of one improver in this run.

    Attributes
    ----------
    seconds : float
        Seconds taken, summed over agents.
    objective, bound : float
        Utility by which the objective was raised and by which the upper bound was lowered.
    estimated_seconds : float
        Estimated seconds of the work that had an estimate.
    seconds_with_estimate : float
        Seconds that this work has taken.
    """

    seconds: float = 0.0
    objective: float = 0.0
    bound: float = 0.0
    estimated_seconds: float = 0.0
    seconds_with_estimate: float = 0.0
