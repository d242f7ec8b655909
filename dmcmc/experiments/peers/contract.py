"""The interface of peers: other solvers that experiments compare dmcmc with."""

from collections.abc import Callable
from typing import NamedTuple

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Ints, Number


class PeerAnswer(NamedTuple):
    """The answer of a peer.

    Attributes
    ----------
    values : (n,) int64 or None
        Value index of each variable; None without an assignment. The caller evaluates it.
    bound : number or None
        Proven bound in the problem's own sense.
    infeasible : bool
        Whether the peer proved that no assignment satisfies the hard constraints.
    time : float
        Wall-clock seconds of the solver itself, without converting the problem for it.
    trace : list of (float, number or None, number or None)
        Seconds, objective and bound at each improvement.
    """

    values: Ints | None
    bound: Number | None
    infeasible: bool
    time: float
    trace: list[tuple[float, Number | None, Number | None]]


class Peer(NamedTuple):
    """Another solver.

    Attributes
    ----------
    summary : str
        One line of description, for lists.
    solve : callable
        Called with the problem, the time limit in wall-clock seconds and the seed; returns a :class:`PeerAnswer`.
    """

    summary: str
    solve: Callable[[Problem, float, int], PeerAnswer]
