"""Run mini-bucket plans with moment matching on the GPU if that is faster and its memory suffices."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmcmc.inference.elimination.cuda.divide_work import divide_work
from dmcmc.inference.elimination.eliminate import flat_tables
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.execution import cost_model
from dmcmc.inference.minibuckets.cuda.moment_matching import eliminate_matched_hybrid
from dmcmc.inference.minibuckets.moment_matching import MatchedElimination
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.device import leave_to_cpu

if TYPE_CHECKING:
    from dmcmc.inference.execution.backend import Backend


def eliminate_matched_on_gpu(
    backend: "Backend",
    tables: Sequence[EncodedTable] | FlatTables,
    plan: EliminationPlan,
    threshold: int,
    arithmetic: Arithmetic,
    magnitude_limit: int | float | None,
) -> MatchedElimination | None:
    """Run a mini-bucket plan with moment matching on the GPU; return None if the CPU is faster or memory is short.

    The parameters are those of :func:`dmcmc.inference.execution.gpu_eliminations.eliminate_on_gpu`; ``magnitude_limit``
    is that of :func:`dmcmc.inference.minibuckets.moment_matching.eliminate_matched`.
    """
    hybrid = divide_work(plan, threshold)
    # between the large buckets there are small ones
    cells = hybrid.plan.program.cells[hybrid.first : hybrid.last]
    gpu_is_faster = (
        # 2: matching joins every cell once for the max-marginals and once for the message
        2 * float(cells.sum(dtype=float)) * cost_model.COSTS.seconds_per_cell
        > cost_model.COSTS.gpu_round_trip + cost_model.COSTS.seconds_per_matched_bucket * cells.size
    )
    flat = flat_tables(tables, arithmetic)
    try:
        if gpu_is_faster and hybrid.device_entries * arithmetic.dtype.itemsize <= backend.limit():
            return eliminate_matched_hybrid(flat, plan, hybrid, arithmetic, magnitude_limit, stop=backend.stop)
    except Exception as error:
        if not leave_to_cpu(error):
            raise
    return None
