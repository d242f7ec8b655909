"""Several small eliminations on the CPU at once: what it takes to begin one is more than what it takes to do them."""

from collections.abc import Sequence

from dmcmc.inference.elimination.eliminate import Elimination, eliminate
from dmcmc.inference.elimination.merge_plans import Merged
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_STOP, Stop


def eliminate_side_by_side(
    flat: FlatTables,
    plans: Sequence[Plan],
    merged: Merged,
    arithmetic: Arithmetic,
    semiring: Semiring = MAX_PLUS,
    stop: Stop = NO_STOP,
) -> list[Elimination]:
    """Carry out several plans at once, on one thread; the tables are those of :func:`.eliminate`, to the bit.

    Parameters
    ----------
    flat
        Encoded tables: those of the first plan, then those of the second, ...
    merged
        The plans as one.

    Raises
    ------
    OutOfTime
    """
    arena = eliminate(flat, merged.in_pieces(plans), arithmetic, 1, semiring, stop).arena
    bounds = zip(merged.entry_start[:-1], merged.entry_start[1:], strict=True)
    return [
        Elimination(plan, arena[begin : max(end, begin + 1)], arithmetic, semiring=semiring)
        for plan, (begin, end) in zip(plans, bounds, strict=True)
    ]
