"""Run several small eliminations together on the CPU, where starting one costs more than running it."""

from collections.abc import Sequence

from dmcmc.inference.elimination.eliminate import Elimination, eliminate
from dmcmc.inference.elimination.merge_plans import MergedPlan
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline


def eliminate_small_batch(
    flat: FlatTables,
    plans: Sequence[EliminationPlan],
    merged: MergedPlan,
    arithmetic: Arithmetic,
    semiring: Semiring = MAX_PLUS,
    stop: Deadline = NO_DEADLINE,
) -> list[Elimination]:
    """Run several plans together on one thread; the tables equal those of single runs, bit by bit.

    Parameters
    ----------
    flat
        Encoded tables: those of the first plan, then those of the second, ...
    plans
        The single plans.
    merged
        The merged plan.
    arithmetic
        The arithmetic of the tables.
    semiring
        The semiring.
    stop
        The deadline.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    arena = eliminate(flat, merged.contiguous_plan(plans), arithmetic, 1, semiring, stop).arena
    bounds = zip(merged.entry_start[:-1], merged.entry_start[1:], strict=True)
    return [
        Elimination(plan, arena[begin : max(end, begin + 1)], arithmetic, semiring=semiring)
        for plan, (begin, end) in zip(plans, bounds, strict=True)
    ]
