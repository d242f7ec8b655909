"""The work of earlier runs that a session has used again."""

from typing import NamedTuple


class Reused(NamedTuple):
    """Count the work that the last run of a session has used again, on all ranks.

    Attributes
    ----------
    tables : int
        Number of agents whose exact tables were kept.
    messages : int
        Number of UTIL steps, and so of UTIL messages, that were kept.
    bounds : int
        Number of agents (and of unions of all agents) whose bounds and sampled values were continued; 0 without a time
        budget.
    """

    tables: int
    messages: int
    bounds: int = 0
