"""What a peer answers."""

from collections.abc import Callable
from typing import NamedTuple

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Ints, Number


class Answer(NamedTuple):
    """What a peer has found.

    Attributes
    ----------
    values : (n,) int64 or None
        Value indices; evaluated by whoever asked.
    bound : number or None
        Proven, in the problem's own sense.
    infeasible : bool
        Whether it has proven that there is no assignment.
    time : float
        Wall seconds from tables in its own form to its end.
    trace : list of (seconds, objective or None, bound or None)
    """

    values: Ints | None
    bound: Number | None
    infeasible: bool
    time: float
    trace: list[tuple[float, Number | None, Number | None]]


class Peer(NamedTuple):
    """Another solver: what it is, and how it is asked (problem, wall seconds, seed)."""

    summary: str
    solve: Callable[[Problem, float, int], Answer]
