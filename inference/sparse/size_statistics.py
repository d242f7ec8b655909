"""What incomplete tables are expected to hold before anything is made, and what they have held afterwards."""

from collections.abc import Sequence
from typing import NamedTuple

from dmcmc.inference.elimination.plan import Plan

DENSE = 1 << 17  # joined cells: a dense elimination of that size takes less than the kernels of rows to be called
FULL = 2  # times its rows: so many entries a message may have and become dense


class Kept(NamedTuple):
    """What an elimination's messages hold.

    Attributes
    ----------
    messages, incomplete : int
        All of them, and those that list what is possible.
    entries, rows : float
        Of all messages made dense, and what is listed or dense of them.
    bytes : int
    """

    messages: int
    incomplete: int
    entries: float
    rows: float
    bytes: int


def together(all_: Sequence[Kept]) -> Kept | None:
    """Return what several eliminations hold together; None of none.

    >>> together([Kept(2, 1, 64.0, 9.0, 72), Kept(1, 0, 8.0, 8.0, 32)])
    Kept(messages=3, incomplete=1, entries=72.0, rows=17.0, bytes=104)
    """
    return Kept(*map(sum, zip(*all_, strict=True))) if all_ else None


def forecast(plan: Plan, fills: Sequence[float], itemsize: int) -> Kept:
    """Return what messages would hold if no entry could be told to lose, and what is possible in tables were unrelated.

    Parameters
    ----------
    plan
        Of dense tables.
    fills
        The part of each input's entries that is possible.
    itemsize
        Bytes of an entry.

    Examples
    --------
    >>> import numpy as np
    >>> from dmcmc.inference.elimination.plan import plan_elimination
    >>> plan = plan_elimination([(0, 1), (0, 2)], np.array([128, 128, 128]), [0, 1, 2])
    >>> forecast(plan, [0.01, 0.01], 8).incomplete
    1
    """
    fill, domains = dict(enumerate(fills)), plan.program.domains.tolist()
    incomplete, entries, rows, held = 0, 0.0, 0.0, 0.0
    variables, cells = plan.program.variable.tolist(), plan.program.cells.tolist()
    for b, variable in enumerate(variables):
        joined = 1.0
        for t in plan.inputs(b):
            joined *= fill[t]
        message, size = plan.output(b), float(plan.sizes[plan.output(b)])
        fill[message] = 1.0 - (1.0 - joined) ** domains[variable]
        listed = cells[b] > DENSE and size > FULL * fill[message] * size
        incomplete += listed
        entries += size
        rows += fill[message] * size if listed else size
        held += fill[message] * size * (8 + itemsize) if listed else size * itemsize
    return Kept(plan.buckets, incomplete, entries, rows, int(held))
