"""Run elimination plans on the GPU as far as its memory allows; what it cannot do is left to the CPU."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmcmc.inference.elimination.cuda.eliminate import divide_work, eliminate_batch, eliminate_hybrid
from dmcmc.inference.elimination.cuda.streaming import Streaming, eliminate_streamed
from dmcmc.inference.elimination.eliminate import Elimination, MergedPlan, flat_tables
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.elimination.semirings import Semiring
from dmcmc.inference.execution import cost_model
from dmcmc.inference.minibuckets.cuda.moment_matching import eliminate_matched_hybrid
from dmcmc.inference.minibuckets.moment_matching import MatchedElimination
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.device_table import min_resident_entries
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.device import CpuFallback, gpu_problem, shared_device

if TYPE_CHECKING:
    from dmcmc.inference.execution.backend import Backend


def eliminate_on_gpu(
    backend: "Backend",
    tables: Sequence[EncodedTable] | FlatTables,
    plan: EliminationPlan,
    threshold: int,
    arithmetic: Arithmetic,
    semiring: Semiring,
) -> Elimination | None:
    """Run a plan with its large buckets on the GPU; return None if its memory does not suffice.

    Tables that exceed the device's memory are streamed through it in chunks. If it still runs out of memory, because
    other processes use it too, they are streamed once more through what is free.

    Parameters
    ----------
    backend
        Threads, share of the device, and deadline.
    tables
        Encoded tables, one for each input of the plan.
    plan
        The plan.
    threshold
        Joined cells from which a bucket is eliminated on the GPU.
    arithmetic
        The arithmetic of the tables.
    semiring
        The semiring.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    threads, stop, limit = backend.threads, backend.stop, backend.limit()
    hybrid = divide_work(plan, threshold, min_resident_entries())
    with CpuFallback():
        if hybrid.device_entries * arithmetic.dtype.itemsize <= limit:
            return eliminate_hybrid(tables, hybrid, arithmetic, threads, semiring, stop=stop)
        flat = flat_tables(tables, arithmetic)
        return eliminate_streamed(flat, plan, arithmetic, threads, Streaming(limit), semiring, stop=stop)
    if gpu_problem() is not None:
        return None
    flat = flat_tables(tables, arithmetic)
    with CpuFallback():
        # half of the free memory, divided among the processes that share the GPU
        limit = min(limit, shared_device().free_bytes() // (2 * backend.processes_per_gpu))
        return eliminate_streamed(flat, plan, arithmetic, threads, Streaming(limit), semiring, stop=stop)
    return None


def eliminate_batch_on_gpu(
    backend: "Backend",
    flat: FlatTables,
    plans: Sequence[EliminationPlan],
    merged: MergedPlan,
    threshold: int,
    arithmetic: Arithmetic,
    semiring: Semiring,
) -> list[Elimination] | None:
    """Run plans together on the GPU; return None if they take over half of its memory or it runs out of memory.

    ``flat`` has the tables of all plans one after the other, and ``merged`` is the plan of all of them; the other
    parameters are those of :func:`eliminate_on_gpu`.
    """
    hybrid = divide_work(merged.plan, threshold, min_resident_entries())
    if hybrid.device_entries * arithmetic.dtype.itemsize > backend.limit() // 2:
        return None
    with CpuFallback():
        return eliminate_batch(flat, plans, merged, hybrid, arithmetic, backend.threads, semiring, backend.stop)
    return None


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
    with CpuFallback():
        if gpu_is_faster and hybrid.device_entries * arithmetic.dtype.itemsize <= backend.limit():
            return eliminate_matched_hybrid(flat, plan, hybrid, arithmetic, magnitude_limit, stop=backend.stop)
    return None
