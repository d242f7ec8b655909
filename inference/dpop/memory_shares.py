"""How a budget of bytes is divided among what is alive at the same time."""

from collections.abc import Sequence
from typing import NamedTuple

from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memory import readable

_WORK, _STEPS = 0.75, 2 / 3  # of what the problem leaves; of that what is kept of all agents' UTIL steps


class Shares(NamedTuple):
    """Bytes of a rank.

    Attributes
    ----------
    problem : int
        The problem's tables, which every rank has.
    work : int
        One elimination at a time, its copies included; or, once all agents have tables, all agents' UTIL steps.
    steps : int
        Of ``work``: what is kept of those until VALUE has been by. The rest is for the copies of the one that is made.
    kept : int
        All agents' tables, chains and bounds.
    """

    problem: int
    work: int
    steps: int
    kept: int


def shares_of(budget: int, *problems: Problem) -> Shares:
    """Divide a budget.

    Parameters
    ----------
    problems
        Those that are kept; tables that they have in common count once.

    Raises
    ------
    ResourceError
        If their tables alone take all of it.
    """
    return shares_beside(bytes_of_tables(*problems), budget)


def shares_beside(size: int, budget: int) -> Shares:
    """Divide a budget of which the problem's own tables take ``size``; as :func:`shares_of`."""
    if size >= budget:
        raise ResourceError(
            f"the problem's own tables take {readable(size)} and budget.memory allows {readable(budget)}; raise it"
        )
    work = int(_WORK * (budget - size))
    return Shares(size, work, int(_STEPS * work), budget - size - work)


def bytes_of_tables(*problems: Problem) -> int:
    """Return the bytes of problems' dense tables; tables that they have in common count once."""
    different = [*{id(problem): problem for problem in problems}.values()]
    if len(different) == 1:
        return different[0].known.once("bytes", lambda: _bytes_of(different))
    return _bytes_of(different)


def _bytes_of(problems: Sequence[Problem]) -> int:
    factors = {id(f.table): f for problem in problems for f in problem.factors if type(f) is Factor}
    return sum(factor.table.nbytes for factor in factors.values())


def largest_share(needs: Sequence[float], room: float) -> float:
    """Return what each of some may take at most, so that all together take no more than ``room``.

    Those that need little leave theirs to the others; what nobody needs is left to the one that needs most.

    Examples
    --------
    >>> largest_share([1, 2, 30, 40], 23)
    10.0
    >>> largest_share([1, 2], 23)
    22.0
    """
    left, waiting = float(room), len(needs)
    for need in sorted(needs)[:-1]:
        if need > left / waiting:
            return left / waiting
        left, waiting = left - need, waiting - 1
    return left
